//! Tokens of leases and batches, as the modelled server sees them.

use std::fmt;

use distlock_core::line::Limit;

/// Names one lease or waiting batch, as `<process>.<number>.<claim><mode><limit>` does. In an exhaustive
/// run a number is used again only when nothing in the world mentions it any more, which keeps the state
/// space finite.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    /// The identity of a manager. One that is started in the place of a dead one has another.
    pub(crate) process: u16,
    pub(crate) seq: u32,
    /// How many ms a reservation for this token lasts.
    pub(crate) claim: u32,
    /// Mode `n`: the process may be unable to hear, and must not be skipped for it.
    pub(crate) deaf: bool,
    /// How many may hold the lock while it is let in.
    pub(crate) limit: Limit,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.deaf { "n" } else { "" };
        write!(f, "P{}.{}.{}{mode}{}", self.process, self.seq, self.claim, self.limit)
    }
}
