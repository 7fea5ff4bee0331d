//! R5, R6, R7: granting, holding, handing over, and giving back.

use std::time::Duration;

use super::claim::Fit;
use super::line::Lost;
use super::{
    Batch, Claim, Denied, Finished, Freeing, Holders, Kinds, Line, Loss, Place, Renew, Shell, Stage,
};
use crate::clock::Moment;
use crate::store::term::deadline;

/// What came of an attempt to hand a claim to the next waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandedOn {
    /// It has it, or will once the claim was renewed.
    Yes,
    /// It cannot have this claim, but must keep its place.
    Unfit,
    /// Nobody waits.
    Nobody,
}

impl<K: Kinds> Line<K> {
    /// R5: gives a claim that owns the lock to the first of its batch. The store has just confirmed it
    /// for `ttl`.
    pub(super) fn grant_next<X: Shell<K>>(
        &mut self,
        number: u64,
        ttl: Duration,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.numbered(number) else { return };
        match batch.hand_on(now, Some(ttl), shell) {
            HandedOn::Yes => {}
            HandedOn::Unfit => batch.swap(now, shell),
            HandedOn::Nobody => self.dissolve(number, shell),
        }
    }

    /// R6: a holder is done, and its body gone. What it says to release is released by the caller, now
    /// and for good.
    pub fn finish<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> Finished<K> {
        let Some(claim) = self.claim_at(place) else { return self.finish_lost(place, now, shell) };
        // The engine may be a moment behind.
        if now >= claim.ends_at() {
            self.lose(place, None, now, shell);
            return self.finish_lost(place, now, shell);
        }
        let keep = claim.holder().and_then(|holder| holder.keep(now, shell));
        let release = self.end(place, keep, now, shell);
        Finished { was_held: true, release }
    }

    /// Ends a lease that is held; says what is to be released.
    pub(super) fn end<X: Shell<K>>(
        &mut self,
        place: Place,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let Some(batch) = self.numbered(place.batch) else { return self.end_aside(place, keep) };
        let handed_on = match keep {
            None => batch.hand_on(now, None, shell),
            // `min_hold`: those who wait ask again, and learn how long it is kept.
            Some(_) if batch.waiters.next(now).is_some() => {
                let claim = batch.claims()?.first();
                let release = claim.release(keep);
                let ticket = claim.ticket;
                batch.reenter(ticket, now, shell);
                return Some(release);
            }
            Some(_) => HandedOn::Nobody,
        };
        match handed_on {
            HandedOn::Yes => None,
            HandedOn::Unfit => {
                batch.swap(now, shell);
                None
            }
            HandedOn::Nobody => {
                let Stage::Owned(claims) = self.take_out(place.batch)?.stage else { return None };
                Some(claims.into_first().release(keep))
            }
        }
    }

    fn end_aside(&mut self, place: Place, keep: Option<Duration>) -> Option<Freeing<K>> {
        let index = self.aside.iter().position(|aside| aside.number == place.batch)?;
        Some(self.aside.swap_remove(index).claim.release(keep))
    }

    /// The holder of a lease that was lost lets go of it.
    fn finish_lost<X: Shell<K>>(
        &mut self,
        place: Place,
        now: Moment,
        shell: &mut X,
    ) -> Finished<K> {
        let is = |lost: &Lost<K>| lost.holder.place(lost.number) == place;
        let release = self.lost.iter().position(is).and_then(|index| {
            let Lost { number, token, deadline, holder, .. } = self.lost.swap_remove(index);
            let keep = holder.keep(now, shell);
            if keep.is_none() && self.release_behind(number, &token, shell) {
                return None;
            }
            Some(Freeing { token, keep, deadline })
        });
        Finished { was_held: false, release }
    }

    /// R10: those who waited behind a lease that was lost have asked, or are about to, from their old
    /// place; the lost token is released behind that, or the lock would go past them. False if there
    /// are none.
    fn release_behind<X: Shell<K>>(
        &mut self,
        number: u64,
        token: &K::Token,
        shell: &mut X,
    ) -> bool {
        let Some(queued) = self.numbered(number).and_then(Batch::queued) else { return false };
        let Some(lost) = queued.lost.take_if(|lost| lost == token) else { return false };
        if shell.is_unsent(&queued.token) && !queued.asking && queued.instead_of.is_none() {
            shell.retire(&lost);
            queued.instead_of = Some(lost);
        } else {
            shell.release(lost);
        }
        true
    }

