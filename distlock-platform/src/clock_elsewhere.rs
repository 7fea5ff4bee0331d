//! The clock and the name of a system that is not Unix.

use std::sync::OnceLock;
use std::time::Instant;

/// Reads a monotonic clock that counts suspend, in nanoseconds since some start: on Windows, `Instant` counts sleep.
#[inline]
pub fn boottime() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let elapsed = START.get_or_init(Instant::now).elapsed();
    // Callers take zero for a moment that has passed, so the clock starts later.
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000)
}

/// Returns the name of this machine.
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".into())
}
