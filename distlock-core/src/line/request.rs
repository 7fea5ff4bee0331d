//! What callers ask of a line, and what they learn.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Limit, Term};

/// What a line is made of.
pub trait Kinds: Clone + Eq + Hash + Debug {
    /// An owner token, used for one lease.
    type Token: Clone + Eq + Hash + Debug;
    /// Where a caller waits for the lock and holds it afterwards.
    type Seat: Clone + Eq + Hash + Debug;
    /// Why a store could not say yes or no.
    type Fault: Fault;
}

/// Why a store could not say yes or no.
pub trait Fault: Clone + Eq + Hash + Debug {
    /// Another try may go better.
    fn is_passing(&self) -> bool;
    /// No answer has come in time.
    fn is_timeout(&self) -> bool;
}

impl Fault for crate::store::Fault {
    fn is_passing(&self) -> bool {
        self.passing
    }

    fn is_timeout(&self) -> bool {
        self.kind == crate::store::BackendKind::TimedOut
    }
}

/// What a caller wants of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// How many may hold the lock when it is let in.
    pub limit: Limit,
    /// For how long.
    pub term: Term,
    /// When it came.
    pub asked: Moment,
    /// Others may hold the lock until then.
    pub wait_until: Moment,
    /// No answer counts after this.
    pub answer_by: Moment,
    /// It is one of several locks, of no use without the others after this.
    pub part_until: Option<Moment>,
    /// So much was spent in the lines of other locks that an answer about this one may not be there
    /// in time: that it is not is no fault of the store's.
    pub hurried: bool,
}

impl Request {
    /// What is asked of the store. Where leases need no renewal, one that readers may share is stored without
    /// an end, and so is that of one of several locks before its holder has them all: this code ends them.
    pub fn stored_term(&self, needs_renewal: bool) -> Term {
        if needs_renewal || self.part_until.is_none() && !self.limit.is_read() {
            return self.term;
        }
        Term { renewed: true, max_hold: None, ..self.term }
    }

    /// What it comes to if it is not known that the lock is taken when its time is over.
    pub fn unanswered<F>(&self) -> Denied<F> {
        if self.hurried { Denied::TooLate } else { Denied::Unanswered }
    }
}

/// Where a caller stands in a line: in a batch, at a number. Never used for another caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The batch's number.
    pub batch: u64,
    /// The caller's number in it; callers behind it have higher ones.
    pub at: i64,
}

/// What a caller finds that wants a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Arrival<K: Kinds> {
    /// No call of this process has or wants it: try.
    Lead(Attempt<K>),
    /// Others here read, and the caller reads with them.
    Held(Place, K::Seat, Grant),
    /// Others are in front.
    Wait(Place, K::Seat),
    /// Others are in front, but the caller does not wait: try without a place in the line.
    Alone(Attempt<K>),
    /// A call of this process has it, or too many wait.
    Busy(Option<Duration>),
}

/// A try under a token of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attempt<K: Kinds> {
    /// Not sent yet.
    pub token: K::Token,
    /// The batch that leads with it.
    pub place: Place,
    /// The caller's.
    pub seat: K::Seat,
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tried<F> {
    /// The caller has the lock.
    Held(Grant),
    /// The caller waits at its place.
    Wait,
    /// It does not get it; with `release` its token has to be released.
    Denied {
        /// Why.
        why: Denied<F>,
        /// The token may own the lock.
        release: bool,
    },
    /// The engine has sent the same token again: its answer counts.
    TakenOver,
}

/// A lock that a caller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Above that of every earlier holder.
    pub fencing_token: u64,
    /// The end of the lease as far as it is known.
    pub deadline: Moment,
}

/// Why a caller did not get the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Denied<F> {
    /// Others hold it, for this long if that is known.
    Taken(Option<Duration>),
    /// Its time was over before an answer could be there.
    TooLate,
    /// No answer has come.
    Unanswered,
    /// The store's answer took longer than the lease.
    Outlasted,
    /// No fencing token is left.
    NoFence,
    /// The manager gives no more locks.
    Closed,
    /// The store could not say.
    Fault(F),
}

/// How a lease ended that its holder did not give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Loss {
    /// The deadline passed without a confirmed renewal.
    Expired = 2,
    /// The store says that the lock is not ours.
    Taken = 3,
    /// The manager was closed.
    Closed = 4,
    /// It was held for as long as it may be.
    MaxHold = 5,
    /// An operator took it away.
    Forced = 6,
    /// The call that asked for it, and for others that were not free, was not polled to its end.
    Abandoned = 7,
}

/// What is left to do for a lease that was given back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finished<K: Kinds> {
    /// The lease was held until now.
    pub was_held: bool,
    /// To be released now, by the caller. `None`: it went on to the next holder, or the line has it
    /// released.
    pub release: Option<Freeing<K>>,
}

/// A token to be released.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Freeing<K: Kinds> {
    /// Which.
    pub token: K::Token,
    /// `min_hold`: the lock is not to be free before this.
    pub keep: Option<Duration>,
    /// Its deadline.
    pub deadline: Moment,
}
