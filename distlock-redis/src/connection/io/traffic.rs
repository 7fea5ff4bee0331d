//! Whether a thread sends commands often enough for a driver on its runtime.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};

/// This many commands from one thread within this time are frequent.
const SAMPLE: usize = 64;
const BRISK: Duration = Duration::from_millis(200);

/// What one thread sends.
#[derive(Default)]
pub(super) struct Traffic {
    sent: AtomicUsize,
    /// When the last sample was full, and how many commands the engine had sent then.
    since: AtomicU64,
    engine_commands: AtomicU64,
}

impl Traffic {
    /// Counts a command, and says once per sample whether they are frequent. Not if the engine sends
    /// some as well, as it does while locks are waited for: it is the one to wake for their answers.
    pub(super) fn is_brisk(&self, engine_commands: u64) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        if !(sent + 1).is_multiple_of(SAMPLE) {
            return false;
        }
        let now = Clock::Boottime.now();
        let since = Moment::from_nanos(self.since.swap(now.as_nanos(), Ordering::Relaxed));
        let before = self.engine_commands.swap(engine_commands, Ordering::Relaxed);
        // Saturating: another thread that shares this part may have been a moment ahead.
        let of_engine = engine_commands.saturating_sub(before);
        now.since(since) < BRISK && of_engine < SAMPLE as u64 / 8
    }
}
