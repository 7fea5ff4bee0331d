//! R5, R6, R7: granting, handing over, and giving back.

use std::time::Duration;

use super::claim::Fit;
use super::{
    Batch, Claim, Denied, Finished, Freeing, Holder, Kinds, Line, Place, Renew, Request, Shell,
    Stage,
};
use crate::clock::Moment;
use crate::store::Term;
use crate::store::term::deadline;

/// What came of an attempt to hand a claim to the next waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandedOn {
    /// A waiter has it, or will once it was renewed.
    Yes,
    /// The next one cannot have this claim, but must keep its place.
    Unfit,
    /// No caller waits.
    None,
}

impl<K: Kinds> Line<K> {
    /// R5: gives a claim that owns the lock to the first of its batch. The store has just confirmed it
    /// for `ttl`.
    pub(super) fn grant_next<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        ttl: Duration,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.numbered(number) else { return };
        match batch.hand_on(index, now, Some(ttl), shell) {
            HandedOn::Yes => {}
            HandedOn::Unfit => self.put_back(number, index, now, shell),
            // It was renewed for a waiter that has left, while others hold the lock by it.
            HandedOn::None if self.claim_in(number, index).is_some_and(|claim| claim.is_held()) => {
            }
            HandedOn::None => {
                let claim = self.take_claim(number, index);
                if let Some(claim) = claim.and_then(|claim| self.pass_on(claim, now, shell)) {
                    let keep = claim.keep(now);
                    shell.release(claim.token, keep);
                }
            }
        }
    }

    /// R6: a holder is done, and its body gone. What it says to release is released by the caller, now
    /// and for good.
    #[inline]
    pub fn finish<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> Finished<K> {
        let Some(claim) = self.claim_at_mut(place) else {
            return self.finish_lost(place, now, shell);
        };
        let deadline = claim.deadline;
        let holder = claim.holders.get(place.at);
        // The engine may be a moment behind.
        if holder.is_some_and(|holder| now >= holder.deadline(deadline)) {
            self.lose(place, None, now, shell);
            return self.finish_lost(place, now, shell);
        }
        let kept_until = claim.holders.end(place.at, |holder| holder.kept_until(shell)).flatten();
        claim.free_from = claim.free_from.max(kept_until);
        if claim.is_held() {
            return Finished { was_held: true, release: None };
        }
        let (keep, exchange) = (claim.keep(now), claim.exchange.take());
        let release = match exchange {
            None => self.end(place, keep, now, shell),
            Some(new) => {
                shell.release(new, None);
                self.end_in_doubt(place.batch, keep, now, shell)
            }
        };
        if let Some(Freeing { token, keep: Some(keep), .. }) = &release {
            self.keep_for_lost(token, now.after(*keep));
        }
        Finished { was_held: true, release }
    }

    /// A claim has no holder any more; says what is to be released.
    #[inline]
    fn end<X: Shell<K>>(
        &mut self,
        place: Place,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let Some(batch) = self.numbered(place.batch) else {
            return self.take_claim(place.batch, 0).map(|claim| claim.release(keep));
        };
        let index = batch.claims()?.index_of(Claim::is_idle)?;
        let handed_on = match keep {
            None => batch.hand_on(index, now, None, shell),
            Some(_) if batch.waiters.next(now, shell).is_some() => {
                return batch.end_kept(index, keep, now, shell);
            }
            Some(_) => HandedOn::None,
        };
        match handed_on {
            HandedOn::Yes => None,
            HandedOn::Unfit => {
                self.put_back(place.batch, index, now, shell);
                None
            }
            HandedOn::None if keep.is_some() || batch.limit.as_permits().is_none() => {
                self.free(place.batch, index, keep)
            }
            HandedOn::None => {
                let claim = self.take_claim(place.batch, index)?;
                self.pass_on(claim, now, shell).map(|claim| claim.release(None))
            }
        }
    }

    /// The holder of a claim is done while it is unknown which token owns the lock: no waiter here gets it.
    fn end_in_doubt<X: Shell<K>>(
        &mut self,
        number: u64,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let batch = self.numbered(number);
        let Some(batch) = batch.filter(|batch| batch.claims().is_some()) else {
            return self.take_claim(number, 0).map(|claim| claim.release(keep));
        };
        match (batch.waiters.next(now, shell), keep) {
            (None, _) => self.take_claim(number, 0).map(|claim| claim.release(keep)),
            (Some(_), Some(_)) => batch.end_kept(0, keep, now, shell),
            (Some(_), None) => {
                batch.swap(now, shell);
                None
            }
        }
    }

    /// R6: a permit without waiters left in its batch goes to a waiter of another batch that was let in as
    /// well. Returns the claim if there is none.
    fn pass_on<X: Shell<K>>(
        &mut self,
        claim: Claim<K>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Claim<K>> {
        let limit = claim.limit;
        if limit.as_permits().is_none() {
            return Some(claim);
        }
        let let_in = |batch: &&mut Batch<K>| batch.limit == limit && batch.is_owned();
        let mut let_in = self.batches_mut().take_while(let_in);
        let Some(batch) = let_in.find(|batch| batch.is_crowded()) else { return Some(claim) };
        let Some(claims) = batch.claims_mut() else { return Some(claim) };
        let index = claims.count();
        claims.push(claim);
        match batch.hand_on(index, now, None, shell) {
            HandedOn::Yes => None,
            HandedOn::Unfit | HandedOn::None => batch.claims_mut()?.take(index),
        }
    }

    /// R6: a claim is of no use to the next waiter of its batch. It has others, or enters again for
    /// one.
    pub(super) fn put_back<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.numbered(number) else { return };
        match batch.claims_mut().and_then(|claims| claims.take(index)) {
            Some(claim) => {
                let keep = claim.keep(now);
                shell.release(claim.token, keep);
            }
            None => batch.swap(now, shell),
        }
    }

    /// The caller does not take its lease, or waits for other locks for too long: the lease ends here, and
    /// the line releases its token.
    pub(super) fn end_unused<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) {
        if let Some(Freeing { token, keep, .. }) = self.finish(place, now, shell).release {
            shell.release(token, keep);
        }
    }

    /// The caller at a place has all the locks it asked for: from `now` on its lease is limited as it
    /// asked. False if it is not held any more.
    pub fn complete<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> bool {
        let Some(claim) = self.claim_at_mut(place) else { return false };
        let Claim { token, limit, deadline: end, term, holders, .. } = claim;
        let completed = holders.change(place.at, |holder| {
            holder.limit(*end, now);
            holder.request.part_until = None;
            holder.taken();
            shell.extended(&holder.seat, holder.deadline(*end));
            holder.request.term
        });
        let Some(own) = completed else { return false };
        // Readers may hold the lock by it for longer.
        if !limit.is_read() {
            *term = own;
            shell.begin_term(token, own);
        }
        true
    }

    /// No later holder gets a fencing token as low as this one.
    pub fn outdo(&mut self, place: Place, fencing_token: u64) {
        if let Some(claim) = self.claim_at_mut(place) {
            claim.outdo(fencing_token);
        }
    }

    /// What a holder sends that wants its lease extended: within its `max_hold`.
    pub fn extension(&self, place: Place, ttl: Duration, now: Moment) -> Option<Renew<K>> {
        let claim = self.claim_at(place)?;
        let ttl = claim.holders.get(place.at)?.capped(ttl, now);
        let Claim { token, last_fence: fence, deadline, .. } = claim;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        Some(Renew { token, ttl, draw: false, fence, deadline })
    }

    /// The store has extended a lease on its holder's wish, in answer to a command sent at `sent`.
    pub fn extended<X: Shell<K>>(
        &mut self,
        place: Place,
        sent: Moment,
        ttl: Duration,
        shell: &mut X,
    ) {
        let Some(claim) = self.claim_at_mut(place) else { return };
        claim.renewed(sent, ttl);
        claim.holders.change(place.at, |holder| {
            holder.last = holder.last.max(deadline(sent, ttl).min(holder.max));
        });
        claim.tell_deadlines(shell);
    }
}

