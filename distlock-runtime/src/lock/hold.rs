//! Running a body under its leases: it is polled only while they are ours.
//!
//! # Calls inside calls
//!
//! While a body is polled, this thread has a list of the leases that it runs under: a call inside the body finds
//! there which locks an enclosing call holds. The leases are on the list while the body is polled, and off it when
//! the poll returns. So branches of a `join!`, which take turns, and spawned tasks, which are polled elsewhere,
//! are not nested in each other; and nothing has to be cleaned up when a body is dropped.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use super::guard::LockGuard;
use super::lease::Lease;
use crate::error::LockError;
use crate::observe::LeaseEvent;
use crate::options::OnLost;

/// Polls `body` before the deadline and, with [`OnLost::Cancel`], never after it.
///
/// The lease is looked at before every poll, because whatever happened in between (a stopped
/// process, a blocked runtime) may have taken longer than it lasted, and once more after the body
/// is done: a last poll that ran past the deadline is not known to have been alone.
pub(crate) async fn hold<F: Future>(
    guard: &LockGuard,
    mut body: Pin<&mut F>,
) -> Result<F::Output, LockError> {
    guard.leases().iter().for_each(|lease| lease.begin_body());
    if guard.on_lost() == OnLost::Continue {
        // A body that has begun continues. It does not begin without the lock.
        if !guard.is_held() {
            return Err(guard.not_begun_error());
        }
        return Ok(poll_fn(|cx| polling(guard, || body.as_mut().poll(cx))).await);
    }
    let mut lost = pin!(guard.lost_noticed());
    let mut begun = false;
    let out = poll_fn(|cx| {
        if lost.as_mut().poll(cx).is_ready() || !guard.is_held() {
            return Poll::Ready(None);
        }
        begun = true;
        polling(guard, || body.as_mut().poll(cx)).map(Some)
    })
    .await;
    match out {
        Some(out) if guard.is_held() => Ok(out),
        None if !begun => Err(guard.not_begun_error()),
        out => Err(guard.lost_error(out.is_none())),
    }
}

thread_local! {
    static HELD: RefCell<Vec<Arc<Lease>>> = const { RefCell::new(Vec::new()) };
}

/// Runs one poll of a body under the leases of its guard.
pub(crate) fn polling<T>(guard: &LockGuard, poll: impl FnOnce() -> T) -> T {
    /// Shortens the list again, also when the body panics.
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

/// Returns whether a body is being polled here.
pub(crate) fn is_nested() -> bool {
    HELD.with_borrow(|held| !held.is_empty())
}

/// Returns the lease under which the body that is being polled already has a lock.
pub(crate) fn holder(is_it: impl Fn(&Lease) -> bool) -> Option<Arc<Lease>> {
    HELD.with_borrow(|held| held.iter().rev().find(|lease| is_it(lease)).cloned())
}
