//! The try of a call by itself: `SET NX`, without a place in the store's queue (R2).
//!
//! [`Lead`] is the try of a call that found an empty line; the engine takes it over as soon as another
//! call depends on it. [`Alone`] is the try of a call that found others and does not wait. Dropped before
//! it is settled, a try releases what it may have taken.

use std::sync::Arc;

use super::core::{Answer, AttemptOutcome, Denied, OwnAttempt};
use super::effects::Live;
use super::lease::Lease;
use super::table::LockTable;
use super::waiter::Waiting;
use crate::clock::Moment;
use crate::observe::Verb;
use crate::store::Fault;
use crate::store::owner::Owner;

/// What came of a try.
pub(crate) enum Settled<'a> {
    Held(Arc<Lease>),
    Wait(Waiting<'a>),
    Denied(Denied<Fault>),
}

/// A try of either kind.
pub(super) enum Try<'a> {
    Lead(Lead<'a>),
    Alone(Alone<'a>),
}

impl<'a> Try<'a> {
    pub(super) fn owner(&self) -> &Arc<Owner> {
        match self {
            Self::Lead(lead) => &lead.owner,
            Self::Alone(alone) => &alone.owner,
        }
    }

    /// When its command was sent.
    pub(super) fn sent(&self) -> Moment {
        match self {
            Self::Lead(lead) => lead.lease.account().sent(),
            Self::Alone(alone) => alone.lease.account().sent(),
        }
    }

    /// The store has answered, or has not. The call `waits` if it may.
    #[inline]
    pub(super) fn settle(self, answer: Result<Answer, Fault>, waits: bool) -> Settled<'a> {
        match self {
            Self::Lead(lead) => lead.settle(answer, waits),
            Self::Alone(alone) => alone.settle(answer),
        }
    }

    /// The same when the answer has come just now: its time is reported to observers, with the lease if it
    /// was granted.
    #[inline]
    pub(super) fn settle_now(self, answer: Result<Answer, Fault>, waits: bool) -> Settled<'a> {
        let table = match &self {
            Self::Lead(lead) => lead.table,
            Self::Alone(alone) => alone.table,
        };
        let (sent, ok) = (self.sent(), answer.is_ok());
        let settled = self.settle(answer, waits);
        match &settled {
            Settled::Held(lease) => lease.account().came_of_try(),
            Settled::Wait(_) | Settled::Denied(_) => {
                table.observers().answered(Verb::Set, (table.clock(), sent), ok);
            }
        }
        settled
    }
}

pub(super) struct Lead<'a> {
    table: &'a Arc<LockTable>,
    owner: Arc<Owner>,
    lease: Arc<Lease>,
    /// The token may own the lock, and nothing else will release it.
    open: bool,
}

impl<'a> Lead<'a> {
    pub(super) fn new(table: &'a Arc<LockTable>, attempt: OwnAttempt<Live>) -> Self {
        Self { table, owner: attempt.token, lease: attempt.caller, open: true }
    }

    #[inline]
    fn settle(mut self, answer: Result<Answer, Fault>, waits: bool) -> Settled<'a> {
        let lease = &self.lease;
        let granted = matches!(answer, Ok(Answer::Granted { .. }));
        if granted {
            self.owner.set_granted();
        }
        let denied = match &answer {
            // Only `close` takes a batch out whose try is under way.
            Ok(Answer::Granted { .. }) => Denied::Closed,
            Ok(Answer::Taken { remaining }) => Denied::Taken(*remaining),
            Err(fault) => Denied::Fault(fault.clone()),
        };
        let settled = match self.table.tried(lease, answer, waits) {
            AttemptOutcome::Held(_) => {
                self.open = false;
                Settled::Held(lease.clone())
            }
            AttemptOutcome::Wait => {
                self.open = false;
                Settled::Wait(Waiting::new(self.table, lease.clone()))
            }
            AttemptOutcome::Denied { why, release } => {
                // Taken, but of several servers some have given it the lock, or may.
                self.open = release || self.owner.may_be_stored();
                Settled::Denied(why)
            }
            // The engine sends the same token again, and its answer counts.
            AttemptOutcome::TakenOver => match self.taken_over() {
                Some(waiting) if granted || waits => Settled::Wait(waiting),
                _ => Settled::Denied(denied),
            },
        };
        self.undo();
        settled
    }

    /// Its place in the line once the engine has taken over.
    fn taken_over(&mut self) -> Option<Waiting<'a>> {
        let lease = &self.lease;
        if !lease.is_in_line() {
            return None;
        }
        self.open = false;
        Some(Waiting::new(self.table, lease.clone()))
    }

    /// The engine may have released the token before the try was sent: then it has to be released again.
    /// Or the token was held, and its last holder is done: then this release must not free what that
    /// one keeps for its `min_hold`, and if it comes first the other is not to take the lock for lost.
    fn undo(&mut self) {
        let owner = &self.owner;
        if owner.is_retired() && !owner.is_unsent() {
            owner.undo();
            let keep = owner.kept(self.table.clock().now());
            self.table.release_in_background(owner.clone(), keep);
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.open || !self.table.home().is_here() {
            return;
        }
        if !self.table.give_up_try(&self.lease) && self.taken_over().is_some() {
            self.undo();
        } else {
            self.table.release_in_background(self.owner.clone(), None);
        }
    }
}

pub(super) struct Alone<'a> {
    table: &'a Arc<LockTable>,
    owner: Arc<Owner>,
    lease: Arc<Lease>,
    /// The token may own the lock, and nothing else will release it.
    open: bool,
}

impl<'a> Alone<'a> {
    pub(super) fn new(table: &'a Arc<LockTable>, attempt: OwnAttempt<Live>) -> Self {
        Self { table, owner: attempt.token, lease: attempt.caller, open: true }
    }

    fn settle(mut self, answer: Result<Answer, Fault>) -> Settled<'a> {
        if let Ok(Answer::Granted { .. }) = answer {
            self.owner.set_granted();
        }
        match self.table.tried_alone(&self.owner, &self.lease, answer) {
            AttemptOutcome::Held(_) => {
                self.open = false;
                Settled::Held(self.lease.clone())
            }
            AttemptOutcome::Denied { why, release } => {
                // Taken, but of several servers some have given it the lock, or may.
                self.open = release || self.owner.may_be_stored();
                Settled::Denied(why)
            }
            // A try past the line is its caller's alone.
            AttemptOutcome::Wait | AttemptOutcome::TakenOver => Settled::Denied(Denied::Unanswered),
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if self.open && self.table.home().is_here() {
            self.table.release_in_background(self.owner.clone(), None);
        }
    }
}
