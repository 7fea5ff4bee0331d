//! Running a body under a lease: it is polled only while the lease is ours.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use super::guard::LockGuard;
use super::nested;
use crate::error::LockError;
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
        // A body that has begun goes on. It does not begin without the lock.
        if !guard.is_held() {
            return Err(guard.not_begun_error());
        }
        return Ok(poll_fn(|cx| nested::polling(guard, || body.as_mut().poll(cx))).await);
    }
    let mut lost = pin!(guard.lost_noticed());
    let mut begun = false;
    let out = poll_fn(|cx| {
        if lost.as_mut().poll(cx).is_ready() || !guard.is_held() {
            return Poll::Ready(None);
        }
        begun = true;
        nested::polling(guard, || body.as_mut().poll(cx)).map(Some)
    })
    .await;
    match out {
        Some(out) if guard.is_held() => Ok(out),
        None if !begun => Err(guard.not_begun_error()),
        out => Err(guard.lost_error(out.is_none())),
    }
}
