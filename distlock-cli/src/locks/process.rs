//! A process that holds a lock or waits for it.

use std::fmt;

use serde_json::{Value, json};

use crate::text::{capped, shown};

/// A process by its id, with its record if it keeps one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClientProcess {
    /// The beginning of the process's owner tokens.
    pub(crate) id: String,
    /// The process's record of itself in the store.
    pub(crate) record: Option<distlock::Process>,
}

impl ClientProcess {
    pub(crate) fn unknown(id: impl Into<String>) -> Self {
        Self { id: id.into(), record: None }
    }

    pub(crate) fn version(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.version.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = json!({ "process": self.id });
        if let Some(distlock::Process { app, host, pid, version, .. }) = &self.record {
            json["app"] = app.clone().into();
            json["host"] = host.clone().into();
            json["pid"] = (*pid).into();
            json["v"] = version.clone().into();
        }
        json
    }
}

/// `app@host:pid` if there is a record, else the beginning of the id.
impl fmt::Display for ClientProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => f.write_str(&shown(&record.to_string())),
            None => f.write_str(&shown(&self.id.chars().take(12).collect::<String>())),
        }
    }
}

impl From<distlock::Process> for ClientProcess {
    fn from(process: distlock::Process) -> Self {
        Self { id: process.id.clone(), record: Some(process) }
    }
}

/// Names the first process, shortened if necessary, and the number of the others, within this many columns.
pub(crate) fn several_within(processes: &[ClientProcess], columns: usize) -> String {
    match processes {
        [one, more @ ..] if !more.is_empty() => {
            let more = format!(" +{}", more.len());
            capped(&one.to_string(), columns.saturating_sub(more.len())) + &more
        }
        _ => capped(&several(processes), columns),
    }
}

/// Names the first process and the number of the others.
pub(crate) fn several(processes: &[ClientProcess]) -> String {
    match processes {
        [] => "nobody".to_owned(),
        [one] => one.to_string(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    }
}
