//! What is known of the locks of a store, kept up to date a little at a time.
//!
//! A look asks after every lock that is known, and walks on through the database for new ones by a few
//! steps: so it costs a server about the same however large the database is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock::__console::Walked;

use crate::failure::Failure;
use crate::locks::held::Held;
use crate::locks::reader::{Locks, START};

/// Of a thousand keys each, which a server walks in half a millisecond.
const STEPS: usize = 8;
/// More locks than anybody reads are not asked after.
const MOST: usize = 5_000;
/// How long a rate is counted over.
const RATE: Duration = Duration::from_secs(10);

/// A lock, and since when it is seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) held: Held,
    /// When this lease was seen first.
    pub(super) since: Instant,
    /// It was taken then: not long before it was seen.
    pub(super) is_since_then: bool,
    /// When others were seen to take it.
    changes: Vec<Instant>,
}

impl Seen {
    /// How often it changed hands between two looks, in a minute.
    pub(super) fn changes_a_minute(&self, now: Instant) -> f64 {
        let recent = self.changes.iter().filter(|at| now.duration_since(**at) <= RATE).count();
        recent as f64 * 60.0 / RATE.as_secs_f64()
    }
}

/// All that are known.
#[derive(Debug)]
pub(super) struct Watch {
    seen: BTreeMap<String, Seen>,
    cursor: String,
    /// The database was walked to its end.
    pub(super) is_whole: bool,
    /// Why the last look failed, or saw a part.
    pub(super) trouble: Option<String>,
    /// Nodes whose locks were not seen by the last walk, and by this one.
    missing: BTreeMap<String, String>,
    missed: BTreeMap<String, String>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let (missing, missed) = Default::default();
        let cursor = START.to_owned();
        Self { seen: BTreeMap::new(), cursor, is_whole: false, trouble: None, missing, missed }
    }

    pub(super) fn locks(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }

    /// Looks again.
    pub(super) async fn look(&mut self, locks: &Locks<'_>) {
        let failed = self.try_look(locks).await.err().map(|failure| failure.text);
        let missing = self.missing.first_key_value();
        let missing = missing.map(|(node, why)| format!("the locks of {node} are missing: {why}"));
        self.trouble = failed.or(missing);
    }

    async fn try_look(&mut self, locks: &Locks<'_>) -> Result<(), Failure> {
        let mut names = Vec::new();
        for held in self.seen.values() {
            names.push(locks.manager.stored_name(&held.held.key)?);
        }
        let mut is_end = false;
        for _ in 0..STEPS {
            let Walked { names: found, next, missed, .. } =
                locks.manager.walk(&self.cursor).await?;
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
        names.truncate(MOST);
        let mut held = locks.look(&names).await?;
        locks.introduce(held.iter_mut().flat_map(|held| &mut held.holders)).await;
        self.take_in(held, Instant::now());
        self.is_whole |= is_end;
        Ok(())
    }

    fn take_in(&mut self, held: Vec<Held>, now: Instant) {
        let mut before = std::mem::take(&mut self.seen);
        for held in held {
            let seen = match before.remove(&held.key) {
                Some(seen) if seen.held.token == held.token => Seen { held, ..seen },
                Some(mut seen) => {
                    seen.changes.retain(|at| now.duration_since(*at) <= RATE);
                    seen.changes.push(now);
                    Seen { held, since: now, is_since_then: true, ..seen }
                }
                None => {
                    Seen { held, since: now, is_since_then: self.is_whole, changes: Vec::new() }
                }
            };
            self.seen.insert(seen.held.key.clone(), seen);
        }
    }

    #[cfg(test)]
    pub(super) fn of(held: Vec<Held>) -> Self {
        let mut watch = Self::new();
        watch.take_in(held, Instant::now());
        watch.is_whole = true;
        watch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_token_is_another_hand() {
        let held = |token: &str| vec![Held::example("a", token, 0)];
        let mut watch = Watch::new();
        let begin = Instant::now();
        let after = |secs| begin + Duration::from_secs(secs);
        watch.take_in(held("p.1.1s"), begin);
        watch.take_in(held("p.1.1s"), after(1));
        let seen = watch.locks().next().expect("one");
        assert_eq!((seen.since, seen.changes.len()), (begin, 0));
        watch.take_in(held("q.2.1s"), after(2));
        let seen = watch.locks().next().expect("one");
        assert_eq!((seen.since, seen.changes.len()), (after(2), 1));
        assert!(seen.changes_a_minute(after(2)) > 5.9);
        assert_eq!(seen.changes_a_minute(after(20)), 0.0);
        watch.take_in(Vec::new(), after(3));
        assert_eq!(watch.locks().count(), 0);
    }
}
