//! The sequence of fencing tokens, and the server's clock, as far as this process knows them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What this process knows of the sequence, of the clock, and of which server that was.
#[derive(Debug)]
pub struct Fence {
    /// The highest value that was seen.
    seen: AtomicU64,
    /// When the server was started whose sequence was raised last; 0 if none was.
    started: AtomicI64,
    /// How far the server's clock is ahead of `origin`, in µs; `i64::MIN` while it is not known.
    ahead: AtomicI64,
    origin: Instant,
}

impl Fence {
    pub(crate) fn new() -> Self {
        let (seen, started, ahead) =
            (AtomicU64::new(0), AtomicI64::new(0), AtomicI64::new(i64::MIN));
        Self { seen, started, ahead, origin: Instant::now() }
    }

    /// The highest value that this process has seen: to be read before one is asked for.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Whether a value is above all that were `seen` when it was asked for.
    pub fn is_new(&self, value: u64, seen: u64) -> bool {
        self.seen.fetch_max(value, Ordering::AcqRel);
        value > seen
    }

    pub(crate) fn raised(&self, floor: i64, now: i64, started: i64) {
        self.seen.fetch_max(u64::try_from(floor).unwrap_or(0), Ordering::AcqRel);
        self.is_now(now);
        self.started.store(started, Ordering::Release);
    }

    /// The server has just said that it is so many µs past the epoch.
    pub(crate) fn is_now(&self, now: i64) {
        let since = i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.ahead.store(now.saturating_sub(since), Ordering::Release);
    }

    pub(crate) fn started(&self) -> i64 {
        self.started.load(Ordering::Acquire)
    }

    /// The server's time when `after` has passed from now; 0 if it is not known.
    pub(crate) fn time_after(&self, after: Duration) -> i64 {
        match self.ahead.load(Ordering::Acquire) {
            i64::MIN => 0,
            ahead => {
                let micros = self.origin.elapsed().saturating_add(after).as_micros();
                ahead.saturating_add(i64::try_from(micros).unwrap_or(i64::MAX))
            }
        }
    }
}
