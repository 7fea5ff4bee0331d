//! Questions of other processes, until they are answered.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Asked, Asker};
use crate::clock::Moment;

/// The questions that wait for their answer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    state: Mutex<Asked>,
}

impl Answers {
    /// As [`Asked::asked`].
    pub(crate) fn asked(&self, prefix: &str, question: &str, now: Moment) -> Option<Duration> {
        self.state().asked(prefix, question, now)
    }

    /// As [`Asked::take`].
    pub(crate) fn take(&self, now: Moment) -> Vec<Asker> {
        self.state().take(now)
    }

    fn state(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
