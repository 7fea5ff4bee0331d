//! Why a lease was lost.

use std::fmt;

/// The reason why a lease was lost. `Display` is a sentence, and [`as_str`](Self::as_str) a label.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::observe::LostReason;
///
/// assert_eq!(LostReason::MaxHold.as_str(), "max_hold");
/// assert_eq!(LostReason::MaxHold.to_string(), "it was held for its `max_hold`");
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LostReason {
    /// The lease ran out before it was renewed or released.
    ///
    /// The process or the store was paused or unreachable for longer than the `ttl`.
    Expired,
    /// The store has the lock free or with another owner.
    ///
    /// Another client deleted or changed the key, or the server lost its data.
    Taken,
    /// An operator took it away: [`force_release`](crate::LockManager::force_release).
    Forced,
    /// The lock was held for its `max_hold`, and is not renewed past that.
    MaxHold,
    /// The manager was closed.
    Closed,
}

impl LostReason {
    /// Returns the reason as one word for a label: `expired`, `taken`, `forced`, `max_hold` or
    /// `closed`.
    ///
    /// These words are part of the public surface: metrics and events use them, too.
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
