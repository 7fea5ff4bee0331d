//! Time as a store counts it.
//!
//! Leases in Redis age on a clock that counts suspend, `CLOCK_BOOTTIME` on Linux: a laptop that slept
//! through its lease must find it gone, and `Instant` does not count suspend on Linux. Leases in memory
//! age on the caller's tokio clock, so that tests under `tokio::time::pause` see them expire.

use std::time::Duration;

/// A point on a store's clock, in nanoseconds since some start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// So many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// So much later.
    #[inline]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Time from `earlier` to here; zero if it is not earlier.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// In 64 bits, or as many as fit: every lock asks for this many times, and 128 bits are slow.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    let secs = duration.as_secs().saturating_mul(1_000_000_000);
    secs.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Which clock a store's leases age on.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// Counts suspend, ignores tokio's paused time.
    Boottime,
    /// The tokio clock of the caller, counted from this start.
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// That of the runtime in which this is called, from now on.
    pub fn tokio() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    /// What it shows.
    #[inline]
    pub fn now(&self) -> Moment {
        match self {
            Self::Boottime => Moment(boottime()),
            Self::Tokio(start) => Moment(nanos(start.elapsed())),
        }
    }

    /// Goes on while the machine is suspended.
    pub fn counts_suspend(&self) -> bool {
        matches!(self, Self::Boottime)
    }

    /// The same on a clock that is never paused, as the engine sees it.
    pub fn real_now(&self) -> Moment {
        match self {
            Self::Boottime => self.now(),
            Self::Tokio(start) => Moment(nanos(start.into_std().elapsed())),
        }
    }

    /// The tokio instant of a moment; `None` if this clock is not tokio's.
    pub fn instant(&self, at: Moment) -> Option<tokio::time::Instant> {
        match self {
            Self::Boottime => None,
            Self::Tokio(start) => start.checked_add(Duration::from_nanos(at.0)),
        }
    }
}

/// The clock of a system that counts suspend: `CLOCK_BOOTTIME` where there is one.
/// `CLOCK_MONOTONIC` goes on in sleep on Apple's systems; on other Unix systems it may not, and a
/// holder that slept through its lease is stopped later there, by its next renewal.
#[cfg(unix)]
#[inline]
fn boottime() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    // How wide it is depends on the system. Neither is negative.
    #[allow(clippy::useless_conversion)]
    let nanos = u64::from(now.tv_nsec.unsigned_abs());
    now.tv_sec.unsigned_abs() * 1_000_000_000 + nanos
}

/// The same on Windows, where `Instant` counts sleep.
#[cfg(not(unix))]
#[inline]
fn boottime() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // Not from zero: that is a moment which has passed.
    nanos(START.get_or_init(Instant::now).elapsed()).saturating_add(1_000_000_000)
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
