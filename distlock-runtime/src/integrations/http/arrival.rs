//! A bound on the time that a request's body takes under a lock.
//!
//! The client decides when the body of its request comes, and the lock is renewed for as long as the
//! handler waits for it: without a bound, one idle connection would lock out all others. The
//! wrapper around the body says when a handler begins to wait for it and when it has come; what
//! polls the handler drops it when that takes too long.
//!
//! The handler is dropped, rather than given an error to deal with, as it is when the lease is lost:
//! so it cannot go on and do half of its work. Only a task of its own that reads the body gets an error.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarm;
use crate::manager::LockManager;

/// What the wrapper around a body and what polls its handler know of each other.
#[derive(Debug)]
pub(crate) struct Arrival {
    clock: Clock,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How long it was waited for until the last piece came. Only waiting counts: a handler that does
    /// not read is not hurried, and the time it takes for what it has read does not count against
    /// the client, which cannot send what is not read.
    waited: Duration,
    /// Of what polls the handler; `None` while it does.
    handler: Option<Waker>,
    /// Of what waits for the body.
    reader: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// No reader is known to wait for it: none has begun to, or a piece came and none has asked for
    /// the next.
    Unasked,
    Awaited {
        since: Moment,
    },
    /// It has come, failed, or was dropped.
    Over,
    Late,
}

/// The error of a body that is read in another task than its handler's.
#[derive(Debug, thiserror::Error)]
#[error("the request's body did not arrive in time; its lock is free again")]
pub(crate) struct TooLate;

impl Arrival {
    pub(crate) fn new(manager: &LockManager, timeout: Duration) -> Arc<Self> {
        let phase = Phase::Unasked;
        let state = State { phase, waited: Duration::ZERO, handler: None, reader: None };
        let clock = manager.locks().table.clock();
        Arc::new(Self { clock, timeout, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body has to be waited for, or it is too late for that.
    pub(crate) fn awaited(&self, reader: &Waker) -> Result<(), TooLate> {
        // No waker is woken, cloned or dropped under the mutex: they are not ours.
        let mut reader = Some(reader.clone());
        let handler = {
            let mut state = self.state();
            match state.phase {
                Phase::Late => return Err(TooLate),
                Phase::Unasked => state.phase = Phase::Awaited { since: self.clock.now() },
                Phase::Awaited { .. } | Phase::Over => {}
            }
            std::mem::swap(&mut state.reader, &mut reader);
            state.handler.take()
        };
        if let Some(handler) = handler {
            handler.wake();
        }
        Ok(())
    }

    pub(crate) fn is_late(&self) -> bool {
        self.state().phase == Phase::Late
    }

    /// A piece of the body has come, and more is to come.
    pub(crate) fn piece(&self) {
        let mut state = self.state();
        if let Phase::Awaited { since } = state.phase {
            state.waited += self.clock.now().since(since);
            state.phase = Phase::Unasked;
        }
    }

    /// All of the body has come, or it is not read any more.
    pub(crate) fn over(&self) {
        let mut state = self.state();
        if state.phase != Phase::Late {
            state.phase = Phase::Over;
        }
    }

    /// When the present wait will have been too long; `None` if there is none.
    fn deadline(&self) -> Option<Moment> {
        self.state().deadline(self.timeout)
    }

    /// The alarm went off; true if the body is too late.
    fn expire(&self) -> bool {
        let reader = {
            let mut state = self.state();
            // It may have been set for an earlier piece.
            if state.deadline(self.timeout).is_none_or(|at| self.clock.now() < at) {
                return false;
            }
            state.phase = Phase::Late;
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

impl State {
    fn deadline(&self, timeout: Duration) -> Option<Moment> {
        let Phase::Awaited { since } = self.phase else { return None };
        Some(since.after(timeout.saturating_sub(self.waited)))
    }
}

/// Polls the handler; `None` if it is to be dropped because its body is too late.
pub(crate) async fn in_time<F: Future>(
    arrival: &Arrival,
    manager: &LockManager,
    mut handler: Pin<&mut F>,
) -> Option<F::Output> {
    let alarms = manager.locks().engine.alarms();
    let mut alarm: Option<Pin<Box<Alarm<'_>>>> = None;
    poll_fn(|cx| {
        // While it is polled it need not be woken: what it does to the body is looked at below.
        arrival.set_handler(None);
        // Before the alarm: on a machine that stood still both may be due, the body's rest and the end
        // of its time.
        if let Poll::Ready(out) = handler.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        arrival.set_handler(Some(cx.waker().clone()));
        loop {
            // Looked at after the waker is set: a wait that begins after this look wakes us. A
            // deadline only moves on, so an alarm for an earlier one is kept and set anew when it
            // goes off, which is less often than a piece comes.
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
