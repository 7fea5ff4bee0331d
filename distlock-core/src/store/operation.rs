//! Operations of a store: their type, the requests, and the answers to them.
//!
//! | method of [`Store`](super::Store) | request | answer |
//! |---|---|---|
//! | `try_acquire` | [`Attempt`] | [`Answer`] |
//! | `enter` | [`Entry`] | [`Entered`] |
//! | `renew` | [`Renewal`] | [`Renewed`], of [`Owned`] |
//! | `release` | an [`Owner`] | [`Freed`] |
//! | `exchange` | [`Exchange`] | [`Exchanged`] |
//! | `inspect` | a name | [`Held`] |

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::owner::Owner;
use super::term::Term;
use crate::clock::Moment;

/// An operation under way. It owns all its data, so its caller can leave it to the engine.
pub type Op<T> = OpOn<'static, T>;

/// An operation that only its caller waits for. It borrows the store, which spares a contended reference counter.
pub type OpOn<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// A request for the lock without a place in the queue.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The token.
    pub owner: Arc<Owner>,
    /// The term of the lease once the lock is granted.
    pub term: Term,
    /// Whether to find out for how long the lock is taken if it is.
    pub look: bool,
}

/// The answer to an attempt (R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The token holds the lock.
    Granted {
        /// The value of the fence counter that was drawn for this grant.
        fence: u64,
        /// When the command was sent, or earlier: a lower bound for the moment of the grant.
        sent: Moment,
    },
    /// Another token holds the lock.
    Taken {
        /// The rest of its lease; `None` if the store could not tell.
        remaining: Option<Duration>,
    },
}

/// A request for a place in the queue, or a look whether the place has come to its turn.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The token.
    pub owner: Arc<Owner>,
    /// The term of the lease once the lock is granted.
    pub term: Term,
    /// The ticket of the place that the token had before; 0 for a new place at the end.
    pub ticket: u64,
}

/// The answer to an entry (R3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entered {
    /// The token holds the lock.
    Granted {
        /// The value of the fence counter that was drawn for this grant.
        fence: u64,
        /// When the command was sent, or earlier.
        sent: Moment,
        /// Whether others stand in the queue.
        contended: bool,
    },
    /// The token stands in the queue.
    Queued {
        /// The ticket of its place.
        ticket: u64,
        /// The rest of the present owner's lease; `None` if the store could not tell.
        remaining: Option<Duration>,
        /// The number of waiters before this one. It is also 0 if this look has let others in. Then the next look must come
        /// when their reservation is over.
        rank: u64,
        /// The number of waiters after this one.
        behind: u64,
        /// Whether the token was not in the queue before.
        added: bool,
    },
}

/// A request to extend one lease.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The token.
    pub owner: Arc<Owner>,
    /// The least time to live after the renewal.
    pub ttl: Duration,
    /// Whether to draw from the fence counter as well.
    pub draw: bool,
    /// The value that the drawn one must be above.
    pub fence: u64,
}

/// The answers to several renewals.
#[derive(Debug)]
pub struct Renewed {
    /// When the commands were sent, or earlier.
    pub sent: Moment,
    /// One answer for each renewal, in their order.
    pub answers: Vec<Result<Owned, Fault>>,
}

/// The answer to one renewal (R10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owned {
    /// The token holds the lock.
    Yes {
        /// Whether others stand in the queue.
        contended: bool,
        /// The last value that was drawn, if the renewal draws.
        fence: Option<u64>,
    },
    /// The token does not hold the lock any more.
    No,
}

/// The answer to a release (R7).
#[derive(Debug, Clone)]
pub struct Freed {
    /// Whether the token held the lock until now.
    pub was_ours: bool,
    /// Whether no command of the token can take effect any more. If not, the release must be repeated.
    pub settled: bool,
    /// The tokens for which the lock was reserved next, in order.
    pub next: Vec<Box<str>>,
    /// Whether the lock is kept and others wait for it. Then it must be released once more when the time is over.
    pub awaited: bool,
}

impl Freed {
    /// Returns the answer that there was nothing to free.
    pub fn nothing() -> Self {
        Self { was_ours: false, settled: true, next: Vec::new(), awaited: false }
    }
}

/// A request to replace a token by another one of the same lock.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The token that holds the lock alone.
    pub old: Arc<Owner>,
    /// The token that is to hold the lock.
    pub new: Arc<Owner>,
    /// The term of the new token's lease.
    pub term: Term,
}

/// The answer to an exchange of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exchanged {
    /// The new token holds the lock.
    Granted {
        /// The value of the fence counter that was drawn for this grant.
        fence: u64,
        /// When the command was sent, or earlier.
        sent: Moment,
        /// Whether others stand in the queue.
        contended: bool,
    },
    /// Neither token holds the lock.
    NotHeld,
}

/// A lock that is held.
#[derive(Debug)]
pub struct Held {
    /// The holders, at least one. Those whose lease ends first come first.
    pub holders: Vec<Holder>,
    /// The tokens in the queue, the next one first.
    pub queue: Vec<String>,
}

/// One holder of a lock.
#[derive(Debug)]
pub struct Holder {
    /// Its token.
    pub token: String,
    /// The rest of its lease; `None` if the lease has no end, which is so for no lock of distlock.
    pub remaining: Option<Duration>,
}

impl Held {
    /// Returns the tokens of the holders.
    pub fn tokens(&self) -> impl Iterator<Item = &String> {
        self.holders.iter().map(|holder| &holder.token)
    }

    /// Returns how long it takes until the last lease ends; `None` if one has no end.
    pub fn remaining(&self) -> Option<Duration> {
        Holder::last_remaining(&self.holders)
    }

    /// Answers an attempt whose token the engine has sent to the queue meanwhile, from a look at the lock. The fence of
    /// a grant is 0, because the lock's line has the real one.
    pub fn taken_over(held: Option<&Self>, owner: &Owner) -> Answer {
        match held {
            None => Answer::Taken { remaining: Some(Duration::ZERO) },
            Some(held) if held.tokens().any(|token| *token == owner.token) => {
                Answer::Granted { fence: 0, sent: owner.first_sent() }
            }
            Some(held) => Answer::Taken { remaining: held.remaining() },
        }
    }
}

impl Holder {
    /// Returns how long it takes until the last lease ends; `None` if one has no end.
    pub(super) fn last_remaining(holders: &[Self]) -> Option<Duration> {
        let leases = holders.iter().map(|holder| holder.remaining);
        leases.reduce(|one, other| Some(one?.max(other?))).flatten()
    }
}
