//! Leases in etcd. A key is deleted when its lease ends, so a process that died leaves no keys.
//!
//! A new lease costs etcd a write. Once a lease's key is deleted, the lease is used again for the next key with the
//! same time to live. That would be wrong while a command without an answer may still write its key: such a lease is
//! revoked, and from then on the command has no effect.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most idle leases of one time to live. Further ones end by themselves.
const MOST_IDLE: usize = 256;
/// A lease with less than this left is not used again.
const LEAST_LEFT: Duration = Duration::from_secs(1);
/// The longest time to live that etcd accepts, in seconds.
pub(crate) const LONGEST_TTL: u64 = 9_000_000_000;

/// A lease that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EtcdLease {
    pub(crate) id: i64,
    /// The time to live in seconds.
    pub(crate) seconds: u64,
    /// The number of the connection that it was granted on.
    pub(crate) connection: u64,
    /// The time just before the last successful request to grant it or keep it alive was sent.
    pub(crate) alive: Instant,
}

impl EtcdLease {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Returns a time to live in whole seconds, rounded up, because etcd counts leases in seconds.
pub(crate) fn whole_seconds(ttl: Duration) -> u64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    seconds.clamp(1, LONGEST_TTL)
}

/// The idle leases of this process, and the IDs for new ones.
#[derive(Debug)]
pub(crate) struct LeasePool {
    idle: Mutex<HashMap<u64, Vec<EtcdLease>>>,
    next: AtomicU64,
}

impl LeasePool {
    pub(crate) fn new() -> Self {
        // IDs count up from a random number, so those of two processes do not collide.
        let next = AtomicU64::new(RandomState::new().hash_one(std::process::id()));
        Self { idle: Mutex::default(), next }
    }

    /// Returns an ID for a new lease.
    pub(crate) fn new_id(&self) -> i64 {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        // An ID is positive: etcd reads 0 as no ID.
        i64::try_from(next & (u64::MAX >> 1)).unwrap_or(1).max(1)
    }

    /// Takes an idle lease that was granted on this connection, and says whether it was the last one. The caller must
    /// keep it alive before relying on it.
    pub(crate) fn take(&self, seconds: u64, connection: u64) -> Option<(EtcdLease, bool)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = idle.get_mut(&seconds)?;
        let usable = |lease: &EtcdLease| {
            lease.connection == connection && lease.alive.elapsed() + LEAST_LEFT < lease.ttl()
        };
        let lease = leases.pop().filter(usable);
        // The most recent lease is the last one: if it is too old, so are the others.
        if lease.is_none() || leases.is_empty() {
            idle.remove(&seconds);
        }
        Some((lease?, !idle.contains_key(&seconds)))
    }

    /// Takes back a lease that no key has, and that no command under way can give to a key.
    pub(crate) fn give_back(&self, lease: EtcdLease) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = idle.entry(lease.seconds).or_default();
        if leases.len() < MOST_IDLE {
            leases.push(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_rounded_up() {
        for (millis, whole) in [(10, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), whole);
        }
        assert_eq!(whole_seconds(Duration::MAX), LONGEST_TTL);
    }

    #[test]
    fn a_lease_is_used_again_on_its_own_connection_only() {
        let leases = LeasePool::new();
        let (id, alive) = (leases.new_id(), Instant::now());
        let lease = EtcdLease { id, seconds: 5, connection: 1, alive };
        leases.give_back(lease);
        assert_eq!(leases.take(6, 1), None);
        leases.give_back(lease);
        assert_eq!(leases.take(5, 1), Some((lease, false)));
        assert_eq!(leases.take(5, 1), Some((lease, true)));
        assert_eq!(leases.take(5, 1), None);
        leases.give_back(lease);
        assert_eq!(leases.take(5, 2), None);
        // This lease is about to end.
        leases.give_back(EtcdLease { seconds: 1, ..lease });
        assert_eq!(leases.take(1, 1), None);
        assert!(leases.new_id() > 0 && leases.new_id() != id);
    }
}
