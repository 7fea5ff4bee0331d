//! Leases: what lets keys go whose process is gone.
//!
//! Making one costs etcd a write, so a lease whose key was deleted is used again for the next key with the same
//! time to live. One whose key may still be written by a command without an answer is not: it is revoked, and
//! then that command can do nothing any more.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many of one time to live are kept for later; others end by themselves.
const KEPT: usize = 256;
/// One that is about to end is not used again.
const LEFT: Duration = Duration::from_secs(1);
/// etcd takes no longer ones.
pub(crate) const LONGEST: u64 = 9_000_000_000;

/// A lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    /// Its time to live, in seconds.
    pub(crate) seconds: u64,
    /// The connection on which it was granted.
    pub(crate) connection: u64,
    /// When it was last begun or kept alive: read before that was sent.
    pub(crate) alive: Instant,
}

impl Lease {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// In whole seconds, as etcd has it, not less.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    seconds.clamp(1, LONGEST)
}

/// The leases that no key has at present, and names for new ones.
#[derive(Debug)]
pub(crate) struct Leases {
    idle: Mutex<HashMap<u64, Vec<Lease>>>,
    next: AtomicU64,
}

impl Leases {
    pub(crate) fn new() -> Self {
        // Random, and then counted up: two processes do not come near each other.
        let next = AtomicU64::new(RandomState::new().hash_one(std::process::id()));
        Self { idle: Mutex::default(), next }
    }

    /// A name for a new one.
    pub(crate) fn name(&self) -> i64 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        // Not negative, and not 0.
        i64::try_from(next & (u64::MAX >> 1)).unwrap_or(1).max(1)
    }

    /// One that is there, granted on this connection, and whether it was the last one. It has to be kept alive
    /// before it is relied on.
    pub(crate) fn take(&self, seconds: u64, connection: u64) -> Option<(Lease, bool)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = idle.get_mut(&seconds)?;
        let usable = |lease: &Lease| {
            lease.connection == connection && lease.alive.elapsed() + LEFT < lease.ttl()
        };
        let lease = leases.pop().filter(usable);
        // The others are older.
        if lease.is_none() || leases.is_empty() {
            idle.remove(&seconds);
        }
        Some((lease?, !idle.contains_key(&seconds)))
    }

    /// No key has it any more, and none can get it.
    pub(crate) fn give_back(&self, lease: Lease) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = idle.entry(lease.seconds).or_default();
        if leases.len() < KEPT {
            leases.push(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_and_not_less() {
        for (millis, whole) in [(10, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(millis)), whole);
        }
        assert_eq!(seconds(Duration::MAX), LONGEST);
    }

    #[test]
    fn a_lease_is_used_again_on_its_own_connection_only() {
        let leases = Leases::new();
        let (id, alive) = (leases.name(), Instant::now());
        let lease = Lease { id, seconds: 5, connection: 1, alive };
        leases.give_back(lease);
        assert_eq!(leases.take(6, 1), None);
        leases.give_back(lease);
        assert_eq!(leases.take(5, 1), Some((lease, false)));
        assert_eq!(leases.take(5, 1), Some((lease, true)));
        assert_eq!(leases.take(5, 1), None);
        leases.give_back(lease);
        assert_eq!(leases.take(5, 2), None);
        // It is about to end.
        leases.give_back(Lease { seconds: 1, ..lease });
        assert_eq!(leases.take(1, 1), None);
        assert!(leases.name() > 0 && leases.name() != id);
    }
}
