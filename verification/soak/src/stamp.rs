//! One clock for all processes of a program.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment, the same one in every process of this machine.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
        .as_nanos()
        .try_into()
        .unwrap_or(u64::MAX)
}

/// From one moment to another; nothing if they are the other way round.
pub(crate) fn between(from: u64, to: u64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from))
}