impl<K: Kinds> Batch<K> {
    /// R6: hands a claim of an owned batch to the next of its waiters, or to all of its readers. `fresh` is
    /// the time for which the store has just confirmed it, if it has: what is left of that is enough for a
    /// waiter that wanted no more, however long the answer was on its way.
    #[inline]
    pub(super) fn hand_on<X: Shell<K>>(
        &mut self,
        index: usize,
        now: Moment,
        fresh: Option<Duration>,
        shell: &mut X,
    ) -> HandedOn {
        let mut handed_on = HandedOn::None;
        while let Some(next) = self.waiters.next(now, shell) {
            let term = next.stored_term(shell.needs_renewal());
            let Self { stage: Stage::Owned(claims), waiters, .. } = self else { break };
            let Some(claim) = claims.get_mut(index) else { break };
            handed_on = claim.offer(&term, now, fresh, shell, || waiters.pop());
            if handed_on != HandedOn::Yes || claim.awaited.is_some() || !claim.limit.is_read() {
                break;
            }
        }
        handed_on
    }

    /// `min_hold`: waiters behind a claim that is kept ask again, and learn how long it is, if they
    /// have no other.
    fn end_kept<X: Shell<K>>(
        &mut self,
        index: usize,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let claims = self.claims_mut()?;
        if let Some(claim) = claims.take(index) {
            return Some(claim.release(keep));
        }
        let claim = claims.first();
        let (release, ticket) = (claim.release(keep), claim.ticket);
        self.reenter(ticket, now, shell);
        Some(release)
    }

