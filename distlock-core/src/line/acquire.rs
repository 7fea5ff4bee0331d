//! The way of a caller to the lock, from its arrival to the grant.
//!
//! | event | method | rules |
//! |---|---|---|
//! | a caller arrives, leaves, or returns after a grant that it did not take | `arrive`, `leave`, `rejoin` | R1, R5, R8 |
//! | a caller's own attempt is answered or given up | `tried`, `tried_alone`, `give_up_try` | R2 |
//! | the engine's entry into the queue is answered | `entered` | R3, R12 |
//! | the store sends a hint or a seal, or messages may have been lost | `called`, `sealed`, `look`, `look_all` | R4, R13 |
//! | a look is due | `look_for` | R8, R11 |

use std::cmp::Reverse;
use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims, Fit, HandedOn};
use super::holder::Recipient;
use super::queued::{InQueue, Queued};
use super::request::{
    Arrival, AttemptOutcome, Denied, FaultClass, Finished, Kinds, OwnAttempt, Position, Request,
};
use super::shell::{RESERVATION, Shell, issue};
use super::state::{Aside, Line, LostLease};
use super::waiters::{LocalWaiter, Waiters};
use crate::clock::Moment;
use crate::store::{Answer, Entered, Limit, Term};

impl<K: Kinds> Line<K> {
    /// Takes in a caller that wants the lock (R1). It waits if fewer than `line_ends` callers of this process do; with
    /// 0 it does not wait. `caller` makes the caller's handle for its position.
    #[inline]
    pub fn arrive<X: Shell<K>>(
        &mut self,
        request: Request,
        line_ends: usize,
        now: Moment,
        caller: impl FnOnce(Position) -> K::Caller,
        shell: &mut X,
    ) -> Arrival<K> {
        if self.is_vacant() {
            return Arrival::Lead(self.lead(request, now, caller, shell));
        }
        if request.limit.is_read() && self.reads(&request, now, shell) {
            return self.read_along(request, now, caller);
        }
        if line_ends == 0 {
            return match self.remaining_for(request.limit, now) {
                Some(remaining) => Arrival::Busy(Some(remaining)),
                None => {
                    let (token, _) = issue(RESERVATION, request.limit, now, shell);
                    let position = Position { batch: shell.number(), at: 0 };
                    Arrival::Alone(OwnAttempt { token, position, caller: caller(position) })
                }
            };
        }
        if line_ends < usize::MAX && self.waiting() >= line_ends {
            return Arrival::Busy(self.remaining(now));
        }
        let (position, caller) = self.join(request, now, caller, shell);
        Arrival::Wait(position, caller)
    }

    /// Starts a batch whose caller tries to take the lock by itself (R2).
    #[inline]
    fn lead<X: Shell<K>>(
        &mut self,
        request: Request,
        now: Moment,
        caller: impl FnOnce(Position) -> K::Caller,
        shell: &mut X,
    ) -> OwnAttempt<K> {
        let (token, reservation) = issue(RESERVATION, request.limit, now, shell);
        let mut waiters = Waiters::new();
        let position = Position { batch: shell.number(), at: waiters.number() };
        let caller = caller(position);
        let leader = LocalWaiter { at: position.at, request, caller: Some(caller.clone()) };
        let stage = Stage::Leading { token: token.clone(), reservation, leader };
        self.push(Batch { waiters, ..Batch::new(position.batch, request.limit, stage) });
        OwnAttempt { token, position, caller }
    }

    /// Returns whether a reader may hold the lock with the last batch at once (R1): that batch is open and owns the
    /// lock, and its lease is fit for this request.
    fn reads<X: Shell<K>>(&self, request: &Request, now: Moment, shell: &X) -> bool {
        let joins = |last: &&Batch<K>| last.limit == request.limit && last.admits(now);
        let claims = self.last().filter(joins).and_then(Batch::claims);
        let term = request.stored_term(shell.needs_renewal());
        let fits = |claim: &Claim<K>| claim.fit(&term, false, now) == Fit::AsItIs;
        claims.is_some_and(|claims| fits(claims.first())) && !shell.is_closed()
    }

