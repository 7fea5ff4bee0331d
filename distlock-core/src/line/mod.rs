//! What becomes of one lock in one process: a state machine without a store, a clock, a mutex, a waker
//! or a task. Time is an argument, and what is to be done goes to a [`Shell`], which carries it out.
//! The product's shell is `lock::table`; the model has another one, so that what it checks is this
//! code.
//!
//! A lock's [`Line`] is its batches in order of arrival. A batch is neighbours that share one place of
//! the store's queue and one owner token:
//!
//! ```text
//! Leading ──────────────► Owned            the fast path (R2)
//!    │ another caller,      ▲ │            granted (R3)
//!    ▼ or not free          │ ▼            lost, or unfit for the next holder (R6, R10)
//!    └──────────────────► Queued
//! ```
//!
//! | file | decides |
//! |---|---|
//! | [`acquire`](self) (`acquire.rs`) | leading, joining, passing by, leaving: R1, R2, R5, R8 |
//! | `enter.rs` | looks, hints and the answers to them: R3, R4, R11, R12, R13 |
//! | `hold.rs` | granting, handing over, ending: R5, R6, R7, `min_hold` |
//! | `renew.rs`, `lose.rs` | renewals, what is due, losses: R10, `max_hold` |
//! | `downgrade.rs` | a writer that goes on as a reader |
//! | `release.rs` | what follows from the answer to a release: R7 |
//! | `close.rs` | the end of a manager |
//! | `batch.rs`, `waiters.rs`, `claims.rs`, `claim.rs`, `holders.rs`, `holder.rs` | the states themselves |
//!
//! Nothing here says that a lock has one owner. How many may have it is the [`Limit`] of the caller: a
//! batch has [`Claims`], of permits several, and a claim has [`Holders`], of readers several.

// Public for the model, which is built with the feature `model`.
#![allow(unreachable_pub)]

mod acquire;
mod batch;
mod claim;
mod claims;
mod close;
mod downgrade;
mod enter;
mod hold;
mod holder;
mod holders;
mod line;
mod lose;
#[cfg(feature = "model")]
mod relabel;
mod release;
mod renew;
#[cfg(test)]
mod tests;
mod waiters;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::Term;

#[cfg(any(feature = "model", test))]
pub use crate::store::owner::TOKENS_PER_FENCE;
pub use crate::store::{Answer, Entered, Exchanged, Limit, Owned};
pub use batch::{Batch, Queued, Stage};
pub use claim::{Claim, Renewal};
pub use claims::Claims;
pub use downgrade::Exchange;
pub use holder::{Holder, Phase};
#[cfg(feature = "model")]
pub use holders::{Holders, Several};
pub use line::Line;
#[cfg(feature = "model")]
pub use line::{Aside, Lost};
#[cfg(feature = "model")]
pub use relabel::Relabel;
pub use release::{FollowUp, NextOwner, follow_up};
pub use waiters::{Waiters, Waiting};

/// How long a reserved lock waits for an owner that is notified.
pub const RESERVATION: Duration = Duration::from_secs(1);

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

/// Carries out what a line decides. It is called in the middle of a change: nothing of a user's may run
/// in it, and commands are sent, in the order of the calls, once the change is over.
pub trait Shell<K: Kinds> {
    // What the core cannot know or make up by itself.

    /// A token that was never issued, with that limit, for which the store is to reserve the lock as
    /// `reservation` says.
    fn issue(&mut self, limit: Limit, reservation: Reservation, now: Moment) -> K::Token;
    /// A number that was never given out.
    fn number(&mut self) -> u64;
    /// This process is notified of reservations of this lock.
    fn is_notified(&self) -> bool;
    /// Without messages, a waiter looks for the first time after this long.
    fn first_look(&self) -> Duration {
        acquire::LOOK_DEAF
    }
    /// How many counter values a renewal draws that is to draw some.
    fn fences_per_draw(&self) -> u64;
    /// The store ends a lease that is not renewed. Where it lives and dies with the process, a renewed
    /// lease has no end.
    fn needs_renewal(&self) -> bool;
    /// The manager gives no more locks.
    fn is_closed(&self) -> bool;
    /// No command that could create the lock was sent for this token.
    fn is_unsent(&self, token: &K::Token) -> bool;
    /// A part of `whole`, at random.
    fn jittered(&mut self, whole: Duration) -> Duration;
    /// The caller has the lock, and all others that it asked for.
    fn in_hand(&self, seat: &K::Seat) -> bool;
    /// A body runs under the lease.
    fn has_body(&self, seat: &K::Seat) -> bool;
    /// Takes a grant back that the caller has not taken in a poll of its own (R5); false if it has.
    fn take_back(&mut self, seat: &K::Seat) -> bool;

    // What callers learn.

    /// The caller whose try is under way waits for the engine's answer instead (R2).
    fn take_over(&mut self, seat: &K::Seat);
    /// The lock is the caller's to take (R5), from `now` on.
    fn grant(&mut self, seat: &K::Seat, grant: Grant, now: Moment);
    /// The caller will not get it.
    fn deny(&mut self, seat: &K::Seat, why: Denied<K::Fault>);
    /// It is known by now that the lock is taken: a caller whose `wait` is over may ask for
    /// [`Line::verdict`].
    fn wake(&mut self, seat: &K::Seat);
    /// The holder's lease ends at `deadline` from now on.
    fn extended(&mut self, seat: &K::Seat, deadline: Moment);
    /// The holder's lease is lost. Final.
    fn lost(&mut self, seat: &K::Seat, loss: Loss);
    /// The store may forget that a lease of one of several locks had no end.
    fn begin_term(&mut self, token: &K::Token, term: Term);

    // What the store is asked.

    /// Enter the queue, or look at it. Answered with [`Line::entered`].
    fn enter(&mut self, enter: Enter<K>);
    /// Release, behind what was sent for the lock so far, and until it is confirmed (R8, R9). With `keep`
    /// the lock is kept for that time (`min_hold`).
    fn release(&mut self, token: K::Token, keep: Option<Duration>);
    /// Nothing that creates the lock is sent for this token any more (R7).
    fn retire(&mut self, token: &K::Token);
    /// Renew. Answered with [`Line::renewed`].
    fn renew(&mut self, renew: Renew<K>);
    /// Of a manager that is being closed.
    fn closing(&mut self, closing: Closing<K>);
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

/// How a token has the lock reserved for its process (R12, R13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// The process is notified; without a subscription it is dead.
    pub notified: bool,
    /// For so long.
    pub time: Duration,
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

/// A lock that a caller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Above that of every earlier holder.
    pub fencing_token: u64,
    /// The end of the lease as far as it is known.
    pub deadline: Moment,
}

/// A place in the queue, or the wish for one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Enter<K: Kinds> {
    /// The batch's token.
    pub token: K::Token,
    /// On what terms it is held once it is granted.
    pub term: Term,
    /// The place it had before; 0 for a new one at the end.
    pub ticket: u64,
}

/// A lease to extend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renew<K: Kinds> {
    /// Of the lease.
    pub token: K::Token,
    /// To at least this time to live.
    pub ttl: Duration,
    /// Draw from the fence counter as well.
    pub draw: bool,
    /// The last counter value that it has.
    pub fence: u64,
    /// When it ends as it is.
    pub deadline: Moment,
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

/// What closing a manager does to one lease.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Closing<K: Kinds> {
    /// It is to be released now.
    Free {
        /// What to release.
        release: Freeing<K>,
        /// The lease was held until now.
        was_held: bool,
    },
    /// A body runs under it: its holder gives it back.
    InUse(K::Seat),
}
