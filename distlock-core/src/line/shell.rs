//! What a line asks of the code around it.

use std::time::Duration;

use super::request::{Denied, Freeing, Grant, Kinds, Loss};
use crate::clock::Moment;
use crate::store::{Limit, Term};

/// How long a reserved lock waits for an owner that is notified.
pub const RESERVATION: Duration = Duration::from_secs(1);

/// A process that is not notified looks at least so often (R11); its reservations outlast that.
pub(super) const LOOK_DEAF: Duration = Duration::from_secs(1);

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
        LOOK_DEAF
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

/// How a token has the lock reserved for its process (R12, R13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// The process is notified; without a subscription it is dead.
    pub notified: bool,
    /// For so long.
    pub time: Duration,
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

/// A token that is to be exchanged at the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Exchange<K: Kinds> {
    /// Has the lock alone.
    pub old: K::Token,
    /// Is to have it with others that read.
    pub new: K::Token,
    /// On these terms.
    pub term: Term,
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

/// The reservation of a token that is issued now: for a process that polls, long enough that it has polled.
pub(super) fn reservation<K: Kinds, X: Shell<K>>(reserve_for: Duration, shell: &X) -> Reservation {
    let notified = shell.is_notified();
    let time = if notified { reserve_for } else { reserve_for.max(LOOK_DEAF * 3) };
    Reservation { notified, time }
}

/// A token under which nothing was sent.
#[inline]
pub(super) fn issue<K: Kinds, X: Shell<K>>(
    reserve_for: Duration,
    limit: Limit,
    now: Moment,
    shell: &mut X,
) -> (K::Token, Reservation) {
    let reservation = reservation(reserve_for, shell);
    (shell.issue(limit, reservation, now), reservation)
}
