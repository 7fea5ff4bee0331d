//! The log of requests that a lock's error was the answer to.
//!
//! In an outage every request fails, and a line for each would bury the rest of the log: of each
//! lock and kind of error there is one a second at most, which says how many it stands for.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::LockError;
use crate::name::LockName;
use crate::observe;

const PAUSE: Duration = Duration::from_secs(1);
/// Of a program that makes names at run time the others count as one.
const MOST_NAMES: usize = 500;

/// Logs the answer; `layer` is what was asked for the lock, where the error does not know.
pub(crate) fn report(error: &LockError, layer: Option<&str>, status: u16) {
    static PACE: Mutex<Pace> = Mutex::new(Pace { kinds: Vec::new() });
    let name = error.lock().map(LockName::name).or(layer).unwrap_or_default();
    if matches!(error, LockError::Busy { .. } | LockError::InvalidKey { .. }) {
        return observe::answered(error, name, status, 1);
    }
    // What is set up wrongly is another thing for each text.
    let kind = match error {
        LockError::InvalidOption { details, .. } => details,
        _ => name,
    };
    // The subscriber is called after the mutex is free.
    let admitted = match PACE.lock() {
        Ok(mut pace) => pace.admit(Instant::now(), error.code(), kind),
        Err(_) => Some(1),
    };
    if let Some(count) = admitted {
        observe::answered(error, name, status, count);
    }
}

#[derive(Default)]
struct Pace {
    /// For each kind of error, by the lock's name.
    kinds: Vec<(&'static str, HashMap<Box<str>, Said>)>,
}

struct Said {
    at: Instant,
    /// How many were not said since.
    unsaid: u64,
}

impl Pace {
    /// How many answers an event stands for that is to be logged now; `None` if none is.
    fn admit(&mut self, now: Instant, kind: &'static str, name: &str) -> Option<u64> {
        let at = match self.kinds.iter().position(|(has, _)| *has == kind) {
            Some(at) => at,
            None => {
                self.kinds.push((kind, HashMap::new()));
                self.kinds.len() - 1
            }
        };
        let names = &mut self.kinds[at].1;
        let known = names.contains_key(name) || names.len() < MOST_NAMES;
        let name = if known { name } else { "" };
        match names.get_mut(name) {
            Some(said) if now.saturating_duration_since(said.at) < PAUSE => {
                said.unsaid += 1;
                None
            }
            Some(said) => {
                let count = said.unsaid + 1;
                *said = Said { at: now, unsaid: 0 };
                Some(count)
            }
            None => {
                names.insert(name.into(), Said { at: now, unsaid: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wl2_one_event_a_second_says_how_many_it_stands_for() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.admit(at(0), "a", "pay"), Some(1));
        for millis in 1..1000 {
            assert_eq!(pace.admit(at(millis), "a", "pay"), None);
        }
        assert_eq!(pace.admit(at(999), "a", "ship"), Some(1));
        assert_eq!(pace.admit(at(999), "b", "pay"), Some(1));
        assert_eq!(pace.admit(at(1000), "a", "pay"), Some(1000));
        assert_eq!(pace.admit(at(5000), "a", "pay"), Some(1));
    }

    #[test]
    fn wl2_names_without_end_take_no_memory_without_end() {
        let mut pace = Pace::default();
        let now = Instant::now();
        for n in 0..10_000 {
            pace.admit(now, "a", &n.to_string());
        }
        assert!(pace.kinds[0].1.len() <= MOST_NAMES + 1);
    }
}
