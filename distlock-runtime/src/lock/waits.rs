//! When the waits of a line's callers end.
//!
//! One bound for all callers of a line: nearly every wait ends with the lock, and a timer for each would
//! cost it more than the lock's own mutex does. The line is looked at when the first of them may be over
//! (`schedule`), and those whose time has come are woken to see for themselves.

use std::time::Duration;

use super::core::{Line, Request};
use super::effects::{Live, Turn};
use crate::clock::Moment;

/// The ends of the waits in one line.
pub(super) struct Waits {
    /// None ends before this.
    next: Moment,
    /// Callers whose wait ended before this were woken for it.
    told: Moment,
}

impl Default for Waits {
    fn default() -> Self {
        Self { next: Moment::NEVER, told: Moment::NEVER }
    }
}

impl Waits {
    /// A caller waits in the line until then.
    pub(super) fn add(&mut self, end: Moment) {
        self.next = self.next.min(end);
        self.told = self.told.min(end);
    }

    /// When to look next.
    pub(super) fn due(&self) -> Moment {
        self.next
    }

    /// Wakes the callers whose time is over: the `wait` for the lock, or the time for an answer.
    pub(super) fn look(&mut self, line: &Line<Live>, now: Moment, turn: &mut Turn<'_>) {
        if now < self.next {
            return;
        }
        let told = std::mem::replace(&mut self.told, now.after(Duration::from_nanos(1)));
        self.next = Moment::NEVER;
        for (seat, request) in line.batches().flat_map(|batch| batch.waiters.iter()) {
            let Request { wait_until, answer_by, .. } = *request;
            for end in [wait_until, answer_by] {
                if end > now {
                    self.next = self.next.min(end);
                } else if end >= told {
                    turn.wake_seat(seat);
                }
            }
        }
    }
}
