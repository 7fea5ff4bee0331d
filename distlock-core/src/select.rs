//! Several futures at once: the first one that is ready wins, and the others are dropped.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Runs `work` until `limit` resolves. Returns the output of `work`, or `None` if `limit` came first. `work` is polled
/// first, so it wins if both are ready.
pub async fn until<T>(work: impl Future<Output = T>, limit: impl Future) -> Option<T> {
    let mut work = pin!(work);
    let mut limit = pin!(limit);
    poll_fn(|cx| {
        if let Poll::Ready(out) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        limit.as_mut().poll(cx).map(|_| None)
    })
    .await
}

/// Runs all of `works` until one of them is done. Never resolves if there are none.
pub async fn any(works: impl Iterator<Item = impl Future>) {
    let mut works: Vec<_> = works.map(Box::pin).collect();
    poll_fn(|cx| {
        let any = works.iter_mut().any(|work| work.as_mut().poll(cx).is_ready());
        if any { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Runs both futures until one is done. Returns `Ok` with the output of `one`, or `Err` with the output of `other`. `one`
/// is polled first, so it wins if both are ready.
pub async fn either<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> Result<A, B> {
    let mut one = pin!(one);
    let mut other = pin!(other);
    poll_fn(|cx| {
        if let Poll::Ready(out) = one.as_mut().poll(cx) {
            return Poll::Ready(Ok(out));
        }
        other.as_mut().poll(cx).map(Err)
    })
    .await
}