    /// Makes a reader one more holder of the last batch's claim (R1).
    fn read_along(
        &mut self,
        request: Request,
        now: Moment,
        caller: impl FnOnce(Position) -> K::Caller,
    ) -> Arrival<K> {
        let Some(last) = self.last_mut() else { return Arrival::Busy(None) };
        let position = Position { batch: last.number, at: last.waiters.number() };
        let Some(claim) = last.claims_mut().and_then(|claims| claims.get_mut(0)) else {
            return Arrival::Busy(None);
        };
        let Some(fencing_token) = claim.issue() else { return Arrival::Busy(None) };
        let caller = caller(position);
        let reader = Recipient { at: position.at, request, caller: caller.clone() };
        let grant = claim.hold(reader, fencing_token, now);
        claim.joined = now;
        Arrival::Held(position, caller, grant)
    }

    /// Adds a caller to the batch that it may join, or to a new one at the end of the line (R1).
    #[inline]
    fn join<X: Shell<K>>(
        &mut self,
        request: Request,
        now: Moment,
        caller: impl FnOnce(Position) -> K::Caller,
        shell: &mut X,
    ) -> (Position, K::Caller) {
        let number = match self.place_for(request.limit, now) {
            Some(number) => number,
            None => {
                let (token, reservation) = issue(RESERVATION, request.limit, now, shell);
                let stage = Stage::Queued(Box::new(Queued::new(token, reservation)));
                let number = shell.number();
                self.push(Batch::new(number, request.limit, stage));
                number
            }
        };
        let Some(batch) = self.batch_mut(number) else { unreachable!("it was found or pushed") };
        batch.take_over(shell);
        let position = Position { batch: number, at: batch.waiters.number() };
        let caller = caller(position);
        batch.join(position.at, request, caller.clone());
        // Readers hand nothing over when they end, so the claim is offered to the new reader now.
        if batch.limit.is_read() {
            batch.hand_on(0, now, None, shell);
        }
        (position, caller)
    }

    /// Returns the batch that a caller with this limit joins (R1), or `None` if it starts its own. For permits there
    /// are as many open batches as permits, and a caller joins the one with the fewest waiters for each token.
    #[inline]
    fn place_for(&self, limit: Limit, now: Moment) -> Option<u64> {
        let admits = |batch: &&Batch<K>| batch.limit == limit && batch.admits(now);
        let Some(most) = limit.as_permits().map(|permits| permits.get() as usize) else {
            return self.last().filter(admits).map(|last| last.number);
        };
        let open = || self.batches().rev().take_while(admits).take(most);
        let places: usize = open().map(Batch::places).sum();
        if places < most {
            return None;
        }
        // `max_by_key` returns the last of equals, which in reverse order is the one at the front.
        let soonest = open().max_by_key(|batch| Reverse(batch.waiters.live() / batch.places()));
        soonest.map(|batch| batch.number)
    }

    /// Takes in the answer to a caller's own attempt (R2). If the lock is taken, the caller waits if it is `patient`.
    #[inline]
    pub fn tried<X: Shell<K>>(
        &mut self,
        position: Position,
        answer: Result<Answer, K::Fault>,
        patient: bool,
        now: Moment,
        shell: &mut X,
    ) -> AttemptOutcome<K::Fault> {
        let Some(batch) = self.batch_mut(position.batch) else { return AttemptOutcome::TakenOver };
        let Stage::Leading { .. } = batch.stage else { return AttemptOutcome::TakenOver };
        let tried = batch.settle(answer, patient, now, shell);
        if let AttemptOutcome::Denied { .. } = tried {
            self.remove_batch(position.batch);
        }
        tried
    }

