//! How many may hold a lock at once: the one number in which exclusive locks, read locks and permits
//! differ.

use std::fmt;
use std::num::NonZeroU32;

/// How many may hold the lock at once while a token with this limit is let in.
///
/// A token is let in while no token has the lock alone and fewer than its limit hold it. So [`ALONE`] waits
/// for all other holders and keeps all others out, [`READ`] runs beside any holder that is not alone, and
/// `permits(n)` is at most the n-th. Each token is counted by its own limit: different ones may meet on one key.
///
/// [`ALONE`]: Self::ALONE
/// [`READ`]: Self::READ
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroU32);

impl Limit {
    /// An exclusive lock; a write lock is the same.
    pub const ALONE: Self = Self(NonZeroU32::MIN);
    /// A read lock: any number.
    pub const READ: Self = Self(NonZeroU32::MAX);

    /// One of `n` permits; `None` for 0. With one permit a lock is exclusive. The largest number of all
    /// stands for [`READ`](Self::READ), so it counts as one less.
    pub const fn permits(n: u32) -> Option<Self> {
        match NonZeroU32::new(if n == u32::MAX { n - 1 } else { n }) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// No other may hold the lock with it.
    pub const fn is_alone(self) -> bool {
        self.0.get() == 1
    }

    /// Any number may hold the lock with it.
    pub const fn is_read(self) -> bool {
        self.0.get() == u32::MAX
    }

    /// How many may hold the lock when one with it is let in; the largest number of all for
    /// [`READ`](Self::READ).
    pub const fn most(self) -> u32 {
        self.0.get()
    }

    /// The number of permits; `None` for exclusive and for read.
    pub const fn as_permits(self) -> Option<NonZeroU32> {
        if self.is_alone() || self.is_read() { None } else { Some(self.0) }
    }

    /// Whether one more with this limit may hold the lock when `others` do, none of them
    /// [alone](Self::ALONE).
    pub const fn fits(self, others: usize) -> bool {
        self.too_many(others) == 0
    }

    /// How many of the `others` have to leave before one more with this limit fits.
    pub const fn too_many(self, others: usize) -> usize {
        if self.is_read() { 0 } else { (others + 1).saturating_sub(self.0.get() as usize) }
    }

    /// Whether it may hold the lock beside so many holders, any one of which has the limit `one`: never
    /// beside one that is [alone](Self::ALONE).
    pub const fn joins(self, one: Self, holders: usize) -> bool {
        !one.is_alone() && self.fits(holders)
    }

    /// Of what an owner token ends with.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::ALONE),
            "r" => Some(Self::READ),
            // As it is written, and no other way: two tokens of one lease would differ.
            _ if text.starts_with(['0', '+']) => None,
            _ => Self::permits(text.parse().ok()?).filter(|limit| limit.as_permits().is_some()),
        }
    }
}

/// What an owner token ends with: nothing for [`Limit::ALONE`], `r` for [`Limit::READ`], a number for
/// permits.
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
        // Each by its own limit, whatever the others' limits are.
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
