//! Polling by hand: what has been polled once stands in line, and does nothing more until it is
//! polled again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Polls `future` once, with the waker of the task this is called in; panics if it is ready.
pub async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "it does not wait");
        Poll::Ready(())
    })
    .await;
}

/// `future`, which was [polled once](poll_once).
pub async fn in_line<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    poll_once(&mut future).await;
    future
}
