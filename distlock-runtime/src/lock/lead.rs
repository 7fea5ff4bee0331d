//! The try of a call by itself: `SET NX`, without a place in the store's queue.
//!
//! [`Lead`] is the try of a call that found no line; its batch is the first of a new one. [`Alone`] is
//! the try of a call that found a line and does not wait in it. The engine takes a lead over as soon as
//! more than one call depends on it.

use std::sync::{Arc, Weak};

use super::batch::{Batch, Queued, Stage};
use super::claim::Claim;
use super::lease::Lease;
use super::lines::{numbered, take_out};
use super::table::{Effects, LockTable};
use super::waiter::{Denied, Place, Waiter, Wish};
use crate::clock::Moment;
use crate::error::BackendKind;
use crate::shrink::shrink;
use crate::store::{Answer, Fault};

/// What came of a try.
pub(crate) enum Settled {
    Held(Arc<Lease>),
    Wait(Place),
    Denied(Denied),
}

/// A try of a call that found no line. Dropped before it is settled, it releases what it may have
/// taken.
pub(crate) struct Lead {
    table: Arc<LockTable>,
    pub(crate) claim: Arc<Claim>,
    number: u64,
    /// The claim may own the lock, and nothing else will release it.
    open: bool,
}

impl Lead {
    pub(super) fn new(table: Arc<LockTable>, claim: Arc<Claim>, number: u64) -> Self {
        Self { table, claim, number, open: true }
    }

    /// The store has answered, or has not. The call `waits` if it may.
    pub(crate) fn settle(
        mut self,
        answer: Result<Answer, Fault>,
        wish: &Wish,
        waits: bool,
    ) -> Settled {
        let table = self.table.clone();
        let lock = self.claim.owner.lock.clone();
        let mut effects = Effects::default();
        let own = {
            let mut lines = table.lines(lock.stored());
            let batch = numbered(&mut lines, lock.stored(), self.number);
            match batch.filter(|batch| matches!(batch.stage, Stage::Leading(_))) {
                Some(batch) => {
                    let settled = self.settle_own(batch, answer, wish, waits, &mut effects);
                    if let Settled::Denied(_) = settled {
                        take_out(&mut lines, lock.stored(), self.number);
                    }
                    Ok(settled)
                }
                None => Err(answer),
            }
        };
        let settled = own.unwrap_or_else(|answer| self.settle_taken_over(answer, waits));
        effects.carry_out(&table, &lock);
        self.undo();
        settled
    }

    fn settle_own(
        &mut self,
        batch: &mut Batch,
        answer: Result<Answer, Fault>,
        wish: &Wish,
        waits: bool,
        effects: &mut Effects,
    ) -> Settled {
        let table = &self.table;
        let queued = match answer {
            Ok(Answer::Granted { fence, sent }) => {
                return match start(table, &self.claim, fence, sent, wish) {
                    Ok(lease) => {
                        batch.stage = Stage::Owned;
                        self.open = false;
                        Settled::Held(lease)
                    }
                    Err(fault) => Settled::Denied(Denied::Fault(fault)),
                };
            }
            Ok(Answer::Taken { rest }) if waits => {
                let mut queued = Queued::new(None);
                queued.taken_until = Some(rest.map(|rest| table.clock.now().after(rest)));
                queued
            }
            Ok(Answer::Taken { rest }) => {
                // A clear no: there is nothing to release.
                self.open = false;
                return Settled::Denied(Denied::Taken(rest));
            }
            Err(fault) if waits && fault.passing => {
                let mut queued = Queued::new(None);
                // That it had no time for an answer says nothing of the store.
                if !wish.hurried || fault.kind != BackendKind::TimedOut {
                    queued.failed(fault, table.clock.now());
                }
                queued
            }
            Err(fault) => return Settled::Denied(Denied::Fault(fault)),
        };
        self.open = false;
        batch.stage = Stage::Queued(queued);
        let waiter = Waiter::new(*wish, self.number);
        batch.push_back(waiter.clone());
        effects.poll();
        Settled::Wait(Place::new(table.clone(), self.claim.owner.lock.clone(), waiter))
    }

    /// The engine has taken the try over, because others depend on it: it sends the same token
    /// again, and its answer counts.
    fn settle_taken_over(&mut self, answer: Result<Answer, Fault>, waits: bool) -> Settled {
        let place = self.place();
        match (place, answer) {
            (Some(place), Ok(Answer::Granted { .. })) => Settled::Wait(place),
            (Some(place), _) if waits => Settled::Wait(place),
            (_, Ok(Answer::Taken { rest })) => Settled::Denied(Denied::Taken(rest)),
            // Only `close` takes a batch out whose try is under way.
            (_, Ok(Answer::Granted { .. })) => Settled::Denied(Denied::Fault(Fault::closed())),
            (_, Err(fault)) => Settled::Denied(Denied::Fault(fault)),
        }
    }

