//! A limit on the time that a request's body takes under a lock.
//!
//! The client decides when the body of its request arrives, and the lock is renewed for as long as the handler waits
//! for it. Without a limit, one idle connection would lock out all others. The wrapper around the body notes when the
//! handler begins to wait for it and when it has arrived. The code that polls the handler drops the handler if that
//! takes too long.
//!
//! The handler is dropped as it is when the lease is lost, and gets no error to deal with, so that it cannot continue
//! and do half of its work. Only a task that the handler has spawned to read the body gets an error.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};

use crate::engine::alarm::Alarm;
use crate::manager::LockManager;

/// The state of one body, shared by its wrapper and the code that polls the handler.
#[derive(Debug)]
pub(crate) struct BodyArrival {
    clock: Clock,
    timeout: Duration,
    state: Mutex<ArrivalState>,
}

#[derive(Debug)]
struct ArrivalState {
    phase: BodyPhase,
    /// How long the handler has waited until the last piece arrived. Only waiting counts. A handler that does not read
    /// is not hurried, and the time for its work does not count against the client, which cannot send a piece that
    /// nobody reads.
    waited: Duration,
    /// Wakes the code that polls the handler; `None` during a poll.
    handler: Option<Waker>,
    /// Wakes the reader of the body.
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum BodyPhase {
    /// No reader waits: none has begun to, or a piece has arrived and nobody has asked for the next.
    Unasked,
    /// A reader waits for the next piece.
    Awaited { since: Moment },
    /// The body has arrived, has failed, or was dropped.
    Over,
    /// The handler has waited for too long.
    Late,
}

/// The error of a late body that is read in another task than its handler's.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not arrive in time; its lock is free again")]
pub(crate) struct TooLate;

impl BodyArrival {
    pub(crate) fn new(manager: &LockManager, timeout: Duration) -> Arc<Self> {
        let phase = BodyPhase::Unasked;
        let state = ArrivalState { phase, waited: Duration::ZERO, handler: None, reader: None };
        let clock = manager.locks().table.clock();
        Arc::new(Self { clock, timeout, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, ArrivalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this reader waits for the body. Fails if it is too late for that.
    pub(crate) fn awaited(&self, reader: &Waker) -> Result<(), TooLate> {
        // No waker is woken, cloned or dropped under the mutex: a waker runs code of the user.
        let mut reader = Some(reader.clone());
        let handler = {
            let mut state = self.state();
            match state.phase {
                BodyPhase::Late => return Err(TooLate),
                BodyPhase::Unasked => state.phase = BodyPhase::Awaited { since: self.clock.now() },
                BodyPhase::Awaited { .. } | BodyPhase::Over => {}
            }
            std::mem::swap(&mut state.reader, &mut reader);
            state.handler.take()
        };
        if let Some(handler) = handler {
            handler.wake();
        }
        Ok(())
    }

    /// Returns whether the body was too late.
    pub(crate) fn is_late(&self) -> bool {
        self.state().phase == BodyPhase::Late
    }

    /// Notes that a piece of the body has arrived, and more will follow.
    pub(crate) fn piece(&self) {
        let mut state = self.state();
        if let BodyPhase::Awaited { since } = state.phase {
            state.waited += self.clock.now().since(since);
            state.phase = BodyPhase::Unasked;
        }
    }

    /// Notes that all of the body has arrived, or that nobody reads it any more.
    pub(crate) fn over(&self) {
        let mut state = self.state();
        if state.phase != BodyPhase::Late {
            state.phase = BodyPhase::Over;
        }
    }

    /// Returns when the present wait becomes too long; `None` without a wait.
    fn deadline(&self) -> Option<Moment> {
        self.state().deadline(self.timeout)
    }

    /// Handles the alarm. Returns true if the body is too late.
    fn expire(&self) -> bool {
        let reader = {
            let mut state = self.state();
            // The alarm may have been set for an earlier piece.
            if state.deadline(self.timeout).is_none_or(|at| self.clock.now() < at) {
                return false;
            }
            state.phase = BodyPhase::Late;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    fn set_handler(&self, handler: Option<Waker>) {
        let mut handler = handler;
        std::mem::swap(&mut self.state().handler, &mut handler);
    }
}

impl ArrivalState {
    fn deadline(&self, timeout: Duration) -> Option<Moment> {
        let BodyPhase::Awaited { since } = self.phase else { return None };
        Some(since.after(timeout.saturating_sub(self.waited)))
    }
}

/// Polls the handler. Returns `None` if its body is too late; then the caller drops the handler.
pub(crate) async fn in_time<F: Future>(
    arrival: &BodyArrival,
    manager: &LockManager,
    mut handler: Pin<&mut F>,
) -> Option<F::Output> {
    let alarms = manager.locks().engine.alarms();
    let mut alarm: Option<Pin<Box<Alarm<'_>>>> = None;
    poll_fn(|cx| {
        // During the poll no wake-up is needed: the deadline is looked at afterwards.
        arrival.set_handler(None);
        // Before the alarm: after a pause of the machine, the rest of the body and the end of its time may both be
        // due.
        if let Poll::Ready(out) = handler.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        arrival.set_handler(Some(cx.waker().clone()));
        loop {
            // Looked at after the waker is set: a wait that begins after this look wakes us. Deadlines only move to
            // later times, so an alarm for an earlier one is kept, and set again when it goes off. That happens less
            // often than a piece arrives.
            if alarm.is_none()
                && let Some(at) = arrival.deadline()
            {
                alarm = Some(Box::pin(Alarm::at(alarms, arrival.clock, at)));
            }
            let Some(due) = &mut alarm else { return Poll::Pending };
            ready!(due.as_mut().poll(cx));
            alarm = None;
            if arrival.expire() {
                return Poll::Ready(None);
            }
        }
    })
    .await
}
