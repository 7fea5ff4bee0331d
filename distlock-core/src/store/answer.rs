//! What a store says, as far as it concerns a lock's line.

use std::time::Duration;

use crate::clock::Moment;

/// What a store says to a try (R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The lock is the token's.
    Granted {
        /// A value of the fence counter, drawn for this grant.
        fence: u64,
        /// An instant not later than the grant: read before the command was sent.
        sent: Moment,
    },
    /// The lock is another token's, for this long if the store could say so.
    Taken {
        /// The rest of the lease.
        remaining: Option<Duration>,
    },
}

/// What a store says to an entry (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entered {
    /// The lock is the token's.
    Granted {
        /// A value of the fence counter, drawn for this grant.
        fence: u64,
        /// Read before the command was sent.
        sent: Moment,
        /// Others stand in the queue.
        contended: bool,
    },
    /// It stands in the queue.
    Queued {
        /// Its place.
        ticket: u64,
        /// How long the present owner's lease still runs; `None` if the store could not tell.
        remaining: Option<Duration>,
        /// The number of waiters before this one. Also 0 if this look has let others in; then the next look
        /// must come when their reservation is over.
        rank: u64,
        /// How many stand behind.
        behind: u64,
        /// It did not stand there before.
        added: bool,
    },
}

/// What a store says to an exchange of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exchanged {
    /// The lock is the new token's.
    Granted {
        /// A value of the fence counter, drawn for this grant.
        fence: u64,
        /// Read before the command was sent.
        sent: Moment,
        /// Others stand in the queue.
        contended: bool,
    },
    /// The lock was not the old token's any more, and is not the new one's.
    NotHeld,
}

/// What a store says to a renewal (R10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owned {
    /// The lock is the token's.
    Yes {
        /// Others stand in the queue.
        contended: bool,
        /// The value that was drawn, if one was asked for.
        fence: Option<u64>,
    },
    /// It is not.
    No,
}
