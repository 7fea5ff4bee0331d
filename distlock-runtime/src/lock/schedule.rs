//! When one line is looked at next.
//!
//! The engine looks at lines on its thread, where it can read the clock on which leases age. It cannot read a
//! tokio clock that a user's test has paused: there the waiting callers look, each on its own runtime, and the
//! next one in line is woken whenever something is due earlier.
//!
//! One bound covers the waits of all callers of a line: nearly every wait ends with the lock, and a timer for
//! each would cost it more than the lock's own mutex does. The line is looked at when the first of the waits may
//! be over, and those callers whose time has come are woken to see for themselves.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::line::{Line, Request};

use super::effects::{Effects, Live};
use super::services::{Due, Services};
use crate::engine::timers::{Slot, Timers};

/// A line that was just looked at is not due again before this: a lease that has ended, while its holder has not
/// given it back, must not keep the engine from everything else.
const NOT_BEFORE: Duration = Duration::from_millis(1);

/// The plan for one line.
pub(super) struct Schedule {
    next: Planned,
    /// No caller's wait ends before this.
    first_wait: Moment,
    /// Callers whose wait ended before this were woken for it.
    woken_until: Moment,
}

/// The next look at a line.
#[derive(Default)]
enum Planned {
    /// Nothing is planned.
    #[default]
    No,
    /// It was looked at just now.
    Looked,
    /// The engine is on its way.
    Soon,
    /// The engine looks then.
    At(Slot),
    /// The caller of that address looks then.
    By(usize, Moment),
}

impl Default for Schedule {
    fn default() -> Self {
        Self { next: Planned::No, first_wait: Moment::NEVER, woken_until: Moment::NEVER }
    }
}

impl Schedule {
    /// Plans the next look after a change; returns true if the line is to be looked at now.
    #[inline]
    pub(super) fn plan(&mut self, line: &Line<Live>, effects: &mut Effects<'_>) -> bool {
        self.first_wait = self.first_wait.min(effects.waits_until);
        self.woken_until = self.woken_until.min(effects.waits_until);
        if effects.joins_a_crowd && self.next.is_by(self.first_wait) {
            // Nothing is due earlier than before: half of all changes of a line that is in demand.
            return false;
        }
        let (services, due) = (effects.services, line.due());
        match services.by_engine {
            true => self.by_engine(due.min(self.first_wait), effects),
            false if due == Moment::NEVER => false,
            false => due <= services.clock.now() || self.by_caller(due, line, effects),
        }
    }

    #[inline]
    fn by_engine(&mut self, due: Moment, effects: &Effects<'_>) -> bool {
        let Services { timers, clock, .. } = effects.services;
        let looked = matches!(self.next, Planned::Looked);
        match self.next {
            _ if due == Moment::NEVER => return false,
            Planned::Soon => return false,
            // An entry that comes too early costs a look, and most are taken out before they come.
            Planned::At(slot) if slot.at() <= due => return false,
            _ => self.cancel(timers),
        }
        let now = clock.now();
        let at = match looked && due != Moment::from_nanos(0) {
            true => due.max(now.after(NOT_BEFORE)),
            false => due,
        };
        if at <= now {
            self.next = Planned::Soon;
            return true;
        }
        self.next = Planned::At(timers.insert(at, Due::Line(effects.lock.clone())));
        false
    }

    /// Has the first caller in line wake up in time, if it does not know.
    fn by_caller(&mut self, due: Moment, line: &Line<Live>, effects: &mut Effects<'_>) -> bool {
        let Some(front) = line.front() else { return false };
        let address = Arc::as_ptr(front).addr();
        match self.next {
            Planned::By(known, at) if known == address && at <= due => {}
            _ => {
                self.next = Planned::By(address, due);
                effects.wake_seat(front);
            }
        }
        false
    }

    /// Notes that the line is looked at `now`. Wakes the callers whose time is over: the `wait` for the lock, or
    /// the time for an answer.
    pub(super) fn looked(&mut self, line: &Line<Live>, now: Moment, effects: &mut Effects<'_>) {
        self.cancel(&effects.services.timers);
        self.next = Planned::Looked;
        if now < self.first_wait {
            return;
        }
        let woken = std::mem::replace(&mut self.woken_until, now.after(Duration::from_nanos(1)));
        self.first_wait = Moment::NEVER;
        for (seat, request) in line.batches().flat_map(|batch| batch.waiters.iter()) {
            let Request { wait_until, answer_by, .. } = *request;
            for end in [wait_until, answer_by] {
                if end > now {
                    self.first_wait = self.first_wait.min(end);
                } else if end >= woken {
                    effects.wake_seat(seat);
                }
            }
        }
    }

    /// Cancels the next look.
    pub(super) fn cancel(&mut self, timers: &Timers<Due>) {
        if let Planned::At(slot) = std::mem::take(&mut self.next) {
            timers.remove(slot);
        }
    }
}

impl Planned {
    /// Returns whether the engine looks by then.
    #[inline]
    fn is_by(&self, due: Moment) -> bool {
        match self {
            Self::Soon => true,
            Self::At(slot) => slot.at() <= due,
            Self::No | Self::Looked | Self::By(..) => false,
        }
    }
}
