//! Tokens of leases and batches, and fencing tokens.

use std::fmt;

/// Names one lease or waiting batch, as `<proc>.<seq>.<claim><mode>` does. A sequence number is used
/// again only when nothing in the world mentions it any more, which keeps the state space finite.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) process: u8,
    pub(crate) seq: u8,
    /// How many ticks a reservation for this token lasts.
    pub(crate) claim: u8,
    /// Mode `n`: the process may be unable to hear, and must not be skipped for it.
    pub(crate) deaf: bool,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.deaf { "n" } else { "" };
        write!(f, "{}{}c{}{mode}", char::from(b'A' + self.process), self.seq, self.claim)
    }
}

/// A public fencing token: F and the number of local hand-overs under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Fencing {
    pub(crate) fence: u16,
    pub(crate) step: u8,
}

impl fmt::Debug for Fencing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.fence, self.step)
    }
}