    /// The engine may have released the claim before the try was sent: then it has to be released again.
    /// Or the claim was held, and its last holder is done: then this release must not free what that
    /// one keeps for its `min_hold`, and if it comes first the other is not to take the lock for lost.
    fn undo(&mut self) {
        if self.claim.owner.is_retired() && !self.claim.owner.is_unsent() {
            self.claim.owner.undo();
            let keep = self.claim.owner.kept(self.table.clock.now());
            self.table.release_in_background(self.claim.owner.clone(), keep);
        }
    }

    /// Its place in the line once the engine has taken over.
    fn place(&mut self) -> Option<Place> {
        let mut leaders = self.table.leaders();
        let waiter = leaders.remove(&self.number)?;
        shrink(&mut leaders);
        drop(leaders);
        self.open = false;
        Some(Place::new(self.table.clone(), self.claim.owner.lock.clone(), waiter))
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.open || !self.table.home().is_here() {
            return;
        }
        {
            let mut lines = self.table.lines(self.claim.owner.lock.stored());
            let stored = self.claim.owner.lock.stored();
            let batch = numbered(&mut lines, stored, self.number);
            if batch.is_some_and(|batch| matches!(batch.stage, Stage::Leading(_))) {
                take_out(&mut lines, stored, self.number);
            }
        }
        if self.place().is_none() {
            self.table.release_in_background(self.claim.owner.clone(), None);
        } else {
            self.undo();
        }
    }
}

/// The lease of a claim that was granted in answer to a try, or why it is of no use.
fn start(
    table: &Arc<LockTable>,
    claim: &Arc<Claim>,
    fence: u64,
    sent: Moment,
    wish: &Wish,
) -> Result<Arc<Lease>, Fault> {
    claim.granted(fence, sent, table.deadline(sent, wish.term_at(table.remote)));
    if table.clock.now() >= claim.deadline() {
        let text = "its answer took longer than the lock's ttl";
        return Err(Fault::passing(BackendKind::TimedOut, text));
    }
    let Some(fencing_token) = claim.tenure.issue() else {
        return Err(Fault::lasting(BackendKind::Other, "no fencing token is left"));
    };
    let lease = Lease::start(table, claim, fencing_token, wish, sent, Weak::new());
    // `close` looks for leases after it has set this: one of the two sees the other.
    if table.is_closed() {
        claim.stop_watching(table.timers());
        return Err(Fault::closed());
    }
    Ok(lease)
}

/// A try of a call that does not wait in the line that there is. Dropped before it is settled, it
/// releases what it may have taken.
pub(super) struct Alone {
    table: Arc<LockTable>,
    claim: Arc<Claim>,
    /// The claim may own the lock, and nothing else will release it.
    open: bool,
}

impl Alone {
    pub(super) fn new(table: Arc<LockTable>, claim: Arc<Claim>) -> Self {
        Self { table, claim, open: true }
    }

    fn settle(mut self, answer: Result<Answer, Fault>, wish: &Wish) -> Settled {
        match answer {
            Ok(Answer::Granted { fence, sent }) => match self.start(fence, sent, wish) {
                Ok(lease) => {
                    self.open = false;
                    Settled::Held(lease)
                }
                Err(fault) => Settled::Denied(Denied::Fault(fault)),
            },
            Ok(Answer::Taken { rest }) => {
                self.open = false;
                Settled::Denied(Denied::Taken(rest))
            }
            Err(fault) => Settled::Denied(Denied::Fault(fault)),
        }
    }

    fn start(&self, fence: u64, sent: Moment, wish: &Wish) -> Result<Arc<Lease>, Fault> {
        let lease = start(&self.table, &self.claim, fence, sent, wish)?;
        self.table.held.note(&lease);
        // It has no line to be found in, so `close` may have missed it until here.
        if self.table.is_closed() {
            self.claim.stop_watching(self.table.timers());
            self.table.held.forget(&self.claim);
            return Err(Fault::closed());
        }
        Ok(lease)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if self.open && self.table.home().is_here() {
            self.table.release_in_background(self.claim.owner.clone(), None);
        }
    }
}

/// A try of either kind.
pub(super) enum Try {
    Lead(Lead),
    Alone(Alone),
}

impl Try {
    pub(super) fn claim(&self) -> &Arc<Claim> {
        match self {
            Self::Lead(lead) => &lead.claim,
            Self::Alone(alone) => &alone.claim,
        }
    }

    pub(super) fn settle(self, answer: Result<Answer, Fault>, wish: &Wish, waits: bool) -> Settled {
        match self {
            Self::Lead(lead) => lead.settle(answer, wish, waits),
            Self::Alone(alone) => alone.settle(answer, wish),
        }
    }
}
