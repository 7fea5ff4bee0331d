//! The life of a lease, from the grant to its end.
//!
//! | event | method | rules |
//! |---|---|---|
//! | a holder is done, or had several locks to collect | `finish`, `complete`, `outdo` | R6, R7 |
//! | a lease is renewed, by the line or on its holder's wish | `run`, `renewed`, `extension`, `extended` | R10 |
//! | a lease is lost: it ran out, or the store says so | `run`, `expire`, `taken_away` | R10 |
//! | a grant is not taken | `run` | R5 |
//! | a writer continues as a reader | `downgrade`, `exchanged` | downgrade |
//! | the manager is closed | `close` | |

use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims, DueAction, HandedOn, RenewalState};
use super::request::{Denied, Finished, Freeing, Grant, Kinds, Loss, Position, Request};
use super::shell::{Closing, Downgrade, RESERVATION, Renew, Shell, issue};
use super::state::{Line, LostLease};
use crate::clock::Moment;
use crate::store::term::deadline;
use crate::store::{Exchanged, Limit, Owned};

impl<K: Kinds> Line<K> {
    /// Ends the hold of the caller at a position, whose body is gone (R6). The caller releases what this returns, now
    /// and for good (R7).
    #[inline]
    pub fn finish<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) -> Finished<K> {
        let Some(claim) = self.claim_at_mut(position) else {
            return self.finish_lost(position, now, shell);
        };
        let deadline = claim.deadline;
        let holder = claim.holders.get(position.at);
        // The lease may be over although the line has not run since.
        if holder.is_some_and(|holder| now >= holder.deadline(deadline)) {
            self.lose(position, None, now, shell);
            return self.finish_lost(position, now, shell);
        }
        let kept_until =
            claim.holders.end(position.at, |holder| holder.kept_until(shell)).flatten();
        claim.free_from = claim.free_from.max(kept_until);
        if claim.is_held() {
            return Finished { was_held: true, release: None };
        }
        let (keep, exchange) = (claim.keep(now), claim.exchange.take());
        let release = match exchange {
            None => self.end(position, keep, now, shell),
            Some(new) => {
                shell.release(new, None);
                self.end_in_doubt(position.batch, keep, now, shell)
            }
        };
        if let Some(Freeing { token, keep: Some(keep), .. }) = &release {
            self.keep_for_lost(token, now.after(*keep));
        }
        Finished { was_held: true, release }
    }

    /// Ends a claim that has no holder left: hands it over, or returns what to release.
    #[inline]
    fn end<X: Shell<K>>(
        &mut self,
        position: Position,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let Some(batch) = self.batch_mut(position.batch) else {
            return self.take_claim(position.batch, 0).map(|claim| claim.release(keep));
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
                self.return_unfit(position.batch, index, now, shell);
                None
            }
            HandedOn::None if keep.is_some() || batch.limit.as_permits().is_none() => {
                self.free(position.batch, index, keep)
            }
            HandedOn::None => {
                let claim = self.take_claim(position.batch, index)?;
                self.pass_on(claim, now, shell).map(|claim| claim.release(None))
            }
        }
    }

    /// Ends a claim whose token is being exchanged. It is unknown which token owns the lock, so no waiter gets it.
    fn end_in_doubt<X: Shell<K>>(
        &mut self,
        number: u64,
        keep: Option<Duration>,
        now: Moment,
        shell: &mut X,
    ) -> Option<Freeing<K>> {
        let batch = self.batch_mut(number);
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

    /// Ends the lease of a caller that did not take it, or did not get its other locks in time. The line releases the
    /// token.
    pub(super) fn end_unused<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) {
        if let Some(Freeing { token, keep, .. }) = self.finish(position, now, shell).release {
            shell.release(token, keep);
        }
    }

    /// Notes that the caller at a position has all the locks that it asked for: from `now` on its lease has the terms
    /// of its request. Returns false if it does not hold the lock any more.
    pub fn complete<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) -> bool {
        let Some(claim) = self.claim_at_mut(position) else { return false };
        let Claim { token, limit, deadline: end, term, holders, .. } = claim;
        let completed = holders.change(position.at, |holder| {
            holder.limit(*end, now);
            holder.request.part_until = None;
            holder.taken();
            shell.extended(&holder.caller, holder.deadline(*end));
            holder.request.term
        });
        let Some(own) = completed else { return false };
        // Other readers may hold the lock by this claim for longer.
        if !limit.is_read() {
            *term = own;
            shell.begin_term(token, own);
        }
        true
    }

    /// Makes the fencing tokens of later holders higher than this one (I6).
    pub fn outdo(&mut self, position: Position, fencing_token: u64) {
        if let Some(claim) = self.claim_at_mut(position) {
            claim.outdo(fencing_token);
        }
    }

    /// Returns the command by which the holder at a position extends its lease, within its `max_hold`.
    pub fn extension(&self, position: Position, ttl: Duration, now: Moment) -> Option<Renew<K>> {
        let claim = self.claim_at(position)?;
        let ttl = claim.holders.get(position.at)?.capped(ttl, now);
        let Claim { token, last_fence: fence, deadline, .. } = claim;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        Some(Renew { token, ttl, draw: false, fence, deadline })
    }

    /// Takes in the answer to an [extension](Self::extension) that was sent at `sent`: the store confirmed it.
    pub fn extended<X: Shell<K>>(
        &mut self,
        position: Position,
        sent: Moment,
        ttl: Duration,
        shell: &mut X,
    ) {
        let Some(claim) = self.claim_at_mut(position) else { return };
        claim.renewed(sent, ttl);
        claim.holders.change(position.at, |holder| {
            holder.last = holder.last.max(deadline(sent, ttl).min(holder.max));
        });
        claim.tell_deadlines(shell);
    }

    /// Does everything that is [due](Self::due). Call this where commands are sent, so that later commands are sent
    /// later.
    pub fn run<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let batches = self.batches().map(|batch| batch.number);
        let numbers: Vec<u64> = batches.chain(self.aside.iter().map(|aside| aside.batch)).collect();
        numbers.into_iter().for_each(|number| self.run_one(number, now, shell));
    }

    /// Does everything that is due of one batch, or of a lease outside the line.
    fn run_one<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let mut claims = 1;
        if let Some(batch) = self.batch_mut(number) {
            if batch.queued().is_some_and(|queued| queued.due() <= now) {
                return self.look_for(number, now, shell);
            }
            claims = batch.claims().map_or(0, Claims::count);
        }
        // Backwards, because the claims behind a removed one move up.
        for index in (0..claims).rev() {
            while self.act(number, index, now, shell) {}
        }
    }

    /// Does one action that is due for a claim. Returns false if none is.
    fn act<X: Shell<K>>(&mut self, number: u64, index: usize, now: Moment, shell: &mut X) -> bool {
        let crowded = self.batch_mut(number).is_some_and(|batch| batch.is_crowded());
        let Some(claim) = self.claim_in(number, index) else { return false };
        let position = |at| Position { batch: number, at };
        match claim.due_action(crowded, now) {
            DueAction::Nothing => return false,
            DueAction::Renew(ttl) => claim.renew(ttl, shell),
            DueAction::GiveUp => self.give_up(number, index, now, shell),
            DueAction::Expire(at) => self.lose(position(at), None, now, shell),
            DueAction::PassOver(at) => self.pass_over(position(at), now, shell),
            DueAction::Abandon(at) => {
                self.lose(position(at), Some(Loss::Abandoned), now, shell);
                self.end_unused(position(at), now, shell);
            }
        }
        true
    }

    /// Takes a grant back that its caller has not taken, and gives it to the next waiter (R5).
    fn pass_over<X: Shell<K>>(&mut self, position: Position, now: Moment, shell: &mut X) {
        let Some(claim) = self.claim_at_mut(position) else { return };
        let taken_back = claim.holders.change(position.at, |holder| {
            let taken_back = shell.take_back(&holder.caller);
            if !taken_back {
                holder.taken();
            }
            taken_back
        });
        if taken_back == Some(true) {
            self.end_unused(position, now, shell);
        }
    }

    /// Takes in the answer to a renewal that was sent at `sent` (R10).
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
            // The token may have been exchanged before the renewal ran, so this no means nothing.
            Ok(Owned::No) if claim.exchange.is_some() => claim.renewal = RenewalState::Idle,
            Ok(Owned::No) => self.taken_away(&renew.token, Loss::Taken, now, shell),
            Err(_) => {
                let retry_at = claim.retry_at(now);
                claim.renewal = RenewalState::Failed { retry_at, draw: renew.draw };
            }
            Ok(Owned::Yes { contended, fence }) => {
                claim.renewal = RenewalState::Idle;
                claim.renewed(sent, renew.ttl);
                if let Some(last) = fence {
                    claim.drawn(last, shell.fences_per_draw());
                }
                claim.tell_deadlines(shell);
                // This renewal may have been sent for less than the next holder wants.
                let awaited = claim.awaited.take_if(|awaited| *awaited <= renew.ttl);
                let Some(batch) = self.batch_mut(number) else { return };
                if contended {
                    batch.seal(now);
                }
                if awaited.is_some() {
                    self.grant_next(number, index, renew.ttl, now, shell);
                }
            }
        }
    }

    /// Ends the lease at a position as lost (R10). Without a reason it is lost because its time is over. Waiters behind
    /// it do not wait for its body to end, and other readers hold the lock by the same claim until their own leases
    /// end.
    pub(super) fn lose<X: Shell<K>>(
        &mut self,
        position: Position,
        loss: Option<Loss>,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(claim) = self.claim_at_mut(position) else { return };
        let Some(holder) = claim.holders.remove(position.at) else { return };
        let (token, deadline) = (claim.token.clone(), claim.deadline);
        let exchange = claim.exchange.take();
        let is_last = !claim.is_held();
        let free_from = claim.free_from.filter(|_| is_last);
        // A store that ends no lease by itself would keep a lease that readers share.
        let is_kept = deadline == Moment::NEVER && claim.limit.is_read();
        let is_over = loss.is_none();
        let loss = loss.unwrap_or_else(|| holder.expiry(deadline));
        shell.lost(&holder.caller, loss);
        if let Some(new) = exchange {
            shell.release(new, None);
        }
        if is_last {
            self.end_lost(position.batch, &token, now, shell);
            if is_kept && is_over {
                shell.release(token.clone(), None);
            }
        }
        let batch = position.batch;
        self.lost.push(LostLease { batch, token, deadline, holder, free_from, loss });
    }

    /// Removes a claim whose last lease is lost. The batch enters again from its old place, if callers wait (R10).
    fn end_lost<X: Shell<K>>(&mut self, number: u64, token: &K::Token, now: Moment, shell: &mut X) {
        let Some(batch) = self.batch_mut(number) else {
            self.aside.retain(|aside| aside.batch != number);
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
            self.remove_batch(number);
        }
    }

    /// Ends a lost lease that its holder gives back.
    pub(super) fn finish_lost<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) -> Finished<K> {
        let is = |lost: &LostLease<K>| lost.holder.position(lost.batch) == position;
        let release = self.lost.iter().position(is).and_then(|index| {
            let lost = self.lost.swap_remove(index);
            self.release_lost(lost, now, shell)
        });
        Finished { was_held: false, release }
    }

    /// Returns what to release for a lost lease. Only the last holder by a token releases it (R10).
    fn release_lost<X: Shell<K>>(
        &mut self,
        lost: LostLease<K>,
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
        let number = lost.batch;
        if keep.is_none() && self.release_behind(number, &token, shell) {
            return None;
        }
        Some(Freeing { token, keep, deadline })
    }

    /// Keeps the lock of a released token until `until`, for its `min_hold`. Holders that lost their leases by that token
    /// release it once more when they give these back, and must not free the lock earlier.
    pub(super) fn keep_for_lost(&mut self, token: &K::Token, until: Moment) {
        for lost in self.lost.iter_mut().filter(|lost| lost.token == *token) {
            lost.free_from = lost.free_from.max(Some(until));
        }
    }

    /// Releases a lost token after the waiters behind it have entered again, or the lock would pass them by (R10).
    /// Returns false if there are no such waiters.
    fn release_behind<X: Shell<K>>(
        &mut self,
        number: u64,
        token: &K::Token,
        shell: &mut X,
    ) -> bool {
        let Some(queued) = self.batch_mut(number).and_then(Batch::queued) else { return false };
        let Some(lost) = queued.lost.take_if(|lost| lost == token) else { return false };
        if shell.is_unsent(&queued.token) && !queued.asking && queued.instead_of.is_none() {
            shell.retire(&lost);
            queued.instead_of = Some(lost);
        } else {
            shell.release(lost, None);
        }
        true
    }

    /// Ends all leases by a token that does not own the lock any more, as the store says (R10). Does nothing if the
    /// line has no claim of that token.
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
            // The store may have exchanged the token since. The answer to that says which token owns the lock.
            return;
        }
        if !claim.is_held() {
            // Bytes of a dead connection may still take the lock for this token (R9), so it is released as well, after
            // the batch has entered again.
            return self.give_up(number, index, now, shell);
        }
        let held: Vec<i64> = claim.holders.iter().map(|holder| holder.at).collect();
        for at in held {
            self.lose(Position { batch: number, at }, Some(loss), now, shell);
        }
    }

    /// Gives up a claim without a holder that ran out, or was taken away, before its renewal for the next waiter was
    /// confirmed.
    pub(super) fn give_up<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.batch_mut(number) else { return };
        if batch.waiters.next(now, shell).is_some() && !shell.is_closed() {
            return self.return_unfit(number, index, now, shell);
        }
        if let Some(claim) = self.take_claim(number, index) {
            shell.release(claim.token, None);
        }
    }

    /// Ends the lease at a position if its time is over, because its caller found that out before the line ran.
    /// Returns whether the lease is lost.
    pub fn expire<X: Shell<K>>(&mut self, position: Position, now: Moment, shell: &mut X) -> bool {
        let end = self.claim_at(position).and_then(|claim| {
            let holder = claim.holders.get(position.at)?;
            Some(holder.deadline(claim.deadline))
        });
        match end {
            Some(end) if now < end => false,
            Some(_) => {
                self.lose(position, None, now, shell);
                true
            }
            None => true,
        }
    }

    /// Returns the command by which a holder continues as a reader. The same one is returned when it is asked for again,
    /// because the answer may have been lost. Returns `None` if the caller does not hold the lock alone.
    pub fn downgrade<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) -> Option<Downgrade<K>> {
        let claim = self.claim_at_mut(position).filter(|claim| claim.limit.is_alone())?;
        let holder = claim.holders.get(position.at)?;
        let request = Request { limit: Limit::READ, term: holder.left(now), ..holder.request };
        let term = request.stored_term(shell.needs_renewal());
        let old = claim.token.clone();
        let new = claim.exchange.get_or_insert_with(|| {
            let (token, _) = issue(RESERVATION, Limit::READ, now, shell);
            token
        });
        Some(Downgrade { old, new: new.clone(), term })
    }

    /// Takes in the answer to a downgrade. Waiters behind the holder enter at the old ticket. Returns the holder's new
    /// position and grant, or `None` if the lease is lost.
    pub fn exchanged<X: Shell<K>>(
        &mut self,
        position: Position,
        exchange: &Downgrade<K>,
        answer: Exchanged,
        now: Moment,
        shell: &mut X,
    ) -> Option<(Position, Grant)> {
        let Exchanged::Granted { fence, sent, contended } = answer else {
            self.taken_away(&exchange.old, Loss::Taken, now, shell);
            return None;
        };
        let is_it = |claim: &&mut Claim<K>| claim.exchange.as_ref() == Some(&exchange.new);
        let claim = self.claim_at_mut(position).filter(is_it)?;
        let ticket = claim.ticket;
        let grant = claim.downgrade(position.at, exchange, (fence, sent), shell.needs_renewal())?;
        let position =
            self.split_off_reader(position, ticket, contended, now, shell).unwrap_or(position);
        // The first in the queue may be a reader of this process, and no message would say so (R13).
        if !shell.is_notified() {
            self.look();
        }
        Some((position, grant))
    }

    /// Makes a batch one of readers. If it has waiters, these keep the batch and its place in the queue, and the reader
    /// gets a new batch before it, whose number is in the returned position.
    fn split_off_reader<X: Shell<K>>(
        &mut self,
        position: Position,
        ticket: u64,
        contended: bool,
        now: Moment,
        shell: &mut X,
    ) -> Option<Position> {
        let batch = self.batch_mut(position.batch)?;
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
        self.insert_before(position.batch, Batch { sealed_at: Some(now), ..readers });
        Some(Position { batch: number, ..position })
    }

    /// Closes the line with its manager: denies all waiters and ends all leases. Releases the tokens that are not in
    /// use, those of leases that ran out before included. The manager has to say that it is closed before this.
    pub fn close<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        for batch in self.batches_mut() {
            batch.waiters.deny_all(shell, |_| Denied::Closed);
        }
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        let aside = self.aside.iter().map(|aside| aside.batch);
        for number in aside.chain(numbers).collect::<Vec<_>>() {
            self.close_batch(number, now, shell);
        }
        let lost = std::mem::take(&mut self.lost);
        // No other caller may get the lock while a body still runs under the same token.
        let in_use = |lost: &LostLease<K>| shell.has_body(&lost.holder.caller);
        let used: Vec<K::Token> =
            lost.iter().filter(|lost| in_use(lost)).map(|lost| lost.token.clone()).collect();
        let mut freed: Vec<K::Token> = Vec::new();
        for lost in lost {
            let in_use = shell.has_body(&lost.holder.caller);
            let is_freed = freed.contains(&lost.token);
            match lost.loss {
                Loss::Closed if in_use => {
                    shell.closing(Closing::InUse(lost.holder.caller.clone()));
                    self.lost.push(lost);
                }
                // A body that continues although its lease is lost releases the token when it is done.
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

    /// Ends all leases of one batch, or a lease outside the line.
    fn close_batch<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        while let Some(claim) = self.claim_in(number, 0) {
            let held: Vec<i64> = claim.holders.iter().map(|holder| holder.at).collect();
            for at in &held {
                self.lose(Position { batch: number, at: *at }, Some(Loss::Closed), now, shell);
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
