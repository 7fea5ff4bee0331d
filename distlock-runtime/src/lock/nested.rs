//! Calls inside calls: which locks the body that is being polled right now runs under.
//!
//! The list is scoped to polls: a body's locks are on it while the body is polled and off it when
//! the poll returns. So branches of a `join!`, which take turns, and spawned tasks, which are polled
//! elsewhere, are not nested in each other; and nothing has to be cleaned up when a body is dropped.

use std::cell::RefCell;
use std::sync::Arc;

use super::guard::LockGuard;
use super::lease::Lease;
use crate::observe::LeaseEvent;

thread_local! {
    static HELD: RefCell<Vec<Arc<Lease>>> = const { RefCell::new(Vec::new()) };
}

/// Runs one poll of a body under the leases of its guard.
pub(crate) fn polling<T>(guard: &LockGuard, poll: impl FnOnce() -> T) -> T {
    /// Also when the body panics.
    struct Restore(usize);
    impl Drop for Restore {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| held.truncate(self.0));
        }
    }
    let restore = Restore(HELD.with_borrow_mut(|held| {
        let outer = held.len();
        held.extend_from_slice(guard.leases());
        outer
    }));
    guard.show(LeaseEvent::Polled);
    let out = poll();
    drop(restore);
    out
}

/// A body is being polled here.
pub(crate) fn is_nested() -> bool {
    HELD.with_borrow(|held| !held.is_empty())
}

/// The lease under which the body that is being polled already has a lock.
pub(crate) fn holder(is_it: impl Fn(&Lease) -> bool) -> Option<Arc<Lease>> {
    HELD.with_borrow(|held| held.iter().rev().find(|lease| is_it(lease)).cloned())
}
