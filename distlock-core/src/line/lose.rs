//! R10: leases that are lost: they ran out, or the store says that the lock is not ours.

use super::line::Lost;
use super::{Batch, Finished, Freeing, Kinds, Line, Loss, Place, Shell};
use crate::clock::Moment;

impl<K: Kinds> Line<K> {
    /// The lease at a place is lost: because it ran out, if no other reason is given. Waiters
    /// behind it need not wait for its body to end. Others that hold the lock by the same claim do so
    /// until their own leases end.
    pub(super) fn lose<X: Shell<K>>(
        &mut self,
        place: Place,
        loss: Option<Loss>,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(claim) = self.claim_at_mut(place) else { return };
        let Some(holder) = claim.holders.remove(place.at) else { return };
        let (token, deadline) = (claim.token.clone(), claim.deadline);
        let exchange = claim.exchange.take();
        let is_last = !claim.is_held();
        let free_from = claim.free_from.filter(|_| is_last);
        // A store that ends no lease by itself would keep what several readers may have.
        let is_kept = deadline == Moment::NEVER && claim.limit.is_read();
        let is_over = loss.is_none();
        let loss = loss.unwrap_or_else(|| holder.expiry(deadline));
        shell.lost(&holder.seat, loss);
        if let Some(new) = exchange {
            shell.release(new, None);
        }
        if is_last {
            self.end_lost(place.batch, &token, now, shell);
            if is_kept && is_over {
                shell.release(token.clone(), None);
            }
        }
        let number = place.batch;
        self.lost.push(Lost { number, token, deadline, holder, free_from, loss });
    }

    /// The last lease under a claim is lost.
    fn end_lost<X: Shell<K>>(&mut self, number: u64, token: &K::Token, now: Moment, shell: &mut X) {
        let Some(batch) = self.numbered(number) else {
            self.aside.retain(|aside| aside.number != number);
            return;
        };
        let Some(claims) = batch.claims_mut() else { return };
        let index = claims.index_of(|claim| claim.token == *token);
        if index.and_then(|index| claims.take(index)).is_some() {
            return;
        }
        let ticket = claims.first().ticket;
        if batch.waiters.next(now, shell).is_some() && !shell.is_closed() {
            batch.reenter(ticket, now, shell);
            if let Some(queued) = batch.queued() {
                queued.lost = Some(token.clone());
            }
        } else {
            self.take_out(number);
        }
    }

    /// The holder of a lease that was lost lets go of it.
    pub(super) fn finish_lost<X: Shell<K>>(
        &mut self,
        place: Place,
        now: Moment,
        shell: &mut X,
    ) -> Finished<K> {
        let is = |lost: &Lost<K>| lost.holder.place(lost.number) == place;
        let release = self.lost.iter().position(is).and_then(|index| {
            let lost = self.lost.swap_remove(index);
            self.release_lost(lost, now, shell)
        });
        Finished { was_held: false, release }
    }

    /// What is to be released for a holder that lets go of what it has lost. The last one of a token
    /// sees to that.
    fn release_lost<X: Shell<K>>(
        &mut self,
        lost: Lost<K>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let free_from = lost.kept_until(shell);
        let Freeing { token, keep, deadline } = lost.release(now, shell);
        if let Some(claim) = self.claim_mut(&token) {
            claim.free_from = claim.free_from.max(free_from);
            return None;
        }
        if let Some(other) = self.lost.iter_mut().find(|lost| lost.token == token) {
            other.free_from = other.free_from.max(free_from);
            return None;
        }
        let number = lost.number;
        if keep.is_none() && self.release_behind(number, &token, shell) {
            return None;
        }
        Some(Freeing { token, keep, deadline })
    }

    /// A token is released and its lock kept. A holder that has lost a lease by it releases it once more
    /// when it lets go, and must not free the lock before `until`.
    pub(super) fn keep_for_lost(&mut self, token: &K::Token, until: Moment) {
        for lost in self.lost.iter_mut().filter(|lost| lost.token == *token) {
            lost.free_from = lost.free_from.max(Some(until));
        }
    }

    /// Waiters behind a lease that was lost have asked, or are about to, from their old places; the lost
    /// token is released after that, or the lock would go past them. False if there are none.
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
            shell.release(lost, None);
        }
        true
    }

    /// The store says that the lock is not the token's any more: all its holders have lost it.
    /// Nothing if it is not known here.
    pub fn taken_away<X: Shell<K>>(
        &mut self,
        token: &K::Token,
        loss: Loss,
        now: Moment,
        shell: &mut X,
    ) {
        let Some((number, index)) = self.find(token) else { return };
        let Some(claim) = self.claim_in(number, index) else { return };
        if loss == Loss::Forced && claim.exchange.is_some() {
            // The store may have exchanged it since: the answer to that says whose the lock is.
            return;
        }
        if !claim.is_held() {
            // Bytes of it may still run where a connection died: it is released behind the re-entry.
            return self.give_up(number, index, now, shell);
        }
        let held: Vec<i64> = claim.holders.iter().map(|holder| holder.at).collect();
        for at in held {
            self.lose(Place { batch: number, at }, Some(loss), now, shell);
        }
    }

    /// No caller holds the claim, and it ran out, or was taken away, before it was renewed for the next
    /// one.
    pub(super) fn give_up<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.numbered(number) else { return };
        if batch.waiters.next(now, shell).is_some() && !shell.is_closed() {
            return self.put_back(number, index, now, shell);
        }
        if let Some(claim) = self.take_claim(number, index) {
            shell.release(claim.token, None);
        }
    }

    /// The caller at a place finds its lease over before the engine does. True if it has lost it.
    pub fn expire<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> bool {
        let end = self.claim_at(place).and_then(|claim| {
            let holder = claim.holders.get(place.at)?;
            Some(holder.deadline(claim.deadline))
        });
        match end {
            Some(end) if now < end => false,
            Some(_) => {
                self.lose(place, None, now, shell);
                true
            }
            None => true,
        }
    }
}

impl<K: Kinds> Lost<K> {
    /// `min_hold` of its holder and of others by the same token.
    fn kept_until<X: Shell<K>>(&self, shell: &X) -> Option<Moment> {
        self.holder.kept_until(shell).max(self.free_from)
    }

    pub(super) fn release<X: Shell<K>>(&self, now: Moment, shell: &X) -> Freeing<K> {
        let Self { token, deadline, .. } = self;
        let left = self.kept_until(shell).map(|until| until.since(now));
        let keep = left.filter(|left| !left.is_zero());
        Freeing { token: token.clone(), keep, deadline: *deadline }
    }
}
