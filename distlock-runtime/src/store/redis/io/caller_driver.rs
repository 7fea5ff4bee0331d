//! A task that drives a connection on a caller's runtime, while callers there use it often.
//!
//! An answer then wakes a task of the thread that read it, and what tasks send next is written by
//! that thread as well. With the driver on the engine's thread every few locks cost two threads
//! that wake each other, which takes longer than the lock where processors are idle.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::driver::Driver;
use crate::clock::Clock;
use crate::runtime::watches_sockets;

/// Has the connection driven on the caller's runtime, unless it is or soon will be.
pub(super) fn spawn_here(driver: &Arc<Driver>) {
    let mut runtime = None;
    let current = || {
        runtime = Handle::try_current().ok();
        runtime.as_ref().map(Handle::id)
    };
    let number = driver.placement().reserve(current);
    if let (Some(number), Some(runtime)) = (number, runtime) {
        let driver = Arc::downgrade(driver);
        // Under no mutex: a runtime that has shut down drops the task at once.
        runtime.spawn(CallerDriver { driver, number, entered: false, yielded: false });
    }
}

/// The task.
struct CallerDriver {
    driver: Weak<Driver>,
    number: u64,
    /// It has the connection.
    entered: bool,
    /// It has let other tasks run first.
    yielded: bool,
}

impl Future for CallerDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = self.driver.upgrade() else { return Poll::Ready(()) };
        let placement = driver.placement();
        if !self.entered {
            if !watches_sockets() {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
            self.entered = true;
            let moved = placement.enter(self.number, cx.waker());
            // Only once it has entered, or its runtime would be asked for another task.
            placement.cancel_reservation(self.number);
            let Some(moved) = moved else { return Poll::Ready(()) };
            driver.bell.ring_engine();
            if !moved {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
        }
        if !placement.begin_poll(self.number, cx.waker()) {
            return Poll::Ready(());
        }
        // The tasks that are ready now have commands to write, too.
        if !self.yielded && placement.take_deferred() {
            self.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = false;
        driver.poll_as_caller()
    }
}

impl Drop for CallerDriver {
    fn drop(&mut self) {
        let Some(driver) = self.driver.upgrade() else { return };
        if !driver.home().is_here() {
            return;
        }
        let placement = driver.placement();
        if !self.entered {
            placement.cancel_reservation(self.number);
        } else if placement.leave(self.number) {
            driver.bell.ring_engine();
        }
    }
}
