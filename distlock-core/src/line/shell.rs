//! The boundary of a line: facts that it cannot know by itself, notices to callers, and commands to the store.

use std::time::Duration;

use super::request::{Denied, Freeing, Grant, Kinds, Loss};
use crate::clock::Moment;
use crate::store::{Limit, Term};

/// How long a reserved lock waits for an owner that is notified (R12).
pub const RESERVATION: Duration = Duration::from_secs(1);

/// R11: how often a process looks that is not notified. Its reservations last longer than this.
pub(super) const LOOK_DEAF: Duration = Duration::from_secs(1);

/// The code around a line, which carries out what the line decides.
///
/// A line calls its shell in the middle of a change. So the shell must not run a user's code there, and it
/// sends commands only after the change, in the order of the calls.
pub trait Shell<K: Kinds> {
    // Facts that a line cannot know, and values that it cannot make up. `is_notified`, `is_closed`,
    // `is_unsent`, `in_hand`, `has_body` and `take_back` depend on state that other threads change.

    /// Issues a token that was never issued before, for this limit. The store reserves the lock for it as
    /// `reservation` says.
    fn issue(&mut self, limit: Limit, reservation: Reservation, now: Moment) -> K::Token;
    /// Returns a number that was never returned before.
    fn number(&mut self) -> u64;
    /// Returns whether this process is notified when the lock is reserved for it (R13).
    fn is_notified(&self) -> bool;
    /// Returns the time until the first look of a waiter that is not notified (R11).
    fn first_look(&self) -> Duration {
        LOOK_DEAF
    }
    /// Returns how many counter values a renewal draws if it draws any (R5).
    fn fences_per_draw(&self) -> u64;
    /// Returns whether the store ends a lease that is not renewed. A store inside this process does not, and
    /// its renewed leases have no end.
    fn needs_renewal(&self) -> bool;
    /// Returns whether the manager was closed.
    fn is_closed(&self) -> bool;
    /// Returns whether no command was sent that could take the lock for this token.
    fn is_unsent(&self, token: &K::Token) -> bool;
    /// Returns a random part of `whole`.
    fn jittered(&mut self, whole: Duration) -> Duration;
    /// Returns whether the caller has taken this lock, and all others that it asked for.
    fn in_hand(&self, caller: &K::Caller) -> bool;
    /// Returns whether a body runs under the caller's lease.
    fn has_body(&self, caller: &K::Caller) -> bool;
    /// Takes a grant back that the caller has not taken in a poll of its own (R5). Returns false if it has.
    fn take_back(&mut self, caller: &K::Caller) -> bool;

    // Notices to callers.

    /// Tells a caller whose own attempt is under way to await the engine's answer instead (R2).
    fn take_over(&mut self, caller: &K::Caller);
    /// Offers the lock to a caller, which holds it from `now` on and has to take it (R5).
    fn grant(&mut self, caller: &K::Caller, grant: Grant, now: Moment);
    /// Tells a caller that it does not get the lock.
    fn deny(&mut self, caller: &K::Caller, why: Denied<K::Fault>);
    /// Wakes a caller because the lock is now known to be taken. If its `wait` is over, it asks for
    /// [`Line::verdict`](super::Line::verdict).
    fn wake(&mut self, caller: &K::Caller);
    /// Tells a holder the new deadline of its lease.
    fn extended(&mut self, caller: &K::Caller, deadline: Moment);
    /// Tells a holder that its lease is lost. A lost lease is never held again.
    fn lost(&mut self, caller: &K::Caller, loss: Loss);
    /// Tells a store that keeps leases on one of several locks without an end that this one now has these
    /// terms.
    fn begin_term(&mut self, token: &K::Token, term: Term);

    // Commands to the store.

    /// Enters the queue, or looks at it. The answer goes to [`Line::entered`](super::Line::entered).
    fn enter(&mut self, enter: Enter<K>);
    /// Releases a token after everything that was sent for its lock so far, until the store confirms it (R8,
    /// R9). With `keep` the store keeps the lock for that long (`min_hold`).
    fn release(&mut self, token: K::Token, keep: Option<Duration>);
    /// Stops every command that could take the lock for this token (R7).
    fn retire(&mut self, token: &K::Token);
    /// Renews a lease. The answer goes to [`Line::renewed`](super::Line::renewed).
    fn renew(&mut self, renew: Renew<K>);
    /// Ends a lease of a manager that is being closed.
    fn closing(&mut self, closing: Closing<K>);
}

/// The way in which the store reserves the lock for a token (R12, R13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Whether the process is notified. The store takes a notified process without a subscription for dead.
    pub notified: bool,
    /// How long the reservation lasts.
    pub time: Duration,
}

/// A command to enter the queue, or to look at the place in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Enter<K: Kinds> {
    /// The token of the batch.
    pub token: K::Token,
    /// The terms of the lease once it is granted.
    pub term: Term,
    /// The ticket that the batch had before. 0 asks for a new one, at the end of the queue.
    pub ticket: u64,
}

/// A command to renew a lease (R10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renew<K: Kinds> {
    /// The token that owns the lock.
    pub token: K::Token,
    /// The least time to live that is asked for.
    pub ttl: Duration,
    /// Whether to draw values of the fence counter as well (R5).
    pub draw: bool,
    /// The last counter value that was drawn for this token.
    pub fence: u64,
    /// The present end of the lease.
    pub deadline: Moment,
}

/// A command to exchange a holder's token for one that reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Downgrade<K: Kinds> {
    /// The token that owns the lock alone.
    pub old: K::Token,
    /// The token that shares the lock with other readers afterwards.
    pub new: K::Token,
    /// The terms of the new token's lease.
    pub term: Term,
}

/// The end of one lease of a manager that is being closed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Closing<K: Kinds> {
    /// The token is to be released now.
    Free {
        /// The token to release.
        release: Freeing<K>,
        /// Whether the lease was held until now.
        was_held: bool,
    },
    /// A body runs under the lease. Its holder releases the token once the body is gone.
    InUse(K::Caller),
}

/// Returns the reservation of a token that is issued now. That of a process which polls lasts until the
/// process has polled.
pub(super) fn reservation<K: Kinds, X: Shell<K>>(reserve_for: Duration, shell: &X) -> Reservation {
    let notified = shell.is_notified();
    let time = if notified { reserve_for } else { reserve_for.max(LOOK_DEAF * 3) };
    Reservation { notified, time }
}

/// Issues a token, together with its reservation.
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
