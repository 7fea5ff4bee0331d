//! How a lease ends, and how it is handed over to the next waiter of this process.
//!
//! A holder that is done hands its lease to the next waiter of its batch, on its own task and without
//! asking the store, if enough is left of it. Otherwise the lease is renewed first, or the claim is
//! released and those who wait ask the store again, from their old place in the queue.

use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, Queued, RESERVATION, Stage};
use super::claim::Claim;
use super::lease::{Lease, Loss};
use super::lines::{Lines, of_claim, take_out};
use super::table::{Effects, LockTable};
use super::tenure::Fit;
use crate::clock::Moment;

/// What came of an attempt to hand a lease over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandedOn {
    Yes,
    /// It is renewed first.
    AfterRenewal,
    /// The next holder cannot have this lease, but must keep its place.
    Unfit,
    /// There is no waiter.
    Nobody,
}

impl LockTable {
    /// A holder is done, and its body gone; the lease `was_held` until now. With `keep` the lock is not
    /// to be free yet. True if the caller must not release the claim: the lease was handed over, or the
    /// engine releases it, behind the acquire of those who waited when it was lost. Otherwise the
    /// caller releases it, now and for good.
    pub(crate) fn end(self: &Arc<Self>, lease: &Lease, was_held: bool, keep: bool) -> bool {
        let claim = &lease.claim;
        let lock = &claim.owner.lock;
        if let (true, Some(end)) = (keep, lease.free_from) {
            // Before it is retired: see `Lead::undo`.
            claim.owner.keep_until(end);
        }
        let mut effects = Effects::default();
        let handed_on = {
            let mut lines = self.lines(lock.stored());
            let batch = of_claim(&mut lines, claim);
            let number = batch.as_ref().map(|batch| batch.number);
            let handed_on = match batch.filter(|batch| batch.has_waiters()) {
                // Without waiters, lost before, or taken without a place in a line.
                None => HandedOn::Nobody,
                Some(batch) if was_held && !keep && self.remote => {
                    let now = self.clock.now();
                    let handed_on = self.hand_on(batch, now, None, &mut effects);
                    if handed_on == HandedOn::Unfit {
                        self.reenter(batch, Some(claim.clone()));
                        effects.poll();
                    }
                    handed_on
                }
                Some(batch) => {
                    let waits = batch.next(self.clock.now()).is_some();
                    if waits {
                        self.reenter(batch, None);
                        batch.came_from(claim);
                    }
                    // A store in this process is asked once it has the lock back.
                    if waits && self.remote {
                        effects.poll();
                    }
                    if waits { HandedOn::Unfit } else { HandedOn::Nobody }
                }
            };
            match number {
                Some(number) if handed_on == HandedOn::Nobody => {
                    take_out(&mut lines, lock.stored(), number);
                }
                Some(_) => {}
                None => self.held.forget(claim),
            }
            match was_held {
                true => !keep && self.remote && handed_on != HandedOn::Nobody,
                false => !keep && self.release_behind(&mut lines, claim, &mut effects),
            }
        };
        if !handed_on {
            claim.owner.retire();
            claim.stop_watching(self.timers());
        }
        effects.carry_out(self, lock);
        lease.tell_end();
        handed_on
    }

    /// Has a lost claim released behind the acquire of its batch, which has entered again: the other way
    /// round the lock would pass over those who ask for it from their old place. False if there are none.
    fn release_behind(&self, lines: &mut Lines, claim: &Arc<Claim>, effects: &mut Effects) -> bool {
        // A store in this process is asked once it has the lock back.
        if !self.remote {
            return false;
        }
        let Some(line) = lines.get_mut(claim.owner.lock.stored()) else { return false };
        for batch in line.batches() {
            let Stage::Queued(queued) = &mut batch.stage else { continue };
            if queued.lost.take_if(|lost| Arc::ptr_eq(lost, &claim.owner)).is_none() {
                continue;
            }
            if batch.claim.owner.is_unsent() && !queued.asking {
                queued.instead_of = Some(claim.owner.clone());
            } else {
                effects.leave(claim.owner.clone());
            }
            return true;
        }
        false
    }

    /// Releases a claim that was lost while no body ran under it.
    pub(crate) fn release_lost(self: &Arc<Self>, claim: &Arc<Claim>) {
        let mut effects = Effects::default();
        let behind = {
            let mut lines = self.lines(claim.owner.lock.stored());
            self.release_behind(&mut lines, claim, &mut effects)
        };
        effects.carry_out(self, &claim.owner.lock);
        if !behind {
            self.release_in_background(claim.owner.clone(), None);
        }
    }

    /// Ends a lease and hands it over, or releases it in the background.
    pub(crate) fn end_in_background(self: &Arc<Self>, lease: &Arc<Lease>) {
        let was_held = lease.finish();
        let keep = lease.keep();
        if !self.end(lease, was_held, keep.is_some()) {
            self.release_in_background(lease.claim.owner.clone(), keep);
        }
    }

    /// The store says that the lock is not the claim's any more.
    pub(crate) fn taken_away(self: &Arc<Self>, claim: &Arc<Claim>, loss: Loss) {
        match claim.holder() {
            Some(lease) => drop(lease.lose(loss)),
            None => self.requeue_waiters(claim),
        }
    }

