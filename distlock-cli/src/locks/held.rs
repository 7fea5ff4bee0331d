//! A lock that is held.

use std::time::Duration;

use distlock::__console::{Glance, Owning};
use serde_json::{Value, json};

use super::process::{Process, several};
use crate::text::{lease, quoted, shown};

#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) key: String,
    /// Its name in the store.
    #[cfg(feature = "top")]
    pub(crate) stored: String,
    /// Another one means that it was released in between.
    #[cfg(feature = "top")]
    pub(crate) token: String,
    /// At least one, unless something is amiss.
    pub(crate) holders: Vec<Process>,
    /// It is held exclusively.
    pub(crate) alone: bool,
    /// What is left of the lease; `None` where it has no end, which no lock of ours is.
    pub(crate) remaining: Option<Duration>,
    /// How many places of its queue are taken.
    pub(crate) waiting: u64,
    /// What stands in its place, or in that of its queue, that is none of ours.
    pub(crate) amiss: Option<String>,
}

impl Held {
    pub(super) fn of(key: String, stored: &str, seen: Glance) -> Self {
        let Glance { holders, alone, remaining, waiting, amiss, .. } = seen;
        let tokens: Vec<&str> = holders.iter().map(|holder| holder.token.as_str()).collect();
        let _ = (stored, &tokens);
        Self {
            key,
            #[cfg(feature = "top")]
            stored: stored.to_owned(),
            #[cfg(feature = "top")]
            token: tokens.join(" "),
            alone,
            remaining,
            waiting,
            amiss,
            holders: holders
                .into_iter()
                .map(|Owning { process, .. }| Process::unknown(process))
                .collect(),
        }
    }

    /// For people.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "{} is held by {}, for another {}; waiting: {}",
            quoted(&self.key),
            self.holder(),
            lease(self.remaining),
            self.waiting
        )
    }

    /// The holders, or what is stored there in place of a lock.
    pub(crate) fn holder(&self) -> String {
        self.amiss.as_deref().map_or_else(|| several(&self.holders), shown)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "key": self.key,
            "holder": self.holders.first().map(Process::json),
            "holders": self.holders.iter().map(Process::json).collect::<Value>(),
            "alone": self.alone,
            "remaining_ms": self.remaining.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
            "waiting": self.waiting,
        });
        if let Some(amiss) = &self.amiss {
            json["amiss"] = amiss.clone().into();
        }
        json
    }
}

/// Many, for people.
pub(crate) fn table(held: &[Held]) -> String {
    let row = |held: &Held| {
        let lease = if held.amiss.is_some() { String::new() } else { lease(held.remaining) };
        [shown(&held.key), held.holder(), lease, held.waiting.to_string()]
    };
    let heads = ["KEY", "HOLDER", "LEASE", "WAITING"].map(str::to_owned);
    let rows: Vec<[String; 4]> = [heads].into_iter().chain(held.iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>() + &row[3] + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(all(test, feature = "top"))]
impl Held {
    /// For tests of what is shown.
    pub(crate) fn example(key: &str, token: &str, waiting: u64) -> Self {
        let process = token.split('.').next().unwrap_or_default();
        Self {
            key: key.to_owned(),
            stored: format!("distlock:lock:{{{key}}}"),
            token: token.to_owned(),
            holders: vec![Process::unknown(process)],
            alone: true,
            remaining: Some(Duration::from_secs(20)),
            waiting,
            amiss: None,
        }
    }
}
