//! The server's clock, as far as it is known from the server's answers.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};

/// How far the server's clock is ahead of ours.
pub(crate) struct ServerClock {
    /// In µs; `i64::MIN` while it is not known.
    ahead: AtomicI64,
}

impl ServerClock {
    pub(crate) fn unknown() -> Self {
        Self { ahead: AtomicI64::new(i64::MIN) }
    }

    /// The server has just said that it is so many µs past the epoch.
    pub(crate) fn set(&self, micros: i64) {
        let own = i64::try_from(micros_of(Clock::Boottime.now())).unwrap_or(i64::MAX);
        self.ahead.store(micros.saturating_sub(own), Ordering::Release);
    }

    /// The server's time, in µs, when `after` will have passed from now; 0 if it is not known.
    pub(crate) fn time_after(&self, after: Duration) -> u64 {
        match self.ahead.load(Ordering::Acquire) {
            i64::MIN => 0,
            ahead => micros_of(Clock::Boottime.now().after(after)).saturating_add_signed(ahead),
        }
    }
}

fn micros_of(moment: Moment) -> u64 {
    moment.as_nanos() / 1000
}
