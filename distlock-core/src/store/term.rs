//! How long a lock is wanted for, and what a lease of that length is worth here.

use std::time::Duration;

use crate::clock::{Moment, nanos};

/// The shortest `ttl`: shorter leases would be over before an answer is back.
pub const SHORTEST_TTL: Duration = Duration::from_millis(10);

/// For how long a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Term {
    /// How long it may outlive a holder that died; the length of a lease.
    pub ttl: Duration,
    /// The lease is extended for as long as it is held.
    pub renewed: bool,
    /// It is not extended past this, counted from when it was taken.
    pub max_hold: Option<Duration>,
    /// It is not freed before this, counted from when it was taken.
    pub min_hold: Option<Duration>,
}

impl Term {
    /// The length of a lease, which `max_hold` may cut short.
    pub fn lease(&self) -> Duration {
        self.max_hold.map_or(self.ttl, |max_hold| padded(max_hold).min(self.ttl))
    }

    /// How long the store is to keep the lock: a holder that dies must not free it before its
    /// `min_hold` either.
    #[inline]
    pub fn stored_for(&self) -> Duration {
        self.min_hold.map_or(self.lease(), |min_hold| min_hold.max(self.lease()))
    }
}

/// What to ask the store for so that `wanted` is left here after drift.
pub fn padded(wanted: Duration) -> Duration {
    wanted.saturating_add(wanted / 50).saturating_add(Duration::from_millis(5))
}

/// What a lease is worth here: its time to live less what two clocks may drift apart in it, counted
/// from before its command was sent.
#[inline]
pub fn deadline(sent: Moment, ttl: Duration) -> Moment {
    // In whole nanoseconds: every lock asks for this, and a `Duration` is slow to divide.
    let ttl = nanos(ttl);
    let drift = ttl / 100 + (ttl / 4).min(2_000_000);
    Moment::from_nanos(sent.as_nanos().saturating_add(ttl - drift))
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