    /// R6: the claim is of no use to the next waiter: the batch enters again, and then its old token is
    /// released.
    pub(super) fn swap<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let Stage::Owned(claims) = &self.stage else { return };
        let claim = claims.first();
        let (old, ticket) = (claim.token.clone(), claim.ticket);
        shell.retire(&old);
        self.reenter(ticket, now, shell);
        if let Some(queued) = self.queued() {
            queued.instead_of = Some(old);
        }
    }

    /// None of its waiters gets the lock.
    pub(super) fn deny_all<X: Shell<K>>(&mut self, why: &Denied<K::Fault>, shell: &mut X) {
        self.waiters.deny_all(shell, |_| why.clone());
    }
}

impl<K: Kinds> Claim<K> {
    /// Gives it to the caller that `take` takes from the line, if it is fit for what that one asks of the
    /// store.
    #[inline]
    fn offer<X: Shell<K>>(
        &mut self,
        term: &Term,
        now: Moment,
        fresh: Option<Duration>,
        shell: &mut X,
        take: impl FnOnce() -> Option<(i64, Request, K::Seat)>,
    ) -> HandedOn {
        let wanted = term.stored_for();
        let fits = match self.fit(term, fresh.is_some(), now) {
            Fit::AsItIs => true,
            Fit::AfterRenewal => fresh.is_some_and(|ttl| ttl >= wanted) && now < self.deadline,
            Fit::TooLong => return HandedOn::Unfit,
        };
        let Some(fencing_token) = fits.then(|| self.issue()).flatten() else {
            self.await_renewal(wanted, now);
            return HandedOn::Yes;
        };
        let Some(caller) = take() else { return HandedOn::None };
        let mut holder = Holder::new(caller, fencing_token, self.deadline, now);
        holder.offer(now);
        shell.grant(&holder.seat, holder.grant(self.deadline), now);
        self.holders.add(holder);
        HandedOn::Yes
    }

    /// No caller holds the lock by it, or is about to.
    #[inline]
    fn is_idle(&self) -> bool {
        !self.is_held() && self.awaited.is_none()
    }

    pub(super) fn tell_deadlines<X: Shell<K>>(&self, shell: &mut X) {
        for holder in self.holders.iter() {
            shell.extended(&holder.seat, holder.deadline(self.deadline));
        }
    }

    #[inline]
    pub(super) fn release(&self, keep: Option<Duration>) -> Freeing<K> {
        Freeing { token: self.token.clone(), keep, deadline: self.deadline }
    }
}
