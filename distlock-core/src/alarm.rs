//! A moment to wait for, on whatever runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::timers::{Slot, Timers};

/// The tasks that wait for a moment. One that waits for an answer has its limit here and takes it out
/// again; in the common case the engine never looks at it.
pub type Alarms = Timers<Waker>;

impl Alarms {
    /// Has a task woken by an entry that is still there; false if there is none.
    fn rearm(&self, slot: Slot, waker: &Waker) -> bool {
        match self.with(slot, |old| old.will_wake(waker)) {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
        // Cloned, and the one before it dropped, while the shard is free: a waker may own its task,
        // and the task a lock.
        let mut new = waker.clone();
        self.with(slot, |old| std::mem::swap(old, &mut new)).is_some()
    }
}

/// Resolves at a moment, whatever runtime it is polled on.
///
/// The engine wakes it. A store whose leases age on tokio's clock is waited for on tokio's timers as
/// well, where there are any: a clock that was paused is only moved on by those.
pub enum Alarm<'a> {
    Set { alarms: &'a Alarms, clock: Clock, at: Moment, slot: Option<Slot> },
    Never,
}

/// A clock that stands while real time goes on is looked at again so much later.
const STANDING: Duration = Duration::from_millis(50);

impl<'a> Alarm<'a> {
    #[inline]
    pub fn at(alarms: &'a Alarms, clock: Clock, at: Moment) -> Self {
        if at == Moment::NEVER {
            return Self::Never;
        }
        Self::Set { alarms, clock, at, slot: None }
    }
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Set { alarms, clock, at, slot } = self.get_mut() else {
            return Poll::Pending;
        };
        // An entry that is still there was not due yet when the engine last looked, which saves asking
        // the clock at every poll.
        if slot.is_some_and(|slot| alarms.rearm(slot, cx.waker())) {
            return Poll::Pending;
        }
        let mut look_at = *at;
        if slot.take().is_some() {
            if clock.now() >= *at {
                return Poll::Ready(());
            }
            // Due at once by the engine's clock, which is never paused: it would do nothing else.
            look_at = look_at.max(clock.real_now().after(STANDING));
        }
        *slot = Some(alarms.insert(look_at, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Self::Set { alarms, slot: Some(slot), .. } = self {
            alarms.remove(*slot);
        }
    }
}
