//! A memory of locks that several processes wanted a moment ago.
//!
//! In some stores an attempt costs as much as a place in the queue. There, a call that would wait for such a lock skips its
//! attempt, which would most likely fail, and takes the place at once.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::operation::{Attempt, Entered};
use crate::clock::{Clock, Moment};
use crate::name::LockName;

/// How long a lock counts as contended.
const LASTS: Duration = Duration::from_millis(500);
/// The number of entries. Several names share an entry. A lock that wrongly counts as contended costs a detour over the
/// engine's thread.
const PARTS: usize = 256;

/// For each group of names, when a lock of the group was last contended.
pub struct Contention([AtomicU64; PARTS]);

impl Contention {
    /// Returns a memory without contended locks.
    pub fn none() -> Self {
        Self(from_fn(|_| AtomicU64::new(0)))
    }

    /// Returns whether to skip an attempt. The call then enters the queue, and is granted the lock there if it is free.
    pub fn spares_a_try(&self, attempt: &Attempt) -> bool {
        !attempt.look && self.is_likely(&attempt.owner.lock, Clock::Boottime.now())
    }

    /// Notes the answer to an entry into the queue.
    pub fn entered(&self, lock: &LockName, entered: &Entered) {
        let is_contended = match entered {
            Entered::Granted { contended, .. } => *contended,
            Entered::Queued { rank, .. } => *rank > 0,
        };
        if is_contended {
            self.seen(lock, Clock::Boottime.now());
        }
    }

    /// Notes that another process wants the lock as well.
    pub fn seen(&self, lock: &LockName, now: Moment) {
        self.0[lock.stored().part(PARTS)].fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    fn is_likely(&self, lock: &LockName, now: Moment) -> bool {
        let seen = self.0[lock.stored().part(PARTS)].load(Ordering::Relaxed);
        seen != 0 && now.since(Moment::from_nanos(seen)) < LASTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_contended_for_a_while_after_it_was_seen_to_be() {
        let name = |stored| LockName::of_stored("shop:", stored).expect("a name");
        let (lock, now) = (name("shop:lock:{a}"), Moment::from_nanos(1));
        let contention = Contention::none();
        assert!(!contention.is_likely(&lock, now));
        contention.seen(&lock, now);
        assert!(contention.is_likely(&lock, now.after(LASTS / 2)));
        assert!(!contention.is_likely(&lock, now.after(LASTS)));
    }
}
