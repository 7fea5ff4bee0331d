//! The clock and the name of a Unix system.

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Reads the system's monotonic clock that counts suspend, in nanoseconds since some start.
///
/// That is `CLOCK_BOOTTIME` where there is one. `CLOCK_MONOTONIC` continues during sleep on Apple's systems. On other
/// Unix systems it may not: there, a holder that slept through its lease is stopped later, by its next renewal.
#[inline]
pub fn boottime() -> u64 {
    let now = clock_gettime(CLOCK);
    // Both fields are never negative. Their width depends on the system.
    #[allow(clippy::useless_conversion)]
    let nanos = u64::from(now.tv_nsec.unsigned_abs());
    now.tv_sec.unsigned_abs() * 1_000_000_000 + nanos
}

/// Returns the name of this machine, or of the container.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
