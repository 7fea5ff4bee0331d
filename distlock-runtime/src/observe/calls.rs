//! The number of calls that took the locks of each name, and how long they waited.
//!
//! Calls are counted only while another process watches, as the command-line tool does. Otherwise a call reads
//! one flag.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::process_info::shortened;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Upper bounds of the counts, in µs. One more count is for longer waits.
const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The calls that got a lock of one name since a client began to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// The name of their locks.
    #[serde(deserialize_with = "short_name")]
    pub name: String,
    #[serde(serialize_with = "write_waits", deserialize_with = "read_waits")]
    waits: WaitCounts,
}

/// The number of calls for each of the `BOUNDS`, and of those that waited longer.
type WaitCounts = [u64; BOUNDS.len() + 1];

impl Calls {
    /// Makes a count of no calls yet.
    pub fn of(name: &str) -> Self {
        Self { name: shortened(name), waits: [0; BOUNDS.len() + 1] }
    }

    /// Counts a call that waited this long.
    pub fn add(&mut self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits[BOUNDS.partition_point(|bound| *bound < waited)] += 1;
    }

    /// Returns the number of calls.
    pub fn taken(&self) -> u64 {
        self.waits.iter().sum()
    }

    /// Returns the calls of this process since it counted `before`, or `None` if it has started again meanwhile.
    #[must_use]
    pub fn since(&self, before: Option<&Self>) -> Option<Self> {
        let mut since = self.clone();
        for (now, before) in
            since.waits.iter_mut().zip(before.map_or([0; BOUNDS.len() + 1], |it| it.waits))
        {
            *now = now.checked_sub(before)?;
        }
        Some(since)
    }

    /// Those of another process as well.
    pub fn join(&mut self, other: &Self) {
        for (count, more) in self.waits.iter_mut().zip(other.waits) {
            *count += more;
        }
    }

    /// Returns the wait that this part of the calls (0 to 1) did not exceed. `None` if there are no calls, or if it
    /// is more than a minute.
    pub fn waited(&self, part: f64) -> Option<Duration> {
        let wanted = (self.taken() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bounds = BOUNDS.iter().zip(self.waits);
        let mut reached = bounds.filter(|(_, count)| {
            seen += count;
            seen >= wanted.max(1)
        });
        reached.next().map(|(bound, _)| Duration::from_micros(*bound))
    }
}

fn short_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|name| shortened(&name))
}

/// Writes the counts as numbers with spaces between them.
fn write_waits<S: Serializer>(waits: &WaitCounts, to: S) -> Result<S::Ok, S::Error> {
    waits.map(|count| count.min(u32::MAX.into()).to_string()).join(" ").serialize(to)
}

fn read_waits<'de, D: Deserializer<'de>>(from: D) -> Result<WaitCounts, D::Error> {
    let text = String::deserialize(from)?;
    let mut counts = text.split(' ');
    let mut waits = [0; BOUNDS.len() + 1];
    for count in &mut waits {
        // The text may come from another version or a foreign client. Small numbers cannot overflow a sum.
        let next = counts.next().and_then(|count| count.parse::<u32>().ok());
        *count = next.ok_or_else(|| D::Error::custom("no count"))?.into();
    }
    Ok(waits)
}

/// How long a client counts as watching after its last question.
const WATCHED: Duration = Duration::from_secs(10);
/// At most this many names are counted.
const NAMES: usize = 200;

/// The counts of one manager, while a client watches.
#[derive(Debug, Default)]
pub(crate) struct CallTally {
    is_on: AtomicBool,
    counts: Mutex<CallCounts>,
}

#[derive(Debug, Default)]
struct CallCounts {
    /// The time from which on calls are counted, and the time when that ends.
    watched: Option<(Moment, Moment)>,
    /// By prefix and name.
    calls: HashMap<(Box<str>, Box<str>), Calls>,
}

impl CallTally {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Notes that a client watches, from now on or still.
    pub(crate) fn watched(&self, now: Moment) {
        let mut counts = self.counts();
        let since = counts.watched.filter(|(_, until)| now < *until).map(|(since, _)| since);
        if since.is_none() {
            counts.calls.clear();
        }
        counts.watched = Some((since.unwrap_or(now), now.after(WATCHED)));
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Counts a call that has its lock.
    pub(super) fn count(&self, lock: &LockName, waited: Duration, now: Moment) {
        let mut counts = self.counts();
        if counts.watched.is_none_or(|(_, until)| now >= until) {
            counts.calls = HashMap::new();
            self.is_on.store(false, Ordering::Relaxed);
            return;
        }
        let is_full = counts.calls.len() >= NAMES;
        let name = (lock.prefix().into(), lock.name().into());
        match counts.calls.get_mut(&name) {
            Some(calls) => calls.add(waited),
            None if is_full => {}
            None => {
                counts.calls.entry(name.clone()).or_insert_with(|| Calls::of(&name.1)).add(waited)
            }
        }
    }

    /// Returns for how long it has counted, and the calls under one prefix.
    pub(crate) fn counted(&self, prefix: &str, now: Moment) -> (Duration, Vec<Calls>) {
        let counts = self.counts();
        let of_prefix = counts.calls.iter().filter(|((of, _), _)| **of == *prefix);
        let counted = counts.watched.map_or(Duration::ZERO, |(since, _)| now.since(since));
        (counted, of_prefix.map(|(_, calls)| calls.clone()).collect())
    }

    fn counts(&self) -> MutexGuard<'_, CallCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::name::Label;

    use super::*;

    #[test]
    fn most_waited_no_longer() {
        let mut calls = Calls::of("pay");
        assert_eq!(calls.waited(0.99), None);
        (0..98).for_each(|_| calls.add(Duration::from_micros(100)));
        (0..2).for_each(|_| calls.add(Duration::from_millis(30)));
        assert_eq!(calls.waited(0.5), Some(Duration::from_micros(100)));
        assert_eq!(calls.waited(0.98), Some(Duration::from_micros(100)));
        assert_eq!(calls.waited(0.99), Some(Duration::from_millis(50)));
        let before = calls.clone();
        calls.add(Duration::from_secs(3600));
        let new = calls.since(Some(&before)).expect("more");
        assert_eq!((new.taken(), new.waited(0.99)), (1, None));
        assert_eq!(before.since(Some(&calls)), None, "it has started again");
        let mut both = before.clone();
        both.join(&new);
        assert_eq!(both, calls);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut calls = Calls::of("orders::pay \"1\"");
        (0..7).for_each(|n| calls.add(Duration::from_millis(10 * n)));
        let json = serde_json::to_string(&calls).expect("JSON");
        assert_eq!(serde_json::from_str::<Calls>(&json).ok(), Some(calls));
        for text in
            [r#"{"name":"a"}"#, r#"{"name":"a","waits":"1 2"}"#, r#"{"name":"a","waits":"-1"}"#]
        {
            assert!(serde_json::from_str::<Calls>(text).is_err(), "{text}");
        }
    }

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn it_counts_while_somebody_watches_and_begins_anew() {
        let tally = CallTally::default();
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
        let tally = CallTally::default();
        tally.watched(at(1));
        for n in 0..NAMES * 2 {
            let lock = LockName::unstored(Label::Given(format!("name-{n}").into()));
            tally.count(&lock, Duration::ZERO, at(2));
        }
        assert_eq!(tally.counted("", at(2)).1.len(), NAMES);
    }
}
