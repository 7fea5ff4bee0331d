//! Why a lease was lost.

use std::fmt;

/// Why a lease was lost. `Display` says it in a sentence.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LostReason {
    /// It ran out before it was renewed or released.
    Expired,
    /// The store has the lock free or with another owner.
    Taken,
    /// An operator took it away: [`force_release`](crate::LockManager::force_release).
    Forced,
    /// It was held for its `max_hold`.
    MaxHold,
    /// The manager was closed.
    Closed,
}

impl LostReason {
    /// In a word, for a label: `expired`, `taken`, `forced`, `max_hold` or `closed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Forced => "forced",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
        }
    }

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Expired => "its lease ran out before it was renewed or released",
            Self::Taken => "the store has it free or with another owner",
            Self::Forced => "it was taken away by force_release",
            Self::MaxHold => "it was held for its `max_hold`",
            Self::Closed => "the lock manager was closed",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
