//! Fencing tokens: the sum of a base and the revision.
//!
//! etcd counts all writes in its revision, so each holder of a lock sees a higher revision than the holder before.
//! But revisions start again when etcd lost its data, and go back when a backup was restored. Therefore a base is
//! added. It is stored beside the locks, and raised to the time of day if there was an election since, if the cluster
//! is another one, or if no base is stored. Every transaction that grants a lock checks that the stored base is the
//! one this process knows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fault::EtcdFault;
use crate::proto::{KeyValue, ResponseHeader};

/// A base this far in the future (100 years, in µs) was not set by distlock.
const TOO_FAR_AHEAD: u64 = 100 * 366 * 24 * 3600 * 1_000_000;

/// A stored base, with the cluster and the election at which it was raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FenceBase {
    /// The value as it is stored.
    pub(crate) text: Vec<u8>,
    micros: u64,
    cluster: u64,
    term: u64,
}

impl FenceBase {
    fn new(micros: u64, header: ResponseHeader) -> Self {
        let ResponseHeader { cluster_id: cluster, raft_term: term, .. } = header;
        Self { text: format!("{micros} {cluster:x} {term}").into_bytes(), micros, cluster, term }
    }

    fn read(text: &[u8]) -> Option<Self> {
        let words = std::str::from_utf8(text).ok()?;
        let mut words = words.split(' ');
        let micros = words.next()?.parse().ok().filter(|micros| *micros < now() + TOO_FAR_AHEAD)?;
        let cluster = u64::from_str_radix(words.next()?, 16).ok()?;
        let term = words.next()?.parse().ok()?;
        Some(Self { text: text.to_vec(), micros, cluster, term })
    }

    /// Returns whether it was raised after the last election, in this cluster.
    pub(crate) fn is_current(&self, header: ResponseHeader) -> bool {
        (self.cluster, self.term) == (header.cluster_id, header.raft_term)
    }

    /// Returns the fencing token for the revision of an answer.
    pub(crate) fn token_at(&self, header: ResponseHeader) -> u64 {
        self.micros.saturating_add(header.revision.unsigned_abs())
    }
}

/// The bases that this process knows, by the keys that they are stored under.
#[derive(Debug, Default)]
pub(crate) struct FenceBases {
    bases: Mutex<HashMap<Vec<u8>, FenceBase>>,
    /// The highest token that was handed out.
    seen: AtomicU64,
    /// The highest revision of any answer, until a lower one shows that etcd lost data.
    revision: AtomicI64,
}

impl FenceBases {
    /// Returns the base that is known for a key.
    pub(crate) fn known(&self, key: &[u8]) -> Option<FenceBase> {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Remembers what was read from a key, and returns it: `None` if nothing is stored there.
    pub(crate) fn learn(
        &self,
        key: &[u8],
        found: Option<&KeyValue>,
    ) -> Result<Option<FenceBase>, EtcdFault> {
        const FOREIGN: &str = "the base of the fencing tokens is not one of distlock: delete the key `fence` under the prefix";
        let base = match found {
            None => None,
            Some(kv) => {
                Some(FenceBase::read(&kv.value).ok_or_else(|| EtcdFault::refused(FOREIGN))?)
            }
        };
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        match &base {
            Some(base) => drop(bases.insert(key.to_vec(), base.clone())),
            None => drop(bases.remove(key)),
        }
        Ok(base)
    }

    /// Returns a base that is higher than `than` and than every token that was handed out.
    pub(crate) fn higher(&self, than: Option<&FenceBase>, header: ResponseHeader) -> FenceBase {
        let seen = self.seen.load(Ordering::Acquire);
        let least = than.map_or(0, |base| base.micros).max(seen) + 1;
        FenceBase::new(now().max(least), header)
    }

    /// Returns the highest revision so far. Read it before sending, and pass it to
    /// [`has_gone_back`](Self::has_gone_back).
    pub(crate) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns whether an answer has an older revision than was known before its request was sent. Then etcd lost data.
    pub(crate) fn has_gone_back(&self, header: ResponseHeader, seen: i64) -> bool {
        if header.revision < seen {
            // From now on count from here: the next base is above all tokens so far.
            self.revision.store(header.revision, Ordering::Release);
            return true;
        }
        self.revision.fetch_max(header.revision, Ordering::AcqRel);
        false
    }

    /// Returns the fencing token for a grant, and remembers it.
    pub(crate) fn draw(&self, base: &FenceBase, header: ResponseHeader) -> u64 {
        let value = base.token_at(header);
        self.seen.fetch_max(value, Ordering::AcqRel);
        value
    }
}

/// Returns the time of day in µs.
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

    fn stored(base: &FenceBase) -> KeyValue {
        KeyValue { value: base.text.clone(), ..KeyValue::default() }
    }

    #[test]
    fn values_grow_over_lost_data_and_elections() {
        let fence = FenceBases::default();
        let first = fence.higher(None, header(1, 2));
        let learnt = fence.learn(b"fence", Some(&stored(&first))).expect("ours").expect("there");
        assert_eq!((&learnt, fence.known(b"fence")), (&first, Some(first.clone())));
        let before = fence.draw(&first, header(1_000_000_000, 2));
        assert!(first.is_current(header(9, 2)) && !first.is_current(header(9, 3)));
        // etcd loses all data, within the same microsecond.
        let other = fence.higher(Some(&first), header(1, 2));
        assert!(fence.draw(&other, header(2, 2)) > before);
        assert_eq!(fence.learn(b"fence", None), Ok(None));
        assert_eq!(fence.known(b"fence"), None);
    }

    #[test]
    fn a_foreign_base_is_refused() {
        for text in ["", "x", "1", "1 2", "99999999999999999 1 1", "-1 1 1"] {
            let kv = KeyValue { value: text.into(), ..KeyValue::default() };
            assert!(FenceBases::default().learn(b"fence", Some(&kv)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_lower_revision_is_noticed_once() {
        let fence = FenceBases::default();
        assert!(!fence.has_gone_back(header(50, 1), fence.revision()));
        let seen = fence.revision();
        assert!(fence.has_gone_back(header(40, 1), seen));
        assert!(!fence.has_gone_back(header(41, 1), fence.revision()));
    }
}
