//! Running a body under a lease: it is polled only while the lease is ours.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use super::lease::{Lease, Loss};
use crate::error::LockError;

/// Polls `body` before the deadline and never after it.
///
/// The lease is looked at before every poll, because whatever happened in between (a stopped
/// process, a blocked runtime) may have taken longer than it lasted, and once more after the body
/// is done: a last poll that ran past the deadline is not known to have been alone.
pub(crate) async fn hold<F: Future>(
    lease: &Lease,
    mut body: Pin<&mut F>,
) -> Result<F::Output, LockError> {
    lease.begin_body();
    let mut lost = pin!(lease.lost());
    let out = poll_fn(|cx| {
        if lost.as_mut().poll(cx).is_ready() || !lease.is_held() {
            return Poll::Ready(None);
        }
        body.as_mut().poll(cx).map(Some)
    })
    .await;
    match out {
        Some(out) if lease.is_held() => Ok(out),
        _ => {
            lease.lose(Loss::Expired);
            Err(lease.lost_error())
        }
    }
}
