//! Whether a caller's runtime has timers, or I/O. Tokio only says so by a panic, so each runtime is probed
//! once, and the panic is caught. A panic hook runs all the same, so no runtime is probed under a mutex.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};

/// The runtimes that were found to lack something.
pub(crate) struct Unable {
    /// There are some.
    any: AtomicBool,
    known: Mutex<Vec<Id>>,
}

impl Unable {
    pub(crate) const fn new() -> Self {
        Self { any: AtomicBool::new(false), known: Mutex::new(Vec::new()) }
    }

    /// What `act` makes on the runtime this is called on; `None` if that one is not able to. Without
    /// unwinding it is not tried.
    pub(crate) fn attempt<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let here = Handle::try_current().ok()?.id();
        let found = || self.any.load(Ordering::Acquire) && self.known().contains(&here);
        if cfg!(not(panic = "unwind")) || found() {
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