    /// The lease at a place is lost: because it ran out, if no other reason is given. Those who wait
    /// behind it need not wait for its body to end (R10).
    pub(super) fn lose<X: Shell<K>>(
        &mut self,
        place: Place,
        loss: Option<Loss>,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(claim) = self.claim_at_mut(place) else { return };
        let (token, deadline, ticket) = (claim.token.clone(), claim.deadline, claim.ticket);
        let none = Holders::Awaits(Duration::ZERO);
        let Holders::One(holder) = std::mem::replace(&mut claim.holders, none) else { return };
        let loss = loss.unwrap_or_else(|| holder.expiry(deadline));
        shell.lost(&holder.seat, loss);
        if let Some(batch) = self.numbered(place.batch) {
            if batch.waiters.next(now).is_some() && !shell.is_closed() {
                batch.reenter(ticket, now, shell);
                if let Some(queued) = batch.queued() {
                    queued.lost = Some(token.clone());
                }
            } else {
                self.take_out(place.batch);
            }
        } else {
            self.aside.retain(|aside| aside.number != place.batch);
        }
        self.lost.push(Lost { number: place.batch, token, deadline, holder, loss });
    }

    /// A lease lies with somebody that does not take it, or waits for other locks for too long: it ends
    /// here, and the line sees to its token.
    pub(super) fn let_go<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) {
        if let Some(Freeing { token, .. }) = self.finish(place, now, shell).release {
            shell.release(token);
        }
    }

    /// Whoever has the lease at a place has all the others it asked for: from `now` on it is limited as
    /// its holder asked. False if it is not held any more.
    pub fn complete<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> bool {
        let Some(claim) = self.claim_at_mut(place) else { return false };
        let (token, end) = (claim.token.clone(), claim.deadline);
        let Some(holder) = claim.holder_mut() else { return false };
        holder.limit(end, now);
        holder.request.part_until = None;
        holder.taken();
        let term = holder.request.term;
        shell.extended(&holder.seat, holder.deadline(end));
        claim.term = term;
        shell.begin_term(&token, term);
        true
    }

    /// No later holder gets a fencing token as low as this one.
    pub fn outdo(&mut self, place: Place, fencing_token: u64) {
        if let Some(claim) = self.claim_at_mut(place) {
            claim.issued = claim.issued.max(fencing_token);
        }
    }

    /// What a holder sends that wants its lease extended: within its `max_hold`.
    pub fn extension(&self, place: Place, ttl: Duration, now: Moment) -> Option<Renew<K>> {
        let claim = self.claim_at(place)?;
        let ttl = claim.holder()?.capped(ttl, now);
        let Claim { token, fence, deadline, .. } = claim;
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
        claim.renewed(sent, ttl, None);
        let end = claim.deadline;
        if let Some(holder) = claim.holder_mut() {
            holder.last = holder.last.max(deadline(sent, ttl).min(holder.max));
            shell.extended(&holder.seat, holder.deadline(end));
        }
    }
}

impl<K: Kinds> Batch<K> {
    /// R6: hands the claim of an owned batch to the next of its waiters. It is `fresh` if the store has
    /// just confirmed it, for so long: what is left of that is enough for who wanted no more, however
    /// long the answer was on its way.
    fn hand_on<X: Shell<K>>(
        &mut self,
        now: Moment,
        fresh: Option<Duration>,
        shell: &mut X,
    ) -> HandedOn {
        let Some(request) = self.waiters.next(now) else { return HandedOn::Nobody };
        let Self { stage: Stage::Owned(claims), waiters, .. } = self else {
            return HandedOn::Nobody;
        };
        let claim = claims.first_mut();
        let term = request.stored_term(shell.needs_renewal());
        let wanted = term.stored_for();
        let fits = match claim.fit(&term, fresh.is_some(), now) {
            Fit::AsItIs => true,
            Fit::AfterRenewal => fresh.is_some_and(|ttl| ttl >= wanted) && now < claim.deadline,
            Fit::TooLong => return HandedOn::Unfit,
        };
        let Some(fencing_token) = fits.then(|| claim.issue()).flatten() else {
            claim.await_renewal(wanted, now);
            return HandedOn::Yes;
        };
        let Some((at, request, seat)) = waiters.pop() else { return HandedOn::Nobody };
        let end = claim.deadline;
        let holder = claim.hold(at, request, seat, fencing_token, now);
        holder.offer(now);
        shell.grant(&holder.seat, holder.grant(end));
        HandedOn::Yes
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

    /// Nobody of it gets the lock.
    pub(super) fn deny_all<X: Shell<K>>(&mut self, why: &Denied<K::Fault>, shell: &mut X) {
        self.waiters.deny_all(shell, |_| why.clone());
    }
}

impl<K: Kinds> Claim<K> {
    pub(super) fn release(&self, keep: Option<Duration>) -> Freeing<K> {
        Freeing { token: self.token.clone(), keep, deadline: self.deadline }
    }
}

impl<K: Kinds> Lost<K> {
    pub(super) fn release<X: Shell<K>>(&self, now: Moment, shell: &X) -> Freeing<K> {
        let Self { token, deadline, .. } = self;
        let keep = self.holder.keep(now, shell);
        Freeing { token: token.clone(), keep, deadline: *deadline }
    }
}
