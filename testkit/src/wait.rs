//! Waiting for a condition instead of for a time.

use std::thread;
use std::time::{Duration, Instant};

/// How long [`wait_until`] and [`wait_for`] wait: far more than anything takes on a busy machine,
/// so that reaching it means "never".
const BOUND: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// Blocks until `condition` holds; panics with `what` after 30 s.
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(BOUND, what, condition);
}

/// Blocks until `condition` holds; panics with `what` after `bound`.
#[track_caller]
pub fn wait_within(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < bound, "after {bound:?} still waiting: {what}");
        thread::sleep(LOOK);
    }
}

/// [`wait_until`] for conditions that need the runtime they are waited for on.
pub async fn wait_for(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < BOUND, "after {BOUND:?} still waiting: {what}");
        tokio::time::sleep(LOOK).await;
    }
}
