//! Pauses that differ between processes.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between a half and the whole of `pause`, so that processes do not act in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Keyed at random for each process, and by another key for each call.
    let random = RandomState::new().hash_one(0) as u32;
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}
