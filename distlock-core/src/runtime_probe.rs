//! Finds out whether a caller's runtime has timers, or I/O. A runtime only says so by a panic, so each one is probed once,
//! and the panic is caught. A panic hook runs all the same, so no runtime is probed under a mutex.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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
