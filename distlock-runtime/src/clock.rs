//! Time as a store counts it.
//!
//! Leases in Redis age on `CLOCK_BOOTTIME`: a laptop that slept through its lease must find it
//! gone, and `Instant` does not count suspend on Linux. Leases in memory age on the caller's tokio
//! clock, so that tests under `tokio::time::pause` see them expire.

use std::time::Duration;

/// A point on a store's clock, in nanoseconds since some start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Never comes.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Time from `earlier` to here; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Which clock a store's leases age on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clock {
    /// Counts suspend, ignores tokio's paused time.
    Boottime,
    /// The tokio clock of whoever asks, counted from this start.
    Tokio(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    pub(crate) fn now(&self) -> Moment {
        match self {
            Self::Boottime => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
                let (secs, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
                Moment(secs * 1_000_000_000 + nanos)
            }
            Self::Tokio(start) => Moment(nanos(start.elapsed())),
        }
    }

    /// The tokio instant of a moment; `None` if this clock is not tokio's.
    pub(crate) fn instant(&self, at: Moment) -> Option<tokio::time::Instant> {
        match self {
            Self::Boottime => None,
            Self::Tokio(start) => start.checked_add(Duration::from_nanos(at.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boottime_moves_forward() {
        let clock = Clock::Boottime;
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(clock.now().since(first) >= Duration::from_millis(2));
    }

    #[test]
    fn far_moments_saturate() {
        assert_eq!(Moment::from_nanos(5).after(Duration::MAX), Moment::NEVER);
    }
}
