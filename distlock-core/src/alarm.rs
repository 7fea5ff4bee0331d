//! A future that resolves at a moment, on any runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::timers::{Slot, Timers};

/// The tasks that wait for a moment. A task that waits for an answer inserts its deadline here and removes it after the
/// answer. In the common case the engine never looks at the entry.
pub type Alarms = Timers<Waker>;

impl Alarms {
    /// Sets the waker of an entry. Returns false if the entry was taken out.
    fn rearm(&self, slot: Slot, waker: &Waker) -> bool {
        match self.with(slot, |old| old.will_wake(waker)) {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
        // The new waker is cloned and the old one dropped while the shard is not locked: a waker may own its task, and
        // the task may own a lock.
        let mut new = waker.clone();
        self.with(slot, |old| std::mem::swap(old, &mut new)).is_some()
    }
}

/// How long to wait before a paused clock is read again.
const PAUSED: Duration = Duration::from_millis(50);

/// A future that resolves at a moment, on any runtime.
///
/// The engine wakes it, and the engine does not know that a test has paused tokio's clock. So the runtime also waits
/// on tokio's timers for a store whose leases age on that clock: only they move a paused clock forward.
pub enum Alarm<'a> {
    /// Resolves at a moment.
    Set {
        /// The alarms of the engine.
        alarms: &'a Alarms,
        /// The clock that `at` is read on.
        clock: Clock,
        /// The moment.
        at: Moment,
        /// The entry among the alarms, from the first poll on.
        slot: Option<Slot>,
    },
    /// Never resolves.
    Never,
}

impl<'a> Alarm<'a> {
    /// Returns a future that resolves at `at`, or never for [`Moment::NEVER`].
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
        // An entry that is still there was not due when the engine last looked. So not every poll has to read the clock.
        if slot.is_some_and(|slot| alarms.rearm(slot, cx.waker())) {
            return Poll::Pending;
        }
        let mut look_at = *at;
        if slot.take().is_some() {
            if clock.now() >= *at {
                return Poll::Ready(());
            }
            // The clock is paused, and the engine's clock has passed this moment. Without a later one the engine would
            // wake this task again and again.
            look_at = look_at.max(clock.real_now().after(PAUSED));
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
