//! Which locks several processes have wanted at once, a moment ago: where a try costs as much as a place in the queue,
//! a call that would wait takes the place at once.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Attempt, Entered};
use crate::clock::{Clock, Moment};
use crate::name::LockName;

/// For how long a lock is taken for contended.
const LASTS: Duration = Duration::from_millis(500);
/// Names share these. One that is taken for contended and is not costs a way over the engine's thread.
const PARTS: usize = 256;

/// When each was last seen to be contended. A try of such a lock would come to nothing.
pub struct Contention([AtomicU64; PARTS]);

impl Contention {
    pub fn none() -> Self {
        Self(from_fn(|_| AtomicU64::new(0)))
    }

    /// Whether a call goes without its try: it enters the queue next, which takes a free lock as well.
    pub fn spares_a_try(&self, attempt: &Attempt) -> bool {
        !attempt.look && self.is_likely(&attempt.owner.lock, Clock::Boottime.now())
    }

    /// Notes what a place in the queue has come to.
    pub fn entered(&self, lock: &LockName, entered: &Entered) {
        let is_contended = match entered {
            Entered::Granted { contended, .. } => *contended,
            Entered::Queued { rank, .. } => *rank > 0,
        };
        if is_contended {
            self.seen(lock, Clock::Boottime.now());
        }
    }

    /// Another process wants it as well.
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
