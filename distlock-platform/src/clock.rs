//! A monotonic clock that counts suspend.

/// Reads the system's monotonic clock that counts suspend, in nanoseconds since some start.
///
/// That is `CLOCK_BOOTTIME` where there is one. `CLOCK_MONOTONIC` continues during sleep on Apple's systems. On other
/// Unix systems it may not: there, a holder that slept through its lease is stopped later, by its next renewal.
#[cfg(unix)]
#[inline]
pub fn boottime() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "openbsd")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    // Both fields are never negative. Their width depends on the system.
    #[allow(clippy::useless_conversion)]
    let nanos = u64::from(now.tv_nsec.unsigned_abs());
    now.tv_sec.unsigned_abs() * 1_000_000_000 + nanos
}

/// Reads the system's monotonic clock that counts suspend, in nanoseconds since some start. On Windows, `Instant`
/// counts sleep.
#[cfg(not(unix))]
#[inline]
pub fn boottime() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    // Callers take zero for a moment that has passed, so the clock starts later.
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn boottime_moves_forward() {
        let first = super::boottime();
        std::thread::sleep(Duration::from_millis(2));
        assert!(super::boottime() - first >= 2_000_000);
    }
}