    /// Takes in the answer to an attempt outside the line (R2).
    pub fn tried_alone<X: Shell<K>>(
        &mut self,
        attempt: &OwnAttempt<K>,
        request: Request,
        answer: Result<Answer, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) -> AttemptOutcome<K::Fault> {
        let (fence, sent) = match answer {
            Ok(Answer::Granted { fence, sent }) => (fence, sent),
            Ok(Answer::Taken { remaining }) => {
                return AttemptOutcome::Denied { why: Denied::Taken(remaining), release: false };
            }
            Err(fault) => {
                return AttemptOutcome::Denied { why: Denied::Fault(fault), release: true };
            }
        };
        let OwnAttempt { token, position, caller } = attempt.clone();
        let recipient = Recipient { at: position.at, request, caller };
        match Claim::start(token, recipient, fence, sent, now, shell) {
            Ok((claim, grant)) => {
                self.aside.push(Aside { batch: position.batch, claim });
                AttemptOutcome::Held(grant)
            }
            Err(why) => AttemptOutcome::Denied { why, release: true },
        }
    }

    /// Removes a caller that gives up its own attempt. The caller releases the token. Returns false if the engine has
    /// taken the attempt over: then the caller has to [leave](Self::leave) the line.
    pub fn give_up_try(&mut self, position: Position) -> bool {
        let leads = self
            .batch_mut(position.batch)
            .is_some_and(|batch| matches!(batch.stage, Stage::Leading { .. }));
        if leads {
            self.remove_batch(position.batch);
        }
        leads
    }

    /// Removes a caller that waits, or that was granted the lock and has not taken it. The caller releases what this
    /// returns.
    pub fn leave<X: Shell<K>>(
        &mut self,
        position: Position,
        now: Moment,
        shell: &mut X,
    ) -> Option<Finished<K>> {
        let Some(batch) = self.batch_mut(position.batch) else {
            return self.is_held_or_lost(position).then(|| self.finish(position, now, shell));
        };
        if batch.waiters.leave(position.at) {
            // R8: a batch without waiters leaves the queue.
            if !batch.is_crowded() && batch.queued().is_some() {
                self.dissolve(position.batch, shell);
            }
            return None;
        }
        self.is_held_or_lost(position).then(|| self.finish(position, now, shell))
    }

    /// Returns whether the caller at a position holds the lock, or has lost its lease and not given it back.
    fn is_held_or_lost(&self, position: Position) -> bool {
        let is_lost = |lost: &LostLease<K>| lost.holder.position(lost.batch) == position;
        self.claim_at(position).is_some() || self.lost.iter().any(is_lost)
    }

    /// Puts a caller that did not take its grant in time before all other callers (R5), and returns its new position.
    /// Returns `None` if the manager was closed.
    pub fn rejoin<X: Shell<K>>(
        &mut self,
        request: Request,
        caller: &K::Caller,
        now: Moment,
        shell: &mut X,
    ) -> Option<Position> {
        if shell.is_closed() {
            shell.deny(caller, Denied::Closed);
            return None;
        }
        if self.is_vacant() {
            let (token, reservation) = issue(RESERVATION, request.limit, now, shell);
            // Others have the lock now, so it is known to be taken.
            let queued = Queued { taken_until: Some(None), ..Queued::new(token, reservation) };
            let stage = Stage::Queued(Box::new(queued));
            self.push(Batch::new(shell.number(), request.limit, stage));
        }
        // Readers wait only for callers with another limit, so a reader does not join readers that own the lock.
        let in_front = |first: &&mut Batch<K>| {
            first.limit == request.limit && !(first.limit.is_read() && first.is_owned())
        };
        let Some(first) = self.first_mut().filter(in_front) else {
            return Some(self.join(request, now, |_| caller.clone(), shell).0);
        };
        first.take_over(shell);
        let at = first.waiters.push_front(request, caller.clone());
        Some(Position { batch: first.number, at })
    }

