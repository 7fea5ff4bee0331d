//! The options of a URL.

use std::path::PathBuf;
use std::time::Duration;

use super::authority::{PLAIN, UrlError, decoded};

/// The options of a URL that were not read yet.
pub(super) struct Options {
    given: Vec<(&'static str, String)>,
}

impl Options {
    /// Parses the options. `known` are those that the scheme has.
    pub(super) fn parse(query: &str, known: &[&'static str]) -> Result<Self, UrlError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let known = known.join("`, `");
                let hint = if query.contains('@') { ["; ", PLAIN].concat() } else { String::new() };
                return Err(format!("an unknown option; there are `{known}`{hint}").into());
            };
            if given.iter().any(|(other, _)| other == name) {
                return Err(format!("the option `{name}` is given twice").into());
            }
            let value =
                decoded(value).ok_or_else(|| format!("`{name}`: not valid UTF-8 when decoded"))?;
            if value.is_empty() {
                return Err(format!("`{name}`: no value; write `{name}=…`").into());
            }
            given.push((name, value));
        }
        Ok(Self { given })
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.given.iter().position(|(given, _)| *given == name)?;
        Some(self.given.swap_remove(at).1)
    }

    pub(super) fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, UrlError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.as_str() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(format!("`{name}`: write `true` or `false`").into()),
        }
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u32>, UrlError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("`{name}`: not a number").into())
    }

    pub(super) fn duration(&mut self, name: &str) -> Result<Option<Duration>, UrlError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = |_| format!("`{name}`: write a duration such as `100ms` or `2s`").into();
        humantime::parse_duration(&text).map(Some).map_err(wrong)
    }
}
