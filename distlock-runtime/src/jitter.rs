//! Pauses that differ between processes.

use std::time::Duration;

/// Between a half and the whole of `pause`, so that processes do not act in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}
