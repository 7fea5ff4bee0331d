//! How a line gets looked at when it is due.
//!
//! The engine does it on its thread, where it can read the clock that leases age on. It cannot read a
//! tokio clock that a user's test has paused: there the waiting callers do it, each on its own runtime,
//! and the next one in line is woken whenever something is due earlier.

use std::sync::Arc;
use std::time::Duration;

use super::core::Line;
use super::effects::{Live, Turn};
use super::lines::Entry;
use super::serve::Due;
use crate::clock::{Clock, Moment};
use crate::engine::timers::{Slot, Timers};
use crate::name::LockName;

/// What came due is not due again before this: a lease that has ended, while its holder has not given it
/// back, must not keep the engine from everything else.
const NOT_BEFORE: Duration = Duration::from_millis(1);

/// What wakes up for a line in time: the engine, or its callers.
pub(super) enum Agenda {
    Engine(Clock),
    Callers(Clock),
}

/// When a line is looked at next.
#[derive(Default)]
pub(super) enum Planned {
    /// Nothing is planned.
    #[default]
    No,
    /// It was looked at just now.
    Looked,
    /// The engine is on its way.
    Soon,
    /// The engine does, then.
    At(Slot),
    /// The caller of that address does, then.
    By(usize, Moment),
}

impl Agenda {
    /// `by_engine` if the engine can read that clock.
    pub(super) fn of(clock: Clock, by_engine: bool) -> Self {
        if by_engine { Self::Engine(clock) } else { Self::Callers(clock) }
    }

    pub(super) fn is_the_engines(&self) -> bool {
        matches!(self, Self::Engine(_))
    }

    /// Plans a line's next look; true if it is to be looked at now.
    #[inline]
    pub(super) fn plan(
        &self,
        entry: &mut Entry,
        timers: &Timers<Due>,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Entry { line, planned, waits } = entry;
        let due = line.due();
        match self {
            Self::Engine(clock) => {
                planned.by_engine(due.min(waits.due()), *clock, turn.lock(), timers)
            }
            Self::Callers(_) if due == Moment::NEVER => false,
            Self::Callers(clock) => due <= clock.now() || planned.by_caller(due, line, turn),
        }
    }
}

impl Planned {
    #[inline]
    fn by_engine(
        &mut self,
        due: Moment,
        clock: Clock,
        lock: &Arc<LockName>,
        timers: &Timers<Due>,
    ) -> bool {
        let looked = matches!(self, Self::Looked);
        match self {
            _ if due == Moment::NEVER => return false,
            Self::Soon => return false,
            // An entry that comes too early costs a look, and most are taken out before they come.
            Self::At(slot) if slot.at() <= due => return false,
            _ => self.cancel(timers),
        }
        let now = clock.now();
        let at = match looked && due != Moment::from_nanos(0) {
            true => due.max(now.after(NOT_BEFORE)),
            false => due,
        };
        if at <= now {
            *self = Self::Soon;
            return true;
        }
        *self = Self::At(timers.insert(at, Due::Line(lock.clone())));
        false
    }

    /// The engine looks by then.
    #[inline]
    pub(super) fn is_by(&self, due: Moment) -> bool {
        match self {
            Self::Soon => true,
            Self::At(slot) => slot.at() <= due,
            Self::No | Self::Looked | Self::By(..) => false,
        }
    }

    /// Has the caller in front wake up in time, if it does not know.
    fn by_caller(&mut self, due: Moment, line: &Line<Live>, turn: &mut Turn<'_>) -> bool {
        let Some(front) = line.front() else { return false };
        let address = Arc::as_ptr(front).addr();
        match self {
            Self::By(known, at) if *known == address && *at <= due => {}
            _ => {
                *self = Self::By(address, due);
                turn.wake_seat(front);
            }
        }
        false
    }

    /// The line is about to be looked at.
    pub(super) fn looked(&mut self, timers: &Timers<Due>) {
        self.cancel(timers);
        *self = Self::Looked;
    }

    pub(super) fn cancel(&mut self, timers: &Timers<Due>) {
        if let Self::At(slot) = std::mem::take(self) {
            timers.remove(slot);
        }
    }
}
