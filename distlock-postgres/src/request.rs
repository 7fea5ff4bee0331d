//! What is asked of the table, and what it answers.

use std::time::Duration;

/// What a token wants.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that asks for it.
    pub token: &'a str,
    /// How many may hold the lock when it is let in; `u32::MAX` for any number.
    pub most: u32,
    /// For how long.
    pub ttl: Duration,
    /// Its place in the queue; 0 for one at the end.
    pub ticket: u64,
    /// How long the lock is reserved for it when its turn has come.
    pub claim: Duration,
    /// It is sent messages: without a connection that listens it is dead.
    pub told: bool,
    /// It takes the lock or leaves nothing.
    pub is_try: bool,
    /// It must not have the lock after so long.
    pub within: Duration,
}

/// A token for another one.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// Has it alone.
    pub old: &'a str,
    /// Gets it.
    pub new: &'a str,
    /// How many may hold the lock when it is let in; `u32::MAX` for any number.
    pub most: u32,
    /// For how long.
    pub ttl: Duration,
    /// Not after so long.
    pub within: Duration,
}

/// The lock is the token's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// A value of the sequence.
    pub fence: u64,
    /// Others wait.
    pub contended: bool,
}

/// What is answered to a token that wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It has it.
    Granted(Granted),
    /// It has not; if it is no try, it waits.
    Waits {
        /// Its place.
        ticket: u64,
        /// Until there is room, if no holder leaves or is renewed.
        remaining: Option<Duration>,
        /// How many are in front.
        rank: u64,
        /// How many are behind.
        behind: u64,
        /// It did not stand there before.
        added: bool,
    },
    /// The lock was not the token's that was to be exchanged.
    NotHeld,
    /// It came too late by the server's clock, whose time is known now: ask again.
    Late,
    /// It is another server than before, or one that was started again: [raise](crate::Live::raise), and ask again.
    Moved,
}

/// What became of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freed {
    /// The lock was the token's.
    pub was_held: bool,
    /// It is kept, and others wait for it.
    pub awaited: bool,
    /// The tokens that were let in.
    pub next: Vec<String>,
}

/// A lease to extend.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that has it.
    pub token: &'a str,
    /// To at least this.
    pub ttl: Duration,
    /// Draw a value of the sequence as well.
    pub draw: bool,
}

/// A lock that is held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The tokens, and for how long they hold it, those that end first in front.
    pub holders: Vec<(String, Duration)>,
    /// The tokens that wait, in order.
    pub waiters: Vec<String>,
}

/// What a process says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Under which it uses locks.
    pub prefix: &'a str,
    /// What its tokens begin with.
    pub process: &'a str,
    /// In its own words.
    pub text: &'a str,
}
