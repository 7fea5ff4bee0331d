//! A process that holds or waits.

use std::fmt;

use serde_json::{Value, json};

use crate::text::{capped, shown};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Process {
    /// What its tokens begin with.
    pub(crate) id: String,
    /// What it says of itself, if it does.
    pub(crate) known: Option<distlock::Process>,
}

impl Process {
    pub(crate) fn unknown(id: impl Into<String>) -> Self {
        Self { id: id.into(), known: None }
    }

    pub(crate) fn version(&self) -> Option<&str> {
        self.known.as_ref().map(|known| known.version.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = json!({ "process": self.id });
        if let Some(distlock::Process { app, host, pid, version, .. }) = &self.known {
            json["app"] = app.clone().into();
            json["host"] = host.clone().into();
            json["pid"] = (*pid).into();
            json["v"] = version.clone().into();
        }
        json
    }
}

/// `app@host:pid` where that is known, else the beginning of its number.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.known {
            Some(known) => f.write_str(&shown(&known.to_string())),
            None => f.write_str(&shown(&self.id.chars().take(12).collect::<String>())),
        }
    }
}

impl From<distlock::Process> for Process {
    fn from(process: distlock::Process) -> Self {
        Self { id: process.id.clone(), known: Some(process) }
    }
}

/// Names the first process, shortened if necessary, and the number of the others, within this many columns.
pub(crate) fn several_within(processes: &[Process], columns: usize) -> String {
    match processes {
        [one, more @ ..] if !more.is_empty() => {
            let more = format!(" +{}", more.len());
            capped(&one.to_string(), columns.saturating_sub(more.len())) + &more
        }
        _ => capped(&several(processes), columns),
    }
}

/// The first of them, and how many more there are.
pub(crate) fn several(processes: &[Process]) -> String {
    match processes {
        [] => "nobody".to_owned(),
        [one] => one.to_string(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    }
}