    /// Takes in the answer to an entry or a look (R3), which asked for `term`.
    pub fn entered<X: Shell<K>>(
        &mut self,
        token: &K::Token,
        term: Term,
        answer: Result<Entered, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) {
        let last = self.last().map(|batch| batch.limit);
        // If the batch is gone or has another token by now, the release of this one is on its way.
        let Some(batch) = self.batch_of_token(|own| own == token) else { return };
        let number = batch.number;
        let Some(queued) = batch.queued() else { return };
        queued.asking = false;
        match answer {
            Ok(Entered::Granted { fence, sent, contended }) => {
                let needs_renewal = shell.needs_renewal();
                let granted = (token.clone(), batch.limit);
                let claim = Claim::granted(granted, fence, sent, term, needs_renewal);
                if now >= claim.deadline {
                    return batch.too_late(claim, now, shell);
                }
                batch.owns(Claims::one(claim));
                // A batch with another limit waits behind this one, so callers that arrive later wait behind that.
                if contended || last != Some(batch.limit) {
                    batch.seal(now);
                }
                let alone = batch.limit.is_alone();
                self.grant_next(number, 0, term.stored_for(), now, shell);
                // The next batch may fit beside this one, and no message would say so (R13).
                if !alone && !shell.is_notified() {
                    self.look();
                }
            }
            Ok(Entered::Queued { ticket, remaining, rank, behind, added }) => {
                batch.is_waiting(InQueue { ticket, remaining, rank, behind, added }, now, shell);
            }
            Err(fault) if fault.is_passing() => {
                let pause = shell.jittered(queued.pause);
                queued.failed(Denied::Fault(fault), now, pause);
            }
            Err(fault) => {
                batch.waiters.deny_all(shell, |_| Denied::Fault(fault.clone()));
                self.dissolve(number, shell);
            }
        }
    }

    /// Takes in a hint: the store may have reserved the lock for this token (R4). The batch looks at once. A batch that
    /// owns the lock ignores the hint.
    pub fn called(&mut self, is: impl Fn(&K::Token) -> bool) {
        if let Some(queued) = self.batch_of_token(is).and_then(Batch::queued) {
            queued.hint = true;
        }
    }

    /// Takes in a seal: another process waits behind this token (R4).
    pub fn sealed(&mut self, is: impl Fn(&K::Token) -> bool, now: Moment) {
        if let Some(batch) = self.batch_of_token(is) {
            batch.seal(now);
        }
    }

    /// Has the first waiting batch look, because the lock may be free.
    pub fn look(&mut self) {
        if let Some(queued) = self.batches_mut().find_map(Batch::queued) {
            queued.hint = true;
        }
    }

    /// Has every waiting batch look, because messages or places in the queue may have been lost (R13).
    pub fn look_all(&mut self) {
        self.batches_mut().filter_map(Batch::queued).for_each(|queued| queued.hint = true);
    }

    /// Has a waiting batch look (R11), or removes it if it has no waiters left (R8).
    pub(super) fn look_for<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let closed = shell.is_closed();
        let Some(batch) = self.batch_mut(number) else { return };
        if !closed && batch.waiters.any_live(now) {
            return batch.ask(now, shell);
        }
        // Waiters get the reason now, because the batch that knows it is removed.
        let verdict = if closed { Some(Denied::Closed) } else { batch.verdict(now) };
        let why = |request: &Request| verdict.clone().unwrap_or_else(|| request.unanswered());
        batch.waiters.deny_all(shell, why);
        self.dissolve(number, shell);
    }

    /// Gives a claim that the store has just confirmed for `ttl` to the next waiter (R3, R6). Releases it if no waiter
    /// is left.
    pub(super) fn grant_next<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        ttl: Duration,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.batch_mut(number) else { return };
        match batch.hand_on(index, now, Some(ttl), shell) {
            HandedOn::Yes => {}
            HandedOn::Unfit => self.return_unfit(number, index, now, shell),
            // The claim was renewed for a waiter that has left, and others hold the lock by it.
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

    /// Gives a permit whose batch has no waiters left to another batch that owns the lock (R6). Returns the claim if no
    /// caller waits there.
    pub(super) fn pass_on<X: Shell<K>>(
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

    /// Gives up a claim that is of no use to the next waiter (R6). If the batch has other claims the token is released;
    /// if not, the batch enters again first.
    pub(super) fn return_unfit<X: Shell<K>>(
        &mut self,
        number: u64,
        index: usize,
        now: Moment,
        shell: &mut X,
    ) {
        let Some(batch) = self.batch_mut(number) else { return };
        match batch.claims_mut().and_then(|claims| claims.take(index)) {
            Some(claim) => {
                let keep = claim.keep(now);
                shell.release(claim.token, keep);
            }
            None => batch.swap(now, shell),
        }
    }
}
