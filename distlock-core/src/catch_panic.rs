//! Code that is not ours: wakers, logs, and whatever they call.
//!
//! A waker may belong to any executor, and a log is the user's. What panics there must not unwind through
//! the engine, or through a caller that only frees a lock another task waits for.
//!
//! Wakers are woken where the news arrives, which for an answer of the store is often the engine's
//! thread: an executor's waker must not block, and one more thread between an answer and the task that
//! waits for it would cost every lock what two threads need to wake each other. They are woken and dropped
//! after all of a state has changed, and under no mutex of ours but that of a connection's driver,
//! which no task waits for.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

/// Runs what is not ours, or depends on it; `None` if it panicked, which the panic hook has reported.
pub fn shield<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// The same for a future: it is not polled again after a panic.
pub async fn shielded<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match shield(|| work.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => std::task::Poll::Ready(None),
    })
    .await
}
