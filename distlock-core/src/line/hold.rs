//! R5, R6, R7, R10: from the grant of a lease to its end.

use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims, HandedOn, Renewal, Tend};
use super::line::{Line, Lost};
use super::request::{Denied, Finished, Freeing, Grant, Kinds, Loss, Place, Request};
use super::shell::{Closing, Exchange, RESERVATION, Renew, Shell, issue};
use crate::clock::Moment;
use crate::store::term::deadline;
use crate::store::{Exchanged, Limit, Owned};

impl<K: Kinds> Line<K> {
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

    /// Does what is due (see [`due`](Self::due)). To be called where commands are sent, so that what
    /// comes later is sent later.
    pub fn run<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let batches = self.batches().map(|batch| batch.number);
        let numbers: Vec<u64> =
            batches.chain(self.aside.iter().map(|aside| aside.number)).collect();
        numbers.into_iter().for_each(|number| self.run_one(number, now, shell));
    }

    fn run_one<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let mut claims = 1;
        if let Some(batch) = self.numbered(number) {
            if batch.queued().is_some_and(|queued| queued.due() <= now) {
                return self.look_for(number, now, shell);
            }
            claims = batch.claims().map_or(0, Claims::count);
        }
        // From the last one on: those behind one that goes move up.
        for index in (0..claims).rev() {
            while self.tend(number, index, now, shell) {}
        }
    }

    /// Does one thing that is due of a claim; false if nothing is.
    fn tend<X: Shell<K>>(&mut self, number: u64, index: usize, now: Moment, shell: &mut X) -> bool {
        let crowded = self.numbered(number).is_some_and(|batch| batch.is_crowded());
        let Some(claim) = self.claim_in(number, index) else { return false };
        let place = |at| Place { batch: number, at };
        match claim.tend(crowded, now) {
            Tend::Nothing => return false,
            Tend::Renew(ttl) => claim.renew(ttl, shell),
            Tend::GiveUp => self.give_up(number, index, now, shell),
            Tend::Expire(at) => self.lose(place(at), None, now, shell),
            Tend::Offered(at) => self.pass_over(place(at), now, shell),
            Tend::Abandon(at) => {
                self.lose(place(at), Some(Loss::Abandoned), now, shell);
                self.end_unused(place(at), now, shell);
            }
        }
        true
    }

    /// R5: a caller does not take its lease: the next one gets it.
    fn pass_over<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) {
        let Some(claim) = self.claim_at_mut(place) else { return };
        let taken_back = claim.holders.change(place.at, |holder| {
            let taken_back = shell.take_back(&holder.seat);
            if !taken_back {
                holder.taken();
            }
            taken_back
        });
        if taken_back == Some(true) {
            self.end_unused(place, now, shell);
        }
    }

    /// R10: the store has answered a renewal that was sent at `sent`.
    pub fn renewed<X: Shell<K>>(
        &mut self,
        renew: &Renew<K>,
        sent: Moment,
        answer: Result<Owned, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) {
        let Some((number, index)) = self.find(&renew.token) else { return };
        let Some(claim) = self.claim_in(number, index) else { return };
        match answer {
            // It may have been exchanged by then.
            Ok(Owned::No) if claim.exchange.is_some() => claim.renewal = Renewal::Idle,
            Ok(Owned::No) => self.taken_away(&renew.token, Loss::Taken, now, shell),
            Err(_) => {
                let retry_at = claim.retry_at(now);
                claim.renewal = Renewal::Failed { retry_at, draw: renew.draw };
            }
            Ok(Owned::Yes { contended, fence }) => {
                claim.renewal = Renewal::Idle;
                claim.renewed(sent, renew.ttl);
                if let Some(last) = fence {
                    claim.drawn(last, shell.fences_per_draw());
                }
                claim.tell_deadlines(shell);
                // What was under way may have been for less than the next holder wants.
                let awaited = claim.awaited.take_if(|awaited| *awaited <= renew.ttl);
                let Some(batch) = self.numbered(number) else { return };
                if contended {
                    batch.seal(now);
                }
                if awaited.is_some() {
                    self.grant_next(number, index, renew.ttl, now, shell);
                }
            }
        }
    }

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

    /// What to ask of the store for a holder that wants to go on as a reader; the same when it is asked
    /// again. `None` if it does not hold the lock alone (any more).
    pub fn downgrade<X: Shell<K>>(
        &mut self,
        place: Place,
        now: Moment,
        shell: &mut X,
    ) -> Option<Exchange<K>> {
        let claim = self.claim_at_mut(place).filter(|claim| claim.limit.is_alone())?;
        let holder = claim.holders.get(place.at)?;
        let request = Request { limit: Limit::READ, term: holder.left(now), ..holder.request };
        let term = request.stored_term(shell.needs_renewal());
        let old = claim.token.clone();
        let new = claim.exchange.get_or_insert_with(|| {
            let (token, _) = issue(RESERVATION, Limit::READ, now, shell);
            token
        });
        Some(Exchange { old, new: new.clone(), term })
    }

    /// The store has answered. Waiters behind the holder ask from their places now. `None` if the lease
    /// is lost.
    pub fn exchanged<X: Shell<K>>(
        &mut self,
        place: Place,
        exchange: &Exchange<K>,
        answer: Exchanged,
        now: Moment,
        shell: &mut X,
    ) -> Option<(Place, Grant)> {
        let Exchanged::Granted { fence, sent, contended } = answer else {
            self.taken_away(&exchange.old, Loss::Taken, now, shell);
            return None;
        };
        let is_it = |claim: &&mut Claim<K>| claim.exchange.as_ref() == Some(&exchange.new);
        let claim = self.claim_at_mut(place).filter(is_it)?;
        let ticket = claim.ticket;
        let grant = claim.goes_on(place.at, exchange, (fence, sent), shell.needs_renewal())?;
        let place = self.make_room(place, ticket, contended, now, shell).unwrap_or(place);
        // The first in the queue may be a reader as well, and would not be notified.
        if !shell.is_notified() {
            self.look();
        }
        Some((place, grant))
    }

    /// A batch reads from now on. Its waiters keep a batch and their place: then it is another one.
    fn make_room<X: Shell<K>>(
        &mut self,
        place: Place,
        ticket: u64,
        contended: bool,
        now: Moment,
        shell: &mut X,
    ) -> Option<Place> {
        let batch = self.numbered(place.batch)?;
        if contended {
            batch.seal(now);
        }
        batch.room = 0;
        if batch.waiters.next(now, shell).is_none() {
            (batch.limit, batch.ticket) = (Limit::READ, 0);
            return None;
        }
        let (number, claims) = (shell.number(), batch.claims()?.clone());
        batch.reenter(ticket, now, shell);
        let readers = Batch::new(number, Limit::READ, Stage::Owned(claims));
        self.insert_before(place.batch, Batch { sealed_at: Some(now), ..readers });
        Some(Place { batch: number, ..place })
    }

    /// The manager gives no more locks: waiters are refused, and every lease ends. What is not in use is
    /// released, and so is a lease that ran out before its holder gave it back.
    pub fn close<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        for batch in self.batches_mut() {
            batch.deny_all(&Denied::Closed, shell);
        }
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        let aside = self.aside.iter().map(|aside| aside.number);
        for number in aside.chain(numbers).collect::<Vec<_>>() {
            self.close_batch(number, now, shell);
        }
        let lost = std::mem::take(&mut self.lost);
        // No other call may have the lock while a body is still there to touch what it protects.
        let in_use = |lost: &Lost<K>| shell.has_body(&lost.holder.seat);
        let used: Vec<K::Token> =
            lost.iter().filter(|lost| in_use(lost)).map(|lost| lost.token.clone()).collect();
        let mut freed: Vec<K::Token> = Vec::new();
        for lost in lost {
            let in_use = shell.has_body(&lost.holder.seat);
            let is_freed = freed.contains(&lost.token);
            match lost.loss {
                Loss::Closed if in_use => {
                    shell.closing(Closing::InUse(lost.holder.seat.clone()));
                    self.lost.push(lost);
                }
                // Not under a body that goes on without its lock: that one frees it when it is done.
                Loss::Closed | Loss::Expired | Loss::MaxHold if !in_use => {
                    if !is_freed && !used.contains(&lost.token) {
                        freed.push(lost.token.clone());
                        shell.closing(lost.closing(now, shell));
                    }
                }
                _ => self.lost.push(lost),
            }
        }
    }

    fn close_batch<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        while let Some(claim) = self.claim_in(number, 0) {
            let held: Vec<i64> = claim.holders.iter().map(|holder| holder.at).collect();
            for at in &held {
                self.lose(Place { batch: number, at: *at }, Some(Loss::Closed), now, shell);
            }
            if held.is_empty()
                && let Some(claim) = self.take_claim(number, 0)
            {
                let keep = claim.keep(now);
                shell.release(claim.token, keep);
            }
        }
        self.dissolve(number, shell);
    }
}
