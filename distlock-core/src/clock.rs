//! Time: the clock that leases age on, moments on it, and conversions of durations.
//!
//! Leases on a server age on a clock that counts suspend (`CLOCK_BOOTTIME` on Linux): a laptop that slept through its
//! lease must find it lost, and `Instant` does not count suspend on Linux. Leases in memory age on the caller's tokio
//! clock, so that tests under `tokio::time::pause` see them expire.
//!
//! No decision depends on the wall clock. [`unix_time`] is for records that other machines read.

use std::time::{Duration, Instant};

/// A point on a [`Clock`], in nanoseconds since some start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the moment that is `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the moment that is `by` later; [`NEVER`](Self::NEVER) if it is too far away.
    #[inline]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The clock that the leases of a store age on.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The clock of the system, which counts suspend and is never paused.
    Boottime,
    /// The clock of the callers' runtime, which a test may pause.
    Callers(CallersClock),
}

/// The clock of the callers' runtime, counted from a start.
#[derive(Debug, Clone, Copy)]
pub struct CallersClock {
    start: Instant,
    now: fn() -> Instant,
}

impl Clock {
    /// Returns the clock that `now` reads, counted from `start`.
    pub fn of_callers(start: Instant, now: fn() -> Instant) -> Self {
        Self::Callers(CallersClock { start, now })
    }

    /// Reads the clock.
    #[inline]
    pub fn now(&self) -> Moment {
        match self {
            Self::Boottime => Moment(distlock_platform::boottime()),
            Self::Callers(clock) => {
                Moment(nanos((clock.now)().saturating_duration_since(clock.start)))
            }
        }
    }

    /// Returns whether time passes on this clock while the machine is suspended.
    pub fn counts_suspend(&self) -> bool {
        matches!(self, Self::Boottime)
    }

    /// Reads this clock as if it had never been paused. The engine's timers use this time.
    pub fn real_now(&self) -> Moment {
        match self {
            Self::Boottime => self.now(),
            Self::Callers(clock) => Moment(nanos(clock.start.elapsed())),
        }
    }

    /// Returns the instant of a moment on the callers' clock; `None` on any other clock.
    pub fn instant(&self, at: Moment) -> Option<Instant> {
        match self {
            Self::Boottime => None,
            Self::Callers(clock) => clock.start.checked_add(Duration::from_nanos(at.0)),
        }
    }
}

/// Returns a duration in nanoseconds, or `u64::MAX` if it is longer. Every lock calls this many times, and
/// `Duration::as_nanos` is slow because it has 128 bits.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    let secs = duration.as_secs().saturating_mul(1_000_000_000);
    secs.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Returns a duration in milliseconds, which most stores count in. It is rounded up, so that a lease is never shorter in
/// the store than it is here.
pub fn millis(duration: Duration) -> u64 {
    let rest = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    duration.as_secs().saturating_mul(1000).saturating_add(rest)
}

/// Reads the wall clock, in seconds since 1970.
pub fn unix_time() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: H3.
    #[test]
    fn fractions_of_a_millisecond_are_rounded_up() {
        assert_eq!(millis(Duration::from_micros(10_001)), 11);
        assert_eq!(millis(Duration::from_millis(10)), 10);
    }

    /// Fault: H2.
    #[test]
    fn far_moments_saturate() {
        assert_eq!(Moment::from_nanos(5).after(Duration::MAX), Moment::NEVER);
    }
}
