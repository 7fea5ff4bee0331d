//! How many may hold a lock at once. Exclusive locks, read locks and permits differ only in this number.

use std::fmt;
use std::num::NonZeroU32;

/// The largest number of holders of a lock that the token with this limit may be one of.
///
/// A token is let in if no token holds the lock alone, and fewer tokens than its limit hold it. So a token with
/// [`ALONE`] waits for all other holders and keeps all others out. A token with [`READ`] is let in beside any holder that
/// is not alone. A token with `permits(n)` is at most the n-th holder. Each token is counted by its own limit, because
/// calls with different limits may use one key.
///
/// [`ALONE`]: Self::ALONE
/// [`READ`]: Self::READ
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroU32);

impl Limit {
    /// The limit of an exclusive lock, and of a write lock.
    pub const ALONE: Self = Self(NonZeroU32::MIN);
    /// The limit of a read lock: any number of holders.
    pub const READ: Self = Self(NonZeroU32::MAX);

    /// Returns the limit of one of `n` permits; `None` for 0. One permit is an exclusive lock. `u32::MAX` counts as one
    /// less, because that number stands for [`READ`](Self::READ).
    pub const fn permits(n: u32) -> Option<Self> {
        match NonZeroU32::new(if n == u32::MAX { n - 1 } else { n }) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// Returns whether no other may hold the lock at the same time.
    pub const fn is_alone(self) -> bool {
        self.0.get() == 1
    }

    /// Returns whether any number may hold the lock at the same time.
    pub const fn is_read(self) -> bool {
        self.0.get() == u32::MAX
    }

    /// Returns how many may hold the lock once a token with this limit was let in; `u32::MAX` for
    /// [`READ`](Self::READ).
    pub const fn most(self) -> u32 {
        self.0.get()
    }

    /// Returns the number of permits; `None` for an exclusive lock and for a read lock.
    pub const fn as_permits(self) -> Option<NonZeroU32> {
        if self.is_alone() || self.is_read() { None } else { Some(self.0) }
    }

    /// Returns whether a token with this limit may hold the lock together with `others`, none of which holds it
    /// [alone](Self::ALONE).
    pub const fn fits(self, others: usize) -> bool {
        self.too_many(others) == 0
    }

    /// Returns how many of the `others` must leave before a token with this limit [fits](Self::fits).
    pub const fn too_many(self, others: usize) -> usize {
        if self.is_read() { 0 } else { (others + 1).saturating_sub(self.0.get() as usize) }
    }

    /// Returns whether a token with this limit may hold the lock together with `holders`, one of which has the limit
    /// `one`. One holder is enough to know whether the lock is held [alone](Self::ALONE).
    pub const fn joins(self, one: Self, holders: usize) -> bool {
        !one.is_alone() && self.fits(holders)
    }

    /// Reads the end of an owner token, which [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::ALONE),
            "r" => Some(Self::READ),
            // Only the form that is written is read. Otherwise one lease could have two tokens.
            _ if text.starts_with(['0', '+']) => None,
            _ => Self::permits(text.parse().ok()?).filter(|limit| limit.as_permits().is_some()),
        }
    }
}

/// Writes the end of an owner token: nothing for [`Limit::ALONE`], `r` for [`Limit::READ`], a number for permits.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_permits() {
            Some(permits) => permits.fmt(f),
            None if self.is_read() => f.write_str("r"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(n: u32) -> Limit {
        Limit::permits(n).expect("not zero")
    }

    #[test]
    fn one_more_fits_below_the_limit() {
        assert!(Limit::ALONE.fits(0) && !Limit::ALONE.fits(1));
        assert!(permits(3).fits(2) && !permits(3).fits(3) && !permits(3).fits(4));
        assert!(Limit::READ.fits(usize::MAX));
    }

    #[test]
    fn nobody_is_beside_one_that_is_alone() {
        assert!(!Limit::ALONE.joins(Limit::READ, 1) && !Limit::READ.joins(Limit::ALONE, 1));
        // Each token is counted by its own limit, whatever the limits of the others are.
        assert!(permits(3).joins(permits(2), 2) && !permits(2).joins(permits(9), 2));
        assert!(Limit::READ.joins(permits(1000), 1000));
    }

    #[test]
    fn so_many_have_to_leave() {
        assert_eq!(
            (permits(3).too_many(2), permits(3).too_many(3), permits(3).too_many(5)),
            (0, 1, 3)
        );
        assert_eq!((Limit::ALONE.too_many(7), Limit::READ.too_many(7)), (7, 0));
    }

    #[test]
    fn one_permit_is_exclusive_and_none_is_nothing() {
        assert_eq!(permits(1), Limit::ALONE);
        assert_eq!(Limit::permits(0), None);
        assert_eq!(permits(1).as_permits(), None);
    }

    #[test]
    fn no_number_of_permits_means_read() {
        assert!(Limit::READ.is_read() && !Limit::READ.is_alone());
        assert!(!permits(u32::MAX).is_read());
        assert!(permits(u32::MAX) < Limit::READ);
    }

    #[test]
    fn what_is_written_is_read() {
        for limit in [Limit::ALONE, Limit::READ, permits(2), permits(10_000), permits(u32::MAX)] {
            assert_eq!(Limit::parse(&limit.to_string()), Some(limit));
        }
        for text in ["0", "1", "05", "+5", "-5", "5r", "rr", "x", "4294967296", " "] {
            assert_eq!(Limit::parse(text), None, "{text:?}");
        }
    }
}
