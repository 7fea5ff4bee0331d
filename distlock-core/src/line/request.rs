//! Requests of callers, and the answers to them.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Limit, Term};

/// The types that a line is generic over. The product and the model bring their own.
pub trait Kinds: Clone + Eq + Hash + Debug {
    /// An owner token. A token names one lease, and is never used again (R7).
    type Token: Clone + Eq + Hash + Debug;
    /// A handle of one caller, which the line keeps from the caller's arrival to the end of its lease.
    type Caller: Clone + Eq + Hash + Debug;
    /// The reason why the store gave no answer to a command.
    type Fault: FaultClass;
}

/// The two questions that a line asks about a fault of the store.
pub trait FaultClass: Clone + Eq + Hash + Debug {
    /// Returns whether another attempt may succeed.
    fn is_passing(&self) -> bool;
    /// Returns whether no answer arrived in time.
    fn is_timeout(&self) -> bool;
}

impl FaultClass for crate::store::Fault {
    fn is_passing(&self) -> bool {
        self.passing
    }

    fn is_timeout(&self) -> bool {
        self.kind == crate::store::BackendKind::TimedOut
    }
}

/// A caller's request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// How many may hold the lock once this caller holds it (R1).
    pub limit: Limit,
    /// The terms of the lease.
    pub term: Term,
    /// When the caller asked.
    pub asked: Moment,
    /// The end of the caller's wait while others hold the lock.
    pub wait_until: Moment,
    /// The end of the caller's patience with the store: an answer after this is of no use.
    pub answer_by: Moment,
    /// The end of a lease on one of several locks if the caller does not have the others by then.
    /// `None` if the caller wants this lock alone, or has all of them.
    pub part_until: Option<Moment>,
    /// Whether waiting for other locks has used up the time for an answer about this one. Then a missing
    /// answer is no fault of the store.
    pub hurried: bool,
}

impl Request {
    /// Returns the terms on which the store is asked to keep the lock.
    ///
    /// If the store ends no lease of a live process by itself (`needs_renewal` is false), two kinds of leases
    /// are stored without an end, and the line ends them: those that readers share, and those on one of several
    /// locks until the caller has all of them.
    pub fn stored_term(&self, needs_renewal: bool) -> Term {
        if needs_renewal || self.part_until.is_none() && !self.limit.is_read() {
            return self.term;
        }
        Term { renewed: true, max_hold: None, ..self.term }
    }

    /// Returns the reason for a denial if the time is over and no answer said that the lock is taken.
    pub fn unanswered<F>(&self) -> Denied<F> {
        if self.hurried { Denied::TooLate } else { Denied::Unanswered }
    }
}

/// The position of a caller in a line. No other caller ever gets the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The number of the caller's batch.
    pub batch: u64,
    /// The number of the caller in its batch. Callers are served in the order of these numbers.
    pub at: i64,
}

/// The line's answer to a caller that arrives (R1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Arrival<K: Kinds> {
    /// No other caller of this process holds or awaits the lock. The caller tries to take it.
    Lead(OwnAttempt<K>),
    /// Other callers of this process read, and the caller reads with them from now on.
    Held(Position, K::Caller, Grant),
    /// The caller waits in the line.
    Wait(Position, K::Caller),
    /// Others are before the caller, which does not wait. It tries to take the lock outside the line.
    Alone(OwnAttempt<K>),
    /// Callers of this process hold the lock, or too many wait. Carries the time until the lock may be free,
    /// if that is known.
    Busy(Option<Duration>),
}

/// An attempt that a caller makes by itself (R2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnAttempt<K: Kinds> {
    /// The token to take the lock with. Nothing was sent for it yet.
    pub token: K::Token,
    /// The caller's position.
    pub position: Position,
    /// The caller.
    pub caller: K::Caller,
}

/// The outcome of a caller's own attempt (R2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AttemptOutcome<F> {
    /// The caller holds the lock.
    Held(Grant),
    /// The caller waits in the line.
    Wait,
    /// The caller does not get the lock.
    Denied {
        /// The reason.
        why: Denied<F>,
        /// Whether the token may own the lock, so that the caller has to release it.
        release: bool,
    },
    /// The engine has sent the same token, and only the answer to that counts.
    TakenOver,
}

/// A caller's hold on a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// A number above the fencing tokens of all earlier holders (I6).
    pub fencing_token: u64,
    /// The end of the lease as far as it is known. Renewals move it.
    pub deadline: Moment,
}

/// The reason why a caller did not get the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Denied<F> {
    /// Others hold the lock, for this long if that is known.
    Taken(Option<Duration>),
    /// The caller's time was over before the store could have answered.
    TooLate,
    /// The store did not answer in time.
    Unanswered,
    /// The store granted the lock, but its answer took longer than the lease lasts.
    Outlasted,
    /// The lease has no fencing token left.
    NoFence,
    /// The manager was closed.
    Closed,
    /// The store failed.
    Fault(F),
}

/// The reason why a lease ended before its holder gave it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Loss {
    /// No renewal was confirmed before the deadline.
    Expired = 2,
    /// The store said that the lock is not ours (R10).
    Taken = 3,
    /// The manager was closed.
    Closed = 4,
    /// The lock was held for its `max_hold`.
    MaxHold = 5,
    /// An operator took the lock away.
    Forced = 6,
    /// The caller asked for several locks, some were not free, and it was not polled to the end.
    Abandoned = 7,
}

/// The end of a hold, as its caller learns it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finished<K: Kinds> {
    /// Whether the lease was held until now. If not, it was lost before.
    pub was_held: bool,
    /// The token that the caller has to release now. `None` if the next holder has the lease, or if the line
    /// releases the token itself.
    pub release: Option<Freeing<K>>,
}

/// A token to be released.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Freeing<K: Kinds> {
    /// The token.
    pub token: K::Token,
    /// How long the store keeps the lock after the release, for a `min_hold`.
    pub keep: Option<Duration>,
    /// The end of the token's lease.
    pub deadline: Moment,
}
