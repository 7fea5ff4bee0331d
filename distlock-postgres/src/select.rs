//! Two futures at once.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs `work` until `end` resolves; `None` if that came first.
pub(crate) async fn race<T>(work: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| {
        // The connection first: it moves the bytes.
        let ended = end.as_mut().poll(cx).is_ready();
        match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if ended => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
