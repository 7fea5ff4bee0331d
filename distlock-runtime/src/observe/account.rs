//! The times of one lease that observers are told. They are kept with the lease, because the code that ends it
//! did not see its beginning.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::clock::Moment;

use super::metrics::Hold;
use super::observer::Via;

/// The times when a lease began and ended, and a note of which of the two was reported.
pub(crate) struct Account {
    /// The time when the call's own attempt was sent, if it made one.
    sent: Moment,
    since: AtomicU64,
    /// Zero while the lease lasts.
    until: AtomicU64,
    via: AtomicU8,
    /// The bits `OPEN`, `LOST` and `TRIED`.
    state: AtomicU8,
    pub(super) hold: Hold,
}

const FREE: u8 = 0;
const QUEUE: u8 = 1;
const HAND_OVER: u8 = 2;

/// The lease was reported as held. Never set without observers.
const OPEN: u8 = 1;
const LOST: u8 = 2;
/// The lease was acquired by its call's own attempt, whose duration is not reported yet.
const TRIED: u8 = 4;

impl Account {
    /// Makes the account of a lease that may be attempted at once.
    pub(crate) fn new(sent: Moment) -> Self {
        let (since, until) = Default::default();
        let (via, state, hold) = Default::default();
        Self { sent, since, until, via, state, hold }
    }

    pub(crate) fn sent(&self) -> Moment {
        self.sent
    }

    /// Notes that the caller has the lease.
    pub(crate) fn begin(&self, now: Moment) {
        self.since.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Notes that the call's own attempt has acquired the lease, with its answer.
    #[inline]
    pub(crate) fn came_of_try(&self) {
        self.state.store(TRIED, Ordering::Relaxed);
    }

    /// Returns how long that attempt took: once, and before the lease is reported as held.
    #[inline]
    pub(super) fn take_try(&self) -> Option<Duration> {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state & !TRIED, Ordering::Relaxed);
        (state & TRIED != 0).then(|| self.since().since(self.sent))
    }

    /// Notes that the lease was not acquired by its caller's own attempt.
    pub(crate) fn came(&self, handed_over: bool) {
        let via = if handed_over { HAND_OVER } else { QUEUE };
        self.via.store(via, Ordering::Relaxed);
    }

    /// Notes the end of the lease. The first end counts.
    pub(crate) fn ended(&self, now: Moment, lost: bool) {
        if !self.is_open() {
            return;
        }
        let (set, fail) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.until.compare_exchange(0, now.as_nanos(), set, fail);
        if lost {
            self.state.fetch_or(LOST, Ordering::Relaxed);
        }
    }

    /// Returns since when the caller has had the lease.
    pub(crate) fn since(&self) -> Moment {
        Moment::from_nanos(self.since.load(Ordering::Relaxed))
    }

    pub(super) fn held(&self) -> Duration {
        Moment::from_nanos(self.until.load(Ordering::Relaxed)).since(self.since())
    }

    pub(super) fn via(&self) -> Via {
        match self.via.load(Ordering::Relaxed) {
            HAND_OVER => Via::HandOver,
            QUEUE => Via::Queue,
            FREE.. => Via::Free,
        }
    }

    pub(super) fn was_lost(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOST != 0
    }

    /// Notes that the lease is reported as held.
    pub(super) fn open(&self) {
        // Until now only its own call has changed the state.
        self.state.store(self.state.load(Ordering::Relaxed) | OPEN, Ordering::Release);
    }

    /// Returns whether the lease was reported as held, and its end was not.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) & OPEN != 0
    }

    /// Returns whether its end is to be reported: once, and only if it was reported as held.
    pub(super) fn close(&self) -> bool {
        self.is_open() && self.state.fetch_and(!OPEN, Ordering::AcqRel) & OPEN != 0
    }
}
