//! The try of a call by itself: `SET NX`, without a place in the store's queue (R2).
//!
//! A call that found an empty line leads it: the engine takes its try over as soon as another call depends on it.
//! A call that found others, and does not wait, tries past the line. Dropped before it is settled, a try releases
//! what it may have taken.

use std::sync::Arc;

use distlock_core::clock::Moment;
use distlock_core::line::{Answer, AttemptOutcome, Denied, OwnAttempt};
use distlock_core::store::Fault;
use distlock_core::store::owner::Owner;

use super::effects::Live;
use super::lease::Lease;
use super::table::LockTable;
use super::waiter::Waiting;
use crate::observe::Verb;

/// The outcome of a try.
pub(super) enum Settled<'a> {
    Held(Arc<Lease>),
    Wait(Waiting<'a>),
    Denied(Denied<Fault>),
}

/// A try under way.
pub(super) struct Try<'a> {
    table: &'a Arc<LockTable>,
    pub(super) owner: Arc<Owner>,
    lease: Arc<Lease>,
    /// Whether it leads its line; otherwise it has no place there.
    leads: bool,
    /// Whether the token may own the lock, and nothing else will release it.
    open: bool,
}

impl<'a> Try<'a> {
    pub(super) fn new(table: &'a Arc<LockTable>, attempt: OwnAttempt<Live>, leads: bool) -> Self {
        Self { table, owner: attempt.token, lease: attempt.caller, leads, open: true }
    }

    /// Returns when its command was sent.
    pub(super) fn sent(&self) -> Moment {
        self.lease.account.sent()
    }

    /// Settles it by the store's answer. The call `waits` if it may.
    #[inline]
    pub(super) fn settle(mut self, answer: Result<Answer, Fault>, waits: bool) -> Settled<'a> {
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
        let settled = match self.tell_line(answer, waits) {
            AttemptOutcome::Held(_) => {
                self.open = false;
                Settled::Held(self.lease.clone())
            }
            AttemptOutcome::Wait => {
                self.open = false;
                Settled::Wait(Waiting::new(self.table, self.lease.clone()))
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
        if self.leads {
            self.undo();
        }
        settled
    }

    /// Settles it by an answer that has come just now, whose time is reported to observers: with the lease if
    /// it was granted.
    #[inline]
    pub(super) fn settle_now(self, answer: Result<Answer, Fault>, waits: bool) -> Settled<'a> {
        let (table, sent, ok) = (self.table, self.sent(), answer.is_ok());
        let settled = self.settle(answer, waits);
        match &settled {
            Settled::Held(lease) => lease.account.came_of_try(),
            Settled::Wait(_) | Settled::Denied(_) => {
                let times = (table.services.clock, sent);
                table.services.observers.answered(Verb::Set, times, ok);
            }
        }
        settled
    }

    /// Tells the line the store's answer.
    #[inline]
    fn tell_line(&self, answer: Result<Answer, Fault>, waits: bool) -> AttemptOutcome<Fault> {
        let Self { table, owner, lease, leads, .. } = self;
        table.change(&lease.lock, |line, effects| {
            let now = table.services.clock.now();
            let tried = if *leads {
                line.tried(lease.place(), answer, waits, now, effects)
            } else {
                let (token, position, caller) = (owner.clone(), lease.place(), lease.clone());
                let attempt = OwnAttempt { token, position, caller };
                line.tried_alone(&attempt, lease.request, answer, now, effects)
            };
            match tried {
                AttemptOutcome::Held(grant) => lease.granted(grant, now),
                AttemptOutcome::Wait => {
                    lease.in_line();
                    effects.waits(&lease.request);
                }
                AttemptOutcome::Denied { .. } | AttemptOutcome::TakenOver => {}
            }
            tried
        })
    }

    /// Returns its place in the line once the engine has taken over.
    fn taken_over(&mut self) -> Option<Waiting<'a>> {
        if !self.lease.is_in_line() {
            return None;
        }
        self.open = false;
        Some(Waiting::new(self.table, self.lease.clone()))
    }

    /// Releases the token again if the engine has released it before the try was sent. Or the token was held,
    /// and its last holder is done: then this release must not free what that one keeps for its `min_hold`, and if
    /// it comes first, the other must not report the lock as lost.
    fn undo(&mut self) {
        let Self { table, owner, .. } = self;
        if owner.is_retired() && !owner.is_unsent() {
            owner.undo();
            let keep = owner.kept(table.services.clock.now());
            table.release_in_background(owner.clone(), keep);
        }
    }

    /// Has the line forget it. Returns false if the engine has taken it over.
    fn give_up(&self) -> bool {
        let Self { table, lease, .. } = self;
        table.change_known(&lease.lock, |line, _| line.give_up_try(lease.place()))
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if !self.open || !self.table.services.home.is_here() {
            return;
        }
        if self.leads && !self.give_up() && self.taken_over().is_some() {
            self.undo();
        } else {
            self.table.release_in_background(self.owner.clone(), None);
        }
    }
}
