//! How often locks are taken, and how long calls wait for them, by name: counted only while another process
//! watches, as the command-line tool does. Otherwise a call reads one flag.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Calls;
use crate::clock::Moment;
use crate::name::LockName;

/// So long after its last question a client counts as watching.
const WATCHED: Duration = Duration::from_secs(10);
/// So many names are counted.
const NAMES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// From when on it counts, and until when.
    watched: Option<(Moment, Moment)>,
    /// By prefix and name.
    calls: HashMap<(Box<str>, Box<str>), Calls>,
}

impl Tally {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A client watches, from now on or still.
    pub(crate) fn watched(&self, now: Moment) {
        let mut state = self.state();
        let since = state.watched.filter(|(_, until)| now < *until).map(|(since, _)| since);
        if since.is_none() {
            state.calls.clear();
        }
        state.watched = Some((since.unwrap_or(now), now.after(WATCHED)));
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// A call has a lock.
    pub(super) fn count(&self, lock: &LockName, waited: Duration, now: Moment) {
        let mut state = self.state();
        if state.watched.is_none_or(|(_, until)| now >= until) {
            state.calls = HashMap::new();
            self.is_on.store(false, Ordering::Relaxed);
            return;
        }
        let is_full = state.calls.len() >= NAMES;
        let name = (lock.prefix().into(), lock.name().into());
        match state.calls.get_mut(&name) {
            Some(calls) => calls.add(waited),
            None if is_full => {}
            None => {
                state.calls.entry(name.clone()).or_insert_with(|| Calls::of(&name.1)).add(waited)
            }
        }
    }

    /// For how long it has counted, and what it has of one prefix.
    pub(crate) fn counted(&self, prefix: &str, now: Moment) -> (Duration, Vec<Calls>) {
        let state = self.state();
        let of_prefix = state.calls.iter().filter(|((of, _), _)| **of == *prefix);
        let counted = state.watched.map_or(Duration::ZERO, |(since, _)| now.since(since));
        (counted, of_prefix.map(|(_, calls)| calls.clone()).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Label;

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn it_counts_while_somebody_watches_and_begins_anew() {
        let tally = Tally::default();
        let lock = LockName::unstored(Label::Given("pay".into()));
        let taken = |now| {
            let (counted, calls) = tally.counted(lock.prefix(), now);
            (counted, calls.iter().map(|calls| calls.taken()).sum::<u64>())
        };
        assert!(!tally.is_on());
        tally.watched(at(100));
        for secs in [101, 102, 109] {
            tally.count(&lock, Duration::from_millis(3), at(secs));
        }
        assert_eq!(taken(at(109)), (Duration::from_secs(9), 3));
        assert_eq!(tally.counted("other:", at(109)).1, Vec::new());
        tally.watched(at(109));
        assert_eq!(taken(at(110)), (Duration::from_secs(10), 3));
        tally.count(&lock, Duration::ZERO, at(119));
        assert!(!tally.is_on(), "no client has asked for ten seconds");
        tally.watched(at(130));
        assert_eq!(taken(at(131)), (Duration::from_secs(1), 0));
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let tally = Tally::default();
        tally.watched(at(1));
        for n in 0..NAMES * 2 {
            let lock = LockName::unstored(Label::Given(format!("name-{n}").into()));
            tally.count(&lock, Duration::ZERO, at(2));
        }
        assert_eq!(tally.counted("", at(2)).1.len(), NAMES);
    }
}
