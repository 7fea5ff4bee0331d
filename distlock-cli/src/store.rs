//! The store that the command line or the environment names.

use std::time::Duration;

use distlock::{LockError, LockManager, LockManagerBuilder};

use crate::args::StoreOptions;
use crate::exit;
use crate::secret;

/// Why a command did not do what it should: what to say, and the exit code.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: exit::USAGE }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self { text: describe(&error), code: exit::of(&error) }
    }
}

/// What an error says, and why, without the label of a lock: whoever typed the key knows it.
pub(crate) fn describe(error: &LockError) -> String {
    match error {
        LockError::Backend { kind, source: Some(source), .. } => format!("{kind}: {source}"),
        LockError::Backend { kind, .. } => kind.to_string(),
        LockError::InvalidKey { reason, .. } => format!("the key cannot be used: {reason}"),
        _ => error.to_string(),
    }
}

/// The store, as it was named.
pub(crate) struct Named {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Named {
    pub(crate) fn of(options: &StoreOptions) -> Result<Self, Failure> {
        let url = match &options.url {
            Some(url) => Some(secret::whole(url)),
            None => variable("DISTLOCK_URL")?.filter(|url| !url.is_empty()),
        };
        let url = url.ok_or_else(|| {
            Failure::usage("no store: give --url redis://HOST, or set DISTLOCK_URL")
        })?;
        let prefix = match &options.prefix {
            Some(prefix) => prefix.clone(),
            None => variable("DISTLOCK_PREFIX")?.unwrap_or_else(|| "distlock".to_owned()),
        };
        Ok(Self { url, prefix })
    }

    pub(crate) fn builder(&self) -> LockManagerBuilder {
        LockManager::builder().url(&self.url).prefix(&self.prefix)
    }

    /// Connects; fails at once if the store cannot be reached.
    pub(crate) async fn connect(&self) -> Result<LockManager, Failure> {
        Ok(self.builder().connect().await?)
    }

    /// The prefix as it stands in names: with its separator.
    pub(crate) fn names(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}:", self.prefix) }
    }

    /// Where it is, without user, password and options.
    pub(crate) fn place(&self) -> String {
        place(&self.url)
    }

    /// Whether locks are kept where other processes see them.
    pub(crate) fn is_shared(&self) -> bool {
        !self.url.trim_start().to_ascii_lowercase().starts_with("memory:")
    }
}

/// Where a URL leads, without user, password and options.
pub(crate) fn place(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // A password that is not written as a URL wants it may contain anything.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let slash = if path.is_empty() { "" } else { "/" };
    format!("{scheme}://{authority}{slash}{path}")
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{name} is not valid UTF-8")))
        }
    }
}

/// A time for people: no finer than is of use.
pub(crate) fn rounded(time: Duration) -> String {
    let unit = match time {
        _ if time < Duration::from_secs(1) => 1,
        _ if time < Duration::from_secs(10) => 100,
        _ => 1000,
    };
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / unit * unit;
    humantime::format_duration(Duration::from_millis(millis)).to_string()
}

#[cfg(test)]
mod tests {
    use super::Named;

    #[test]
    fn a_place_has_no_password() {
        for (url, place) in [
            ("redis://user:p@ss@host:1/2", "redis://host:1/2"),
            ("redis://user:p/ss@host:1/2", "redis://host:1/2"),
            ("redis+unix:///a/b?pass=se@cret", "redis+unix:///a/b"),
            ("redis-sentinel://:pw@a,b/main?sentinel_pass=x@y", "redis-sentinel://a,b/main"),
            ("redis://host", "redis://host"),
        ] {
            let named = Named { url: url.to_owned(), prefix: String::new() };
            assert_eq!(named.place(), place);
        }
    }
}
