//! Polling by hand: what has been polled once stands in line, and does nothing more until it is
//! polled again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

/// Polls `future` once, with the waker of the task this is called in; panics if it is ready.
pub async fn poll_once<F: Future>(future: &mut Pin<Box<F>>) {
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "it does not wait");
        Poll::Ready(())
    })
    .await;
}

/// Polls `future` once, with the waker of the task this is called in. What it waits for may come within
/// this very poll, on another thread: `Ready` then.
pub async fn poll_now<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// `future`, which was [polled once](poll_once).
pub async fn in_line<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    poll_once(&mut future).await;
    future
}

/// Polls `future` at most `polls` times, and drops it; its output if it was done by then.
pub async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Waits for a future with nothing but the standard library.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
