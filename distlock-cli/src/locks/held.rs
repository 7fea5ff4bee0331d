//! A lock that is held, and the table of such locks.

use serde_json::{Value, json};

use super::process::{ClientProcess, several, several_within};
use crate::admin::{Glance, Owning};
use crate::text::{capped, lease, padded, quoted, shown, width};

/// The widest column that the table prints for a key. JSON always has the whole key.
const WIDEST: usize = 60;

/// A lock that is held.
#[derive(Debug, Clone)]
pub(crate) struct HeldLock {
    pub(crate) key: String,
    /// The lock's state in the store.
    pub(crate) glance: Glance,
    /// The processes that hold the lock: at least one, unless something else is stored in its place.
    pub(crate) holders: Vec<ClientProcess>,
}

impl HeldLock {
    pub(super) fn new(key: String, glance: Glance) -> Self {
        let processes = glance.holders.iter();
        let holders = processes.map(|Owning { process, .. }| ClientProcess::unknown(process));
        Self { key, holders: holders.collect(), glance }
    }

    /// Describes the lock in a sentence.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "{} is held by {}, for another {}; waiting: {}",
            quoted(&self.key),
            self.holder(),
            lease(self.glance.remaining),
            self.glance.waiting
        )
    }

    /// Names the holders, or describes the value that is stored in place of a lock.
    pub(crate) fn holder(&self) -> String {
        self.glance.amiss.as_deref().map_or_else(|| several(&self.holders), shown)
    }

    /// Shortens the text to this many columns, but keeps the number of holders.
    pub(crate) fn holder_within(&self, columns: usize) -> String {
        match &self.glance.amiss {
            Some(amiss) => capped(&shown(amiss), columns),
            None => several_within(&self.holders, columns),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let Glance { alone, remaining, waiting, amiss, .. } = &self.glance;
        let mut json = json!({
            "key": self.key,
            "holder": self.holders.first().map(ClientProcess::json),
            "holders": self.holders.iter().map(ClientProcess::json).collect::<Value>(),
            "alone": alone,
            "remaining_ms": remaining.map(|rest| u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)),
            "waiting": waiting,
        });
        if let Some(amiss) = amiss {
            json["amiss"] = amiss.clone().into();
        }
        json
    }

    /// Makes a lock for tests.
    #[cfg(test)]
    pub(crate) fn example(key: &str, token: &str, waiting: u64) -> Self {
        let process = token.split('.').next().unwrap_or_default().to_owned();
        let glance = Glance {
            holders: vec![Owning { process, token: token.to_owned() }],
            alone: true,
            remaining: Some(std::time::Duration::from_secs(20)),
            waiting,
            amiss: None,
        };
        Self::new(key.to_owned(), glance)
    }
}

/// Formats the locks as a table.
pub(crate) fn table(locks: &[HeldLock]) -> String {
    let row = |held: &HeldLock| {
        let glance = &held.glance;
        let lease = if glance.amiss.is_some() { String::new() } else { lease(glance.remaining) };
        let key = capped(&shown(&held.key), WIDEST);
        [key, held.holder_within(WIDEST), lease, glance.waiting.to_string()]
    };
    let heads = ["KEY", "HOLDER", "LEASE", "WAITING"].map(str::to_owned);
    let rows: Vec<[String; 4]> = [heads].into_iter().chain(locks.iter().map(row)).collect();
    let widest =
        |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or_default();
    let widths = [widest(0), widest(1), widest(2)];
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| padded(cell, width) + "  ");
        cells.collect::<String>() + &row[3] + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: FO7.
    #[test]
    fn a_long_key_pads_no_other_and_wide_ones_are_aligned() {
        let long = "x".repeat(500);
        let keys = ["order:1", "鍵:1", "a\u{202e}b", &long];
        let held: Vec<HeldLock> =
            keys.iter().map(|key| HeldLock::example(key, "abc.1.1s", 3)).collect();
        let table = table(&held);
        assert!(table.contains("a\\u{202e}b") && table.contains('…'), "{table}");
        for line in table.lines() {
            assert!(width(line) < 100, "{line}");
            let at = line.find("abc").or_else(|| line.find("HOLDER")).expect("a holder");
            assert_eq!(width(&line[..at]), WIDEST + 2, "{table}");
        }
    }

    /// Fault: FO8.
    #[test]
    fn how_many_more_there_are_is_not_cut_off() {
        let mut held = HeldLock::example("k", "abcdefghijkl.1.1000sr", 0);
        held.holders = vec![ClientProcess::unknown("abcdefghijkl"); 41];
        assert_eq!(held.holder_within(100), "abcdefghijkl +40");
        assert_eq!(held.holder_within(10), "abcde… +40");
    }
}
