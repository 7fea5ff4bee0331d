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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The runtimes, by their ids, that were found to lack something.
pub struct Unable<Id> {
    /// There are some.
    any: AtomicBool,
    known: Mutex<Vec<Id>>,
}

impl<Id: Copy + PartialEq> Unable<Id> {
    pub const fn new() -> Self {
        Self { any: AtomicBool::new(false), known: Mutex::new(Vec::new()) }
    }

    /// Returns what `act` makes on the runtime `here`, which is the current one; `None` if that runtime cannot do it.
    /// To be called only where panics unwind.
    pub fn attempt<T>(&self, here: Id, act: impl FnOnce() -> T) -> Option<T> {
        if self.any.load(Ordering::Acquire) && self.known().contains(&here) {
            return None;
        }
        let made = catch_unwind(AssertUnwindSafe(act)).ok();
        if made.is_none() {
            self.known().push(here);
            self.any.store(true, Ordering::Release);
        }
        made
    }

    fn known(&self) -> MutexGuard<'_, Vec<Id>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
