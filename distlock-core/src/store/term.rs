//! The length of a lease: in the store, and in this process, whose clock may drift from the store's.

use std::time::Duration;

use crate::clock::{Moment, nanos};

/// The shortest `ttl`. A shorter lease would expire before its answer arrives.
pub const SHORTEST_TTL: Duration = Duration::from_millis(10);

/// How long a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Term {
    /// The length of a lease: how long the lock stays taken after its holder has crashed.
    pub ttl: Duration,
    /// Whether the lease is renewed while the lock is held.
    pub renewed: bool,
    /// The longest time to hold the lock, from its acquisition on. The lease is not renewed past it.
    pub max_hold: Option<Duration>,
    /// The shortest time to hold the lock, from its acquisition on. The lock is not freed before.
    pub min_hold: Option<Duration>,
}

impl Term {
    /// Returns the length of a lease, which `max_hold` may cut short.
    pub fn lease(&self) -> Duration {
        self.max_hold.map_or(self.ttl, |max_hold| padded(max_hold).min(self.ttl))
    }

    /// Returns how long the store keeps the lock without a renewal. It is at least `min_hold`, because a crash of the holder
    /// must not free the lock earlier.
    #[inline]
    pub fn stored_for(&self) -> Duration {
        self.min_hold.map_or(self.lease(), |min_hold| min_hold.max(self.lease()))
    }
}

/// Returns the time to live to request, so that `wanted` is left in this process after the deduction for drift.
pub fn padded(wanted: Duration) -> Duration {
    wanted.saturating_add(wanted / 50).saturating_add(Duration::from_millis(5))
}

/// Returns when a lease ends in this process: its time to live after its command was sent, less the drift between two
/// clocks in that time.
#[inline]
pub fn deadline(sent: Moment, ttl: Duration) -> Moment {
    // This uses whole nanoseconds, because every lock calls it and a `Duration` is slow to divide.
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
