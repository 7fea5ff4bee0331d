//! A lock that is held.

use std::time::Duration;

use distlock::__console::{Glance, Owning};
use serde_json::{Value, json};

use super::process::{Process, several, several_within};
use crate::text::{capped, lease, padded, quoted, shown, width};

/// The widest column that the table prints for a key. JSON always has the whole key.
const WIDEST: usize = 60;

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
    /// How many may hold the lock at once, by the first holder's token; `None` for readers, who are unlimited.
    #[cfg(feature = "top")]
    pub(crate) limit: Option<u32>,
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
            #[cfg(feature = "top")]
            limit: tokens.first().map_or(Some(1), |token| limit_of(token)),
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

    /// Shortens the text to this many columns, but keeps the number of holders.
    pub(crate) fn holder_within(&self, columns: usize) -> String {
        match &self.amiss {
            Some(amiss) => capped(&shown(amiss), columns),
            None => several_within(&self.holders, columns),
        }
    }

    /// Describes the mode in at most seven characters: empty for an exclusive holder, `read`, or the permits
    /// taken of those there are.
    #[cfg(feature = "top")]
    pub(crate) fn mode(&self) -> String {
        match self.limit {
            _ if self.alone || self.holders.is_empty() => String::new(),
            None => "read".to_owned(),
            Some(limit) => format!("{}/{limit}", self.holders.len()),
        }
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

/// Returns how many may hold a lock together with this token; `None` for readers, who are unlimited. The end of
/// the token says it: `r` for readers, a number for permits, nothing for an exclusive holder.
#[cfg(feature = "top")]
fn limit_of(token: &str) -> Option<u32> {
    let end = token.rsplit('.').next().unwrap_or_default();
    match end.rsplit(['s', 'n']).next() {
        Some("r") => None,
        Some(number) => Some(number.parse().unwrap_or(1)),
        None => Some(1),
    }
}

/// Many, for people.
pub(crate) fn table(held: &[Held]) -> String {
    let row = |held: &Held| {
        let lease = if held.amiss.is_some() { String::new() } else { lease(held.remaining) };
        let key = capped(&shown(&held.key), WIDEST);
        [key, held.holder_within(WIDEST), lease, held.waiting.to_string()]
    };
    let heads = ["KEY", "HOLDER", "LEASE", "WAITING"].map(str::to_owned);
    let rows: Vec<[String; 4]> = [heads].into_iter().chain(held.iter().map(row)).collect();
    let widest =
        |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or_default();
    let widths = [widest(0), widest(1), widest(2)];
    let line = |row: &[String; 4]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| padded(cell, width) + "  ");
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
            limit: limit_of(token),
            remaining: Some(Duration::from_secs(20)),
            waiting,
            amiss: None,
        }
    }
}

#[cfg(all(test, feature = "top"))]
mod tests {
    use super::*;

    /// Fault: FO7.
    #[test]
    fn a_long_key_pads_no_other_and_wide_ones_are_aligned() {
        let long = "x".repeat(500);
        let keys = ["order:1", "鍵:1", "a\u{202e}b", &long];
        let held: Vec<Held> = keys.iter().map(|key| Held::example(key, "abc.1.1s", 3)).collect();
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
        let mut held = Held::example("k", "abcdefghijkl.1.1000sr", 0);
        (held.alone, held.holders) = (false, vec![Process::unknown("abcdefghijkl"); 41]);
        assert_eq!(held.holder_within(100), "abcdefghijkl +40");
        assert_eq!(held.holder_within(10), "abcde… +40");
        assert_eq!(held.mode(), "read");
        held.limit = limit_of("abc.1.1000s50");
        assert_eq!(held.mode(), "41/50");
        assert_eq!(Held::example("k", "abc.1.1000s", 0).mode(), "");
    }
}
