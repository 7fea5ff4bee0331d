//! Panics of foreign code: wakers, loggers, observers, and runtimes that lack a driver.
//!
//! # Wakers and logs
//!
//! A waker may belong to any executor, and a log is the user's. A panic there must not unwind through the engine, nor
//! through a caller that only frees a lock for another task. [`shield`] and [`shielded`] catch it.
//!
//! Wakers are woken on the thread where an answer arrives, which is often the engine's thread. An executor's waker must
//! not block. One more thread between an answer and the task that waits for it would slow down every lock by the time in
//! which two threads wake each other. A state is changed completely before wakers are woken or dropped. That happens under no
//! mutex of ours except the one of a connection's driver, and no task waits for that mutex.
//!
//! # Runtimes
//!
//! A runtime without its I/O or time driver panics when a socket or a timer is made on it, and no function tells in
//! advance. [`IncapableRuntimes`] makes the attempt once for each runtime.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs code that may call foreign code. Returns `None` if it panicked; the panic hook has reported that.
pub fn shield<T>(act: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(act)).ok()
}

/// Runs a future that may call foreign code. Returns `None` if it panicked; it is not polled again.
pub async fn shielded<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match shield(|| work.as_mut().poll(cx)) {
        Some(polled) => polled.map(Some),
        None => std::task::Poll::Ready(None),
    })
    .await
}

/// The runtimes, by their ids, on which an action has panicked.
pub struct IncapableRuntimes<Id> {
    /// Whether there are any. It spares the mutex in the common case.
    any: AtomicBool,
    known: Mutex<Vec<Id>>,
}

impl<Id: Copy + PartialEq> IncapableRuntimes<Id> {
    /// Returns an empty set.
    #[expect(clippy::new_without_default, reason = "statics need a constant")]
    pub const fn new() -> Self {
        Self { any: AtomicBool::new(false), known: Mutex::new(Vec::new()) }
    }

    /// Runs `act` on the current runtime, whose id is `here`, and returns its value. Returns `None` if it panics, or has
    /// panicked on this runtime before. Call this only where panics unwind.
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
