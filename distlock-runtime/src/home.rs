//! A manager is of use in the process alone that made it.

pub(crate) use distlock_core::fork_guard::Home;

use crate::clock::{Clock, Moment};
use crate::error::LockError;

/// Refuses a child that was forked.
pub(crate) trait RefuseFork {
    /// Checks that this is the process in which the manager was made.
    fn check(self) -> Result<(), LockError>;

    /// The same for a caller that has just read `now` from `clock`.
    fn check_at(self, clock: Clock, now: Moment) -> Result<(), LockError>;
}

impl RefuseFork for Home {
    fn check(self) -> Result<(), LockError> {
        answer(self.is_here())
    }

    #[inline]
    fn check_at(self, clock: Clock, now: Moment) -> Result<(), LockError> {
        answer(self.is_here_now(clock, now))
    }
}

#[inline]
fn answer(is_here: bool) -> Result<(), LockError> {
    if is_here {
        return Ok(());
    }
    Err(LockError::invalid_option(
        "manager: it was made before this process was forked, and belongs to the parent; make the manager after the fork",
    ))
}
