//! Fencing tokens: a base and the revision.
//!
//! A revision counts the writes of a store, so that each holder of a lock has a higher one than the holder
//! before it. It begins anew where the data is lost, and goes back where a backup is restored. So a base is
//! added, which is stored with the locks and raised to the time of day whenever there was an election since, the
//! cluster is another one, or there is none. Every transaction that gives a lock tests that the base is what
//! the process believes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fault::Fault;
use crate::proto::{KeyValue, ResponseHeader};

/// A base that no clock has given: more than a hundred years ahead, in µs.
const AHEAD: u64 = 100 * 366 * 24 * 3600 * 1_000_000;

/// What is stored: the base, and when it was raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// As it is stored.
    pub(crate) text: Vec<u8>,
    micros: u64,
    cluster: u64,
    term: u64,
}

impl Base {
    fn new(micros: u64, header: ResponseHeader) -> Self {
        let ResponseHeader { cluster_id: cluster, raft_term: term, .. } = header;
        Self { text: format!("{micros} {cluster:x} {term}").into_bytes(), micros, cluster, term }
    }

    fn read(text: &[u8]) -> Option<Self> {
        let words = std::str::from_utf8(text).ok()?;
        let mut words = words.split(' ');
        let micros = words.next()?.parse().ok().filter(|micros| *micros < now() + AHEAD)?;
        let cluster = u64::from_str_radix(words.next()?, 16).ok()?;
        let term = words.next()?.parse().ok()?;
        Some(Self { text: text.to_vec(), micros, cluster, term })
    }

    /// Whether it was raised since there was an election last.
    pub(crate) fn is_of(&self, header: ResponseHeader) -> bool {
        (self.cluster, self.term) == (header.cluster_id, header.raft_term)
    }

    /// The value of an answer.
    pub(crate) fn at(&self, header: ResponseHeader) -> u64 {
        self.micros.saturating_add(header.revision.unsigned_abs())
    }
}

/// The bases that this process knows, each by the key that it is stored under.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    bases: Mutex<HashMap<Vec<u8>, Base>>,
    /// The highest value that was seen.
    seen: AtomicU64,
    /// The highest revision that was seen.
    revision: AtomicI64,
}

impl Fence {
    pub(crate) fn base(&self, key: &[u8]) -> Option<Base> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// What is stored under this key; `None` if there is nothing.
    pub(crate) fn learn(
        &self,
        key: &[u8],
        found: Option<&KeyValue>,
    ) -> Result<Option<Base>, Fault> {
        const FOREIGN: &str = "the base of the fencing tokens is not one of distlock: delete the key `fence` under the prefix";
        let base = match found {
            None => None,
            Some(kv) => Some(Base::read(&kv.value).ok_or_else(|| Fault::refused(FOREIGN))?),
        };
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        match &base {
            Some(base) => drop(bases.insert(key.to_vec(), base.clone())),
            None => drop(bases.remove(key)),
        }
        Ok(base)
    }

    /// The base that comes behind this one.
    pub(crate) fn higher(&self, than: Option<&Base>, header: ResponseHeader) -> Base {
        let seen = self.seen.load(Ordering::Acquire);
        let least = than.map_or(0, |base| base.micros).max(seen) + 1;
        Base::new(now().max(least), header)
    }

    /// To be read before something is sent: see [`is_behind`](Self::is_behind).
    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Whether an answer comes from data that is older than what was seen when it was asked for.
    pub(crate) fn is_behind(&self, header: ResponseHeader, seen: i64) -> bool {
        if header.revision < seen {
            // From here on it counts from there, with a base above all that was seen.
            self.revision.store(header.revision, Ordering::Release);
            return true;
        }
        self.revision.fetch_max(header.revision, Ordering::AcqRel);
        false
    }

    /// A value to be handed out.
    pub(crate) fn draw(&self, base: &Base, header: ResponseHeader) -> u64 {
        let value = base.at(header);
        self.seen.fetch_max(value, Ordering::AcqRel);
        value
    }
}

/// The time of day, in µs.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(now.as_micros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(revision: i64, term: u64) -> ResponseHeader {
        ResponseHeader { cluster_id: 0xcdf8, revision, raft_term: term }
    }

    fn stored(base: &Base) -> KeyValue {
        KeyValue { value: base.text.clone(), ..KeyValue::default() }
    }

    #[test]
    fn values_grow_over_lost_data_and_elections() {
        let fence = Fence::default();
        let first = fence.higher(None, header(1, 2));
        let learnt = fence.learn(b"fence", Some(&stored(&first))).expect("ours").expect("there");
        assert_eq!((&learnt, fence.base(b"fence")), (&first, Some(first.clone())));
        let before = fence.draw(&first, header(1_000_000_000, 2));
        assert!(first.is_of(header(9, 2)) && !first.is_of(header(9, 3)));
        // All is lost, within the same microsecond as it were.
        let other = fence.higher(Some(&first), header(1, 2));
        assert!(fence.draw(&other, header(2, 2)) > before);
        assert_eq!(fence.learn(b"fence", None), Ok(None));
        assert_eq!(fence.base(b"fence"), None);
    }

    #[test]
    fn what_is_not_ours_is_not_added_to() {
        for text in ["", "x", "1", "1 2", "99999999999999999 1 1", "-1 1 1"] {
            let kv = KeyValue { value: text.into(), ..KeyValue::default() };
            assert!(Fence::default().learn(b"fence", Some(&kv)).is_err(), "{text}");
        }
    }

    #[test]
    fn older_data_is_noticed_once() {
        let fence = Fence::default();
        assert!(!fence.is_behind(header(50, 1), fence.revision()));
        let seen = fence.revision();
        assert!(fence.is_behind(header(40, 1), seen));
        assert!(!fence.is_behind(header(41, 1), fence.revision()));
    }
}
