//! What a lease is worth to this process: until when, under which counter value, and to whom it can go.
//!
//! Successive holders of this process share it: the store knows one lease, which they hand over, each
//! with a fencing token and a deadline of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::store::Term;
use crate::store::owner::TOKENS_PER_FENCE;

/// A lease that was not confirmed for so long is renewed before it is handed over.
const STALE: Duration = Duration::from_secs(1);

/// What a lease is worth here: its time to live less what two clocks may drift apart in it.
pub(crate) fn deadline(sent: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2).min(ttl / 4);
    sent.after(ttl - drift)
}

/// The lease of an owner token that was granted the lock; of no worth before.
#[derive(Default)]
pub(crate) struct Tenure {
    fence: AtomicU64,
    /// The first counter value it was granted with; 0 before.
    ticket: AtomicU64,
    /// The last fencing token that was given out under it.
    issued: AtomicU64,
    deadline: AtomicU64,
    /// When the last command was sent to which the store said that it owns the lock.
    confirmed: AtomicU64,
    /// The last renewal has failed, and was to draw a counter value.
    draw_failed: AtomicBool,
}

/// Whether a lease can be handed to the next holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    AsItIs,
    /// Too little is left of it, or it was not heard of for too long.
    AfterRenewal,
    /// More is left than was asked for, and a lease in use is never shortened.
    TooLong,
}

impl Tenure {
    /// The store granted it in answer to a command sent at `sent`.
    pub(crate) fn granted(&self, fence: u64, sent: Moment, deadline: Moment) {
        let _ = self.ticket.compare_exchange(0, fence, Ordering::AcqRel, Ordering::Relaxed);
        self.fence.fetch_max(fence, Ordering::AcqRel);
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// The store confirmed a renewal that was sent at `sent`, and may have drawn a counter value.
    /// Never shortens; too late changes nothing.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration, fence: Option<u64>) {
        self.deadline.fetch_max(deadline(sent, ttl).as_nanos(), Ordering::AcqRel);
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.draw_failed.store(false, Ordering::Release);
        if let Some(fence) = fence {
            self.fence.fetch_max(fence, Ordering::AcqRel);
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// A fencing token for the next holder; `None` if the counter value has no more. To be called
    /// by whoever has the lock's line, one at a time.
    pub(crate) fn issue(&self) -> Option<u64> {
        let fence = self.fence.load(Ordering::Acquire);
        let issued = self.issued.load(Ordering::Acquire);
        let next = (fence * TOKENS_PER_FENCE).max(issued + 1);
        if next >= (fence + 1) * TOKENS_PER_FENCE {
            return None;
        }
        self.issued.store(next, Ordering::Release);
        Some(next)
    }

    /// No later holder gets a fencing token as low as this one.
    pub(crate) fn outdo(&self, fencing_token: u64) {
        self.issued.fetch_max(fencing_token, Ordering::AcqRel);
    }

    /// The counter value it was granted with, as a ticket for those who waited with it.
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Acquire)
    }

    /// The counter value that its fencing tokens are counted under.
    pub(crate) fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    /// Half of the fencing tokens under its counter value are used: time to draw another.
    pub(crate) fn needs_fence(&self) -> bool {
        let fence = self.fence.load(Ordering::Acquire);
        self.issued.load(Ordering::Acquire) >= fence * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2
    }

    /// A renewal has failed, which was to `draw` a counter value or not.
    pub(crate) fn not_renewed(&self, draw: bool) {
        self.draw_failed.store(draw, Ordering::Release);
    }

    /// The last renewal has failed, and was to draw a counter value.
    pub(super) fn draw_failed(&self) -> bool {
        self.draw_failed.load(Ordering::Acquire)
    }

    /// When the last command was sent to which the store said that it owns the lock.
    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// Whether the lease can go to a holder on these terms at `now`.
    pub(crate) fn fit(&self, term: &Term, now: Moment) -> Fit {
        let left = self.deadline().since(now);
        let wanted = term.stored_for();
        let enough = if term.renewed { wanted.mul_f64(0.9) } else { wanted.mul_f64(0.99) };
        if left > wanted.mul_f64(1.1).max(wanted.saturating_add(Duration::from_millis(100))) {
            Fit::TooLong
        } else if left < enough || now.since(self.confirmed()) > STALE {
            Fit::AfterRenewal
        } else {
            Fit::AsItIs
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_leaves_room_for_drift() {
        let sent = Moment::from_nanos(0);
        let ms = |n| Duration::from_millis(n);
        assert_eq!(deadline(sent, ms(1000)), sent.after(ms(988)));
        assert_eq!(deadline(sent, ms(10)), sent.after(Duration::from_micros(7900)));
        // Two milliseconds of drift would be all of a very short lease.
        assert_eq!(deadline(sent, ms(4)), sent.after(Duration::from_micros(2960)));
    }
}
