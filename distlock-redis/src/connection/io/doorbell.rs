//! Wakes the side that drives a connection.
//!
//! Waking another thread costs as much as a loopback's round trip, so a thread that is about to poll
//! the driver itself holds its wake-ups back. None is lost: if the thread then cannot poll, or if the
//! bell rings again while it polls, it rings after all.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

use super::placement::Placement;

/// The waker of a connection's driver.
pub(super) struct Doorbell {
    /// The engine's task that runs the driver, one for as long as the connection lives.
    engine: OnceLock<Waker>,
    engine_thread: OnceLock<ThreadId>,
    /// Whether a task on a caller's runtime drives instead, if one may.
    placement: Option<Arc<Placement>>,
}

thread_local! {
    /// The bell this thread holds back, and whether it has rung.
    static HELD_BACK: Cell<Option<(usize, bool)>> = const { Cell::new(None) };
}

impl Doorbell {
    pub(super) fn new(placement: Option<Arc<Placement>>) -> Arc<Self> {
        let (engine, engine_thread) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { engine, engine_thread, placement })
    }

    fn number(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// The current task and thread are the engine's.
    pub(super) fn belongs_to(&self, waker: &Waker) {
        self.engine.get_or_init(|| waker.clone());
        self.engine_thread.get_or_init(|| thread::current().id());
    }

    pub(super) fn is_on_engine(&self) -> bool {
        self.engine_thread.get().is_none_or(|engine| *engine == thread::current().id())
    }

    pub(super) fn ring(&self) {
        if !self.placement.as_ref().is_some_and(|placement| placement.wake_caller()) {
            self.ring_engine();
        }
    }

    pub(super) fn ring_engine(&self) {
        if let Some(engine) = self.engine.get() {
            engine.wake_by_ref();
        }
    }

    /// A command was put where the next poll of the driver finds it; others will follow.
    pub(super) fn defer(&self) {
        if let Some(placement) = &self.placement {
            placement.defer();
        }
    }

    /// Runs `act` and says whether it would have rung.
    pub(super) fn hold_back<T>(self: &Arc<Self>, act: impl FnOnce() -> T) -> (T, bool) {
        /// Also when `act` panics, or every later ring on this thread would be lost.
        struct Restore(Option<(usize, bool)>);
        impl Drop for Restore {
            fn drop(&mut self) {
                HELD_BACK.set(self.0);
            }
        }
        let restore = Restore(HELD_BACK.replace(Some((self.number(), false))));
        let out = act();
        let rang = HELD_BACK.get().is_some_and(|(_, rang)| rang);
        drop(restore);
        (out, rang)
    }
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match HELD_BACK.get() {
            Some((held, _)) if held == self.number() => HELD_BACK.set(Some((held, true))),
            _ => self.ring(),
        }
    }
}
