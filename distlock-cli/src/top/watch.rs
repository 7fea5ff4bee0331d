//! The known locks of a store, which are updated a little at a time.
//!
//! A refresh asks for every known lock, and continues the scan of the database for new ones by a few steps. So it costs
//! a server about the same for any size of the database.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::admin::Walked;
use crate::exit::Failure;
use crate::locks::held::HeldLock;
use crate::locks::reader::{LockReader, START};

/// The steps of a refresh. A step scans a thousand keys, which takes a server half a millisecond.
const STEPS: usize = 8;
/// A refresh asks for at most this many locks, which is more than anybody reads.
const MAX_LOCKS: usize = 5_000;
/// A rate is an average over this time.
const WINDOW: Duration = Duration::from_secs(10);

/// A known lock, with its history.
#[derive(Debug, Clone)]
pub(super) struct WatchedLock {
    /// The lock's name in the store.
    pub(super) stored: String,
    pub(super) held: HeldLock,
    /// The time when this lease was first seen.
    pub(super) since: Instant,
    /// Whether the lease began shortly before that time.
    pub(super) is_since_exact: bool,
    /// The times when the lock was seen to change hands.
    changes: Vec<Instant>,
}

impl WatchedLock {
    /// Returns how often the lock changed hands between two refreshes, per minute.
    pub(super) fn changes_a_minute(&self, now: Instant) -> f64 {
        let recent = self.changes.iter().filter(|at| now.duration_since(**at) <= WINDOW).count();
        recent as f64 * 60.0 / WINDOW.as_secs_f64()
    }

    /// Describes the mode in at most seven characters: empty for an exclusive holder, `read`, or the permits that are
    /// held and their limit.
    pub(super) fn mode(&self) -> String {
        let HeldLock { glance, holders, .. } = &self.held;
        let Some(first) = glance.holders.first().filter(|_| !glance.alone) else {
            return String::new();
        };
        match limit_of(&first.token) {
            None => "read".to_owned(),
            Some(limit) => format!("{}/{limit}", holders.len()),
        }
    }
}

/// Returns how many may hold a lock together with this token; `None` for readers, whose number is unlimited. The token
/// ends in `r` for readers, in a number for permits, and in neither for an exclusive holder.
fn limit_of(token: &str) -> Option<u32> {
    let end = token.rsplit('.').next().unwrap_or_default();
    match end.rsplit(['s', 'n']).next() {
        Some("r") => None,
        Some(number) => Some(number.parse().unwrap_or(1)),
        None => Some(1),
    }
}

/// All known locks.
#[derive(Debug)]
pub(super) struct LockWatch {
    locks: BTreeMap<String, WatchedLock>,
    cursor: String,
    /// Whether a scan has reached the end of the database.
    pub(super) is_whole: bool,
    /// The reason if the last refresh failed or was incomplete.
    pub(super) trouble: Option<String>,
    /// Nodes whose locks the last scan missed, and why.
    missing: BTreeMap<String, String>,
    /// Nodes whose locks the current scan has missed so far, and why.
    missed: BTreeMap<String, String>,
}

impl LockWatch {
    pub(super) fn new() -> Self {
        let (missing, missed) = Default::default();
        let cursor = START.to_owned();
        Self { locks: BTreeMap::new(), cursor, is_whole: false, trouble: None, missing, missed }
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = &WatchedLock> {
        self.locks.values()
    }

    /// Updates the known locks.
    pub(super) async fn refresh(&mut self, reader: &LockReader<'_>) {
        let failed = self.try_refresh(reader).await.err().map(|failure| failure.text);
        let missing = self.missing.first_key_value();
        let missing = missing.map(|(node, why)| format!("the locks of {node} are missing: {why}"));
        self.trouble = failed.or(missing);
    }

    async fn try_refresh(&mut self, reader: &LockReader<'_>) -> Result<(), Failure> {
        let mut names: Vec<String> = self.locks.values().map(|lock| lock.stored.clone()).collect();
        let mut is_end = false;
        for _ in 0..STEPS {
            let Walked { names: found, next, missed, .. } =
                reader.manager.walk(&self.cursor).await?;
            names.extend(found);
            self.missed.extend(missed);
            is_end = next.is_none();
            self.cursor = next.unwrap_or_else(|| START.to_owned());
            if is_end {
                self.missing = std::mem::take(&mut self.missed);
                break;
            }
        }
        names.sort();
        names.dedup();
        names.truncate(MAX_LOCKS);
        let mut held = reader.read_names(&names).await?;
        reader.identify(held.iter_mut().flat_map(|(_, lock)| &mut lock.holders)).await;
        self.update(held, Instant::now());
        self.is_whole |= is_end;
        Ok(())
    }

    fn update(&mut self, held: Vec<(String, HeldLock)>, now: Instant) {
        let mut before = std::mem::take(&mut self.locks);
        for (stored, held) in held {
            let lock = match before.remove(&held.key) {
                // The same tokens mean that the lock was not released in between.
                Some(lock) if lock.held.glance.holders == held.glance.holders => {
                    WatchedLock { held, ..lock }
                }
                Some(mut lock) => {
                    lock.changes.retain(|at| now.duration_since(*at) <= WINDOW);
                    lock.changes.push(now);
                    WatchedLock { held, since: now, is_since_exact: true, ..lock }
                }
                None => {
                    let (is_since_exact, changes) = (self.is_whole, Vec::new());
                    WatchedLock { stored, held, since: now, is_since_exact, changes }
                }
            };
            self.locks.insert(lock.held.key.clone(), lock);
        }
    }

    /// Makes a watch for tests.
    #[cfg(test)]
    pub(super) fn of(held: Vec<HeldLock>) -> Self {
        let mut watch = Self::new();
        let named = held.into_iter().map(|held| (format!("distlock:lock:{{{}}}", held.key), held));
        watch.update(named.collect(), Instant::now());
        watch.is_whole = true;
        watch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::process::ClientProcess;

    #[test]
    fn another_token_is_another_hand() {
        let held = |token: &str| vec![("l".to_owned(), HeldLock::example("a", token, 0))];
        let mut watch = LockWatch::new();
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        watch.update(held("p.1.1s"), begin);
        watch.update(held("p.1.1s"), after(1));
        let lock = watch.locks().next().expect("one");
        assert_eq!((lock.since, lock.changes.len()), (begin, 0));
        watch.update(held("q.2.1s"), after(2));
        let lock = watch.locks().next().expect("one");
        assert_eq!((lock.since, lock.changes.len()), (after(2), 1));
        assert!(lock.changes_a_minute(after(2)) > 5.9);
        assert_eq!(lock.changes_a_minute(after(20)), 0.0);
        watch.update(Vec::new(), after(3));
        assert_eq!(watch.locks().count(), 0);
    }

    #[test]
    fn a_mode_is_described_by_the_first_token() {
        for (token, alone, mode) in [
            ("abc.1.1000sr", false, "read"),
            ("abc.1.1000s50", false, "41/50"),
            ("abc.1.1000s", true, ""),
        ] {
            let mut held = HeldLock::example("k", token, 0);
            (held.glance.alone, held.holders) = (alone, vec![ClientProcess::unknown("abc"); 41]);
            let watch = LockWatch::of(vec![held]);
            assert_eq!(watch.locks().next().expect("one").mode(), mode);
        }
    }
}