    /// A lease was lost: the calls that wait behind it ask the store again, from the same place.
    pub(crate) fn requeue_waiters(self: &Arc<Self>, claim: &Arc<Claim>) {
        let lock = &claim.owner.lock;
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            let now = self.clock.now();
            if let Some(batch) = of_claim(&mut lines, claim) {
                if batch.next(now).is_some() && !self.is_closed() {
                    self.reenter(batch, None);
                    batch.came_from(claim);
                    effects.poll();
                } else {
                    let number = batch.number;
                    take_out(&mut lines, lock.stored(), number);
                }
            } else {
                self.held.forget(claim);
            }
        }
        claim.stop_watching(self.timers());
        effects.carry_out(self, lock);
    }

    /// The lease was renewed to `ttl` for a waiter that needs just that.
    pub(crate) fn resume(self: &Arc<Self>, claim: &Arc<Claim>, ttl: Duration) {
        let lock = &claim.owner.lock;
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            if claim.wanted().is_some() {
                self.grant(&mut lines, claim, ttl, &mut effects);
            }
        }
        effects.carry_out(self, lock);
    }

    /// Gives a claim that owns the lock to the first of its batch. The store has just confirmed it
    /// for `ttl`.
    pub(super) fn grant(
        self: &Arc<Self>,
        lines: &mut Lines,
        claim: &Arc<Claim>,
        ttl: Duration,
        effects: &mut Effects,
    ) {
        let stored = claim.owner.lock.stored();
        let now = self.clock.now();
        let Some(batch) = of_claim(lines, claim) else { return };
        match self.hand_on(batch, now, Some(ttl), effects) {
            HandedOn::Yes | HandedOn::AfterRenewal => {}
            HandedOn::Unfit => {
                self.reenter(batch, Some(claim.clone()));
                effects.poll();
            }
            HandedOn::Nobody => {
                let number = batch.number;
                take_out(lines, stored, number);
                claim.stop_watching(self.timers());
                effects.leave(claim.owner.clone());
            }
        }
    }

    /// Hands the lease of an owned batch to the next of its waiters. It is `fresh` if the store has
    /// just confirmed it, for so long: what is left of that is enough for a waiter that wanted no more,
    /// however long the answer was on its way.
    fn hand_on(
        self: &Arc<Self>,
        batch: &mut Batch,
        now: Moment,
        fresh: Option<Duration>,
        effects: &mut Effects,
    ) -> HandedOn {
        while let Some(waiter) = batch.next(now).cloned() {
            let (claim, wish) = (&batch.claim, waiter.wish);
            let fit = if self.remote { claim.tenure.fit(&wish.term, now) } else { Fit::AsItIs };
            let fits = match fit {
                Fit::AsItIs => true,
                Fit::AfterRenewal => {
                    let enough = fresh.is_some_and(|ttl| ttl >= wish.term.stored_for());
                    enough && now < claim.deadline()
                }
                Fit::TooLong => return HandedOn::Unfit,
            };
            let fencing_token = if fits { claim.tenure.issue() } else { None };
            let Some(fencing_token) = fencing_token else {
                claim.wanted_for(wish.term.stored_for(), self.timers());
                return HandedOn::AfterRenewal;
            };
            let own = Arc::downgrade(&waiter);
            let start = || Lease::start(self, claim, fencing_token, &wish, now, own);
            if let Some(woken) = waiter.grant(start) {
                batch.served();
                batch.claim.set_local_waiters(batch.has_waiters());
                if batch.claim.tenure.needs_fence() {
                    batch.claim.hasten(now, self.timers());
                }
                effects.wake(Some(woken));
                if !self.remote {
                    // The lease that they wait behind may end at another time now.
                    self.wake_next(batch, effects);
                }
                return HandedOn::Yes;
            }
        }
        HandedOn::Nobody
    }

    /// The batch asks for the lock again under a new claim, from its old place. With `instead_of`
    /// its old claim is released right after it stands there.
    pub(super) fn reenter(&self, batch: &mut Batch, instead_of: Option<Arc<Claim>>) {
        if let Some(old) = &instead_of {
            old.owner.retire();
            old.stop_watching(self.timers());
        }
        let claim = self.new_claim(&batch.claim.owner.lock, RESERVATION);
        let old = std::mem::replace(&mut batch.claim, claim);
        if batch.ticket == 0 {
            batch.ticket = old.tenure.ticket();
        }
        // This process has had the lock until now.
        let queued = Queued {
            taken_until: Some(None),
            ..*Queued::new(instead_of.map(|old| old.owner.clone()))
        };
        batch.stage = Stage::Queued(Box::new(queued));
    }

    /// Ends a lease that is past its deadline, or was never taken; false if it is neither.
    pub(crate) fn end_overdue(self: &Arc<Self>, lease: &Arc<Lease>, now: Moment) -> bool {
        if now >= lease.deadline() {
            lease.lose(Loss::Expired);
        } else if lease.is_abandoned() {
            // Not if its holder was done in this very moment: then the lease has been handed over.
            if lease.lose(Loss::Abandoned) {
                self.release_lost(&lease.claim);
            }
        } else if lease.is_grant_expired() {
            self.pass_over(lease);
        } else {
            return false;
        }
        true
    }

    /// A grant was not taken: the next waiter gets it.
    fn pass_over(self: &Arc<Self>, lease: &Arc<Lease>) {
        if lease.waiter.upgrade().is_some_and(|waiter| waiter.pass_over(lease)) {
            self.end_in_background(lease);
        }
    }

    /// Another process stands behind this claim in the store's queue.
    pub(crate) fn seal(&self, claim: &Arc<Claim>) {
        let now = self.clock.now();
        if let Some(batch) = of_claim(&mut self.lines(claim.owner.lock.stored()), claim) {
            batch.seal(now);
        }
    }
}
