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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::{Context, Waker};

    use super::*;

    fn poll<T>(work: impl Future<Output = T>) -> Poll<T> {
        pin!(work).poll(&mut Context::from_waker(Waker::noop()))
    }

    async fn resolves_if(ready: bool) {
        if !ready {
            pending::<()>().await;
        }
    }

    #[test]
    fn the_first_one_that_is_ready_wins() {
        assert_eq!(poll(until(ready(1), pending::<()>())), Poll::Ready(Some(1)));
        assert_eq!(poll(until(pending::<u32>(), ready(()))), Poll::Ready(None));
        assert_eq!(poll(until(pending::<u32>(), pending::<()>())), Poll::Pending);
        assert_eq!(poll(either(pending::<u32>(), ready('b'))), Poll::Ready(Err('b')));
        assert_eq!(poll(either(pending::<u32>(), pending::<u32>())), Poll::Pending);
        assert_eq!(poll(any([pending(), pending::<()>()].into_iter())), Poll::Pending);
        assert_eq!(poll(any([false, true].map(resolves_if).into_iter())), Poll::Ready(()));
    }

    #[test]
    fn of_two_that_are_ready_the_one_named_first_wins() {
        assert_eq!(poll(until(ready(1), ready(()))), Poll::Ready(Some(1)));
        assert_eq!(poll(either(ready(1), ready('b'))), Poll::Ready(Ok(1)));
    }
}
