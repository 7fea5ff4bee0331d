//! R1, R3, R4: from the arrival of a caller to its grant.

use std::cmp::Reverse;
use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims, Fit, HandedOn, start};
use super::line::{Aside, Line, Lost};
use super::queued::{InQueue, Queued};
use super::request::{Arrival, Attempt, Denied, Fault, Finished, Kinds, Place, Request, Tried};
use super::shell::{RESERVATION, Shell, issue};
use super::waiters::{Waiters, Waiting};
use crate::clock::Moment;
use crate::store::{Answer, Entered, Limit, Term};

impl<K: Kinds> Line<K> {
    /// R1: a caller wants the lock. It waits for it if fewer than `line_ends` here do already; with 0 it
    /// does not wait.
    #[inline]
    pub fn arrive<X: Shell<K>>(
        &mut self,
        request: Request,
        line_ends: usize,
        now: Moment,
        seat: impl FnOnce(Place) -> K::Seat,
        shell: &mut X,
    ) -> Arrival<K> {
        if self.is_vacant() {
            return Arrival::Lead(self.lead(request, now, seat, shell));
        }
        if request.limit.is_read() && self.reads(&request, now, shell) {
            return self.read_along(request, now, seat);
        }
        if line_ends == 0 {
            return match self.remaining_for(request.limit, now) {
                Some(remaining) => Arrival::Busy(Some(remaining)),
                None => {
                    let (token, _) = issue(RESERVATION, request.limit, now, shell);
                    let place = Place { batch: shell.number(), at: 0 };
                    Arrival::Alone(Attempt { token, place, seat: seat(place) })
                }
            };
        }
        if line_ends < usize::MAX && self.waiting() >= line_ends {
            return Arrival::Busy(self.remaining(now));
        }
        let (place, seat) = self.join(request, now, seat, shell);
        Arrival::Wait(place, seat)
    }

    #[inline]
    fn lead<X: Shell<K>>(
        &mut self,
        request: Request,
        now: Moment,
        seat: impl FnOnce(Place) -> K::Seat,
        shell: &mut X,
    ) -> Attempt<K> {
        let (token, reservation) = issue(RESERVATION, request.limit, now, shell);
        let mut waiters = Waiters::new();
        let place = Place { batch: shell.number(), at: waiters.number() };
        let seat = seat(place);
        let leader = Waiting { at: place.at, request, seat: Some(seat.clone()) };
        let stage = Stage::Leading { token: token.clone(), reservation, leader };
        self.push(Batch { waiters, ..Batch::new(place.batch, request.limit, stage) });
        Attempt { token, place, seat }
    }

    /// All in front are readers, by a lease that is fit for one more reader, and no other call waits behind
    /// them.
    fn reads<X: Shell<K>>(&self, request: &Request, now: Moment, shell: &X) -> bool {
        let joins = |last: &&Batch<K>| last.limit == request.limit && last.admits(now);
        let claims = self.last().filter(joins).and_then(Batch::claims);
        let term = request.stored_term(shell.needs_renewal());
        let fits = |claim: &Claim<K>| claim.fit(&term, false, now) == Fit::AsItIs;
        claims.is_some_and(|claims| fits(claims.first())) && !shell.is_closed()
    }

    /// R1: the caller holds the lock with those in front.
    fn read_along(
        &mut self,
        request: Request,
        now: Moment,
        seat: impl FnOnce(Place) -> K::Seat,
    ) -> Arrival<K> {
        let Some(last) = self.last_mut() else { return Arrival::Busy(None) };
        let place = Place { batch: last.number, at: last.waiters.number() };
        let Some(claim) = last.claims_mut().and_then(|claims| claims.get_mut(0)) else {
            return Arrival::Busy(None);
        };
        let Some(fencing_token) = claim.issue() else { return Arrival::Busy(None) };
        let seat = seat(place);
        let caller = (place.at, request, seat.clone());
        let grant = claim.hold(caller, fencing_token, now);
        claim.joined = now;
        Arrival::Held(place, seat, grant)
    }

    #[inline]
    fn join<X: Shell<K>>(
        &mut self,
        request: Request,
        now: Moment,
        seat: impl FnOnce(Place) -> K::Seat,
        shell: &mut X,
    ) -> (Place, K::Seat) {
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
        let Some(batch) = self.numbered(number) else { unreachable!("it was found or pushed") };
        batch.take_over(shell);
        let place = Place { batch: number, at: batch.waiters.number() };
        let seat = seat(place);
        batch.join(place.at, request, seat.clone());
        // Holders do not hand the lock on if others may hold it with them.
        if batch.limit.is_read() {
            batch.hand_on(0, now, None, shell);
        }
        (place, seat)
    }

    /// R1: the batch that a caller with this limit joins. Of batches that wait for permits there may be
    /// as many as there are permits, and it joins the one in which it is served first.
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
        // Of equals, the one in front.
        let soonest = open().max_by_key(|batch| Reverse(batch.waiters.live() / batch.places()));
        soonest.map(|batch| batch.number)
    }

    /// R2: the store has answered a try, or has not. The caller waits if it is `patient`.
    #[inline]
    pub fn tried<X: Shell<K>>(
        &mut self,
        place: Place,
        answer: Result<Answer, K::Fault>,
        patient: bool,
        now: Moment,
        shell: &mut X,
    ) -> Tried<K::Fault> {
        let Some(batch) = self.numbered(place.batch) else { return Tried::TakenOver };
        let Stage::Leading { .. } = batch.stage else { return Tried::TakenOver };
        let tried = batch.settle(answer, patient, now, shell);
        if let Tried::Denied { .. } = tried {
            self.take_out(place.batch);
        }
        tried
    }

    /// The same for a try of a caller past the line.
    pub fn tried_alone<X: Shell<K>>(
        &mut self,
        attempt: &Attempt<K>,
        request: Request,
        answer: Result<Answer, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) -> Tried<K::Fault> {
        let (fence, sent) = match answer {
            Ok(Answer::Granted { fence, sent }) => (fence, sent),
            Ok(Answer::Taken { remaining }) => {
                return Tried::Denied { why: Denied::Taken(remaining), release: false };
            }
            Err(fault) => return Tried::Denied { why: Denied::Fault(fault), release: true },
        };
        let Attempt { token, place, seat } = attempt.clone();
        let started = start(token, (place.at, request, seat), fence, sent, now, shell);
        match started {
            Ok((claim, grant)) => {
                self.aside.push(Aside { number: place.batch, claim });
                Tried::Held(grant)
            }
            Err(why) => Tried::Denied { why, release: true },
        }
    }

    /// A caller gives up on its try, and no other call depends on it: its token is to be released. False
    /// if the engine has taken it over: then the caller leaves its place.
    pub fn give_up_try(&mut self, place: Place) -> bool {
        let leads = self
            .numbered(place.batch)
            .is_some_and(|batch| matches!(batch.stage, Stage::Leading { .. }));
        if leads {
            self.take_out(place.batch);
        }
        leads
    }

    /// A caller leaves its place, whether it waits or was granted the lock and has not taken it. What
    /// it says is to be released by the caller.
    pub fn leave<X: Shell<K>>(
        &mut self,
        place: Place,
        now: Moment,
        shell: &mut X,
    ) -> Option<Finished<K>> {
        let Some(batch) = self.numbered(place.batch) else {
            return self.is_held_or_lost(place).then(|| self.finish(place, now, shell));
        };
        if batch.waiters.leave(place.at) {
            // R8: no waiter is left.
            if !batch.is_crowded() && batch.queued().is_some() {
                self.dissolve(place.batch, shell);
            }
            return None;
        }
        self.is_held_or_lost(place).then(|| self.finish(place, now, shell))
    }

    fn is_held_or_lost(&self, place: Place) -> bool {
        let is_lost = |lost: &Lost<K>| lost.holder.place(lost.number) == place;
        self.claim_at(place).is_some() || self.lost.iter().any(is_lost)
    }

    /// R5: a caller that did not take its grant in time asks for the lock again, in front of all
    /// others. `None` if the manager gives no more.
    pub fn rejoin<X: Shell<K>>(
        &mut self,
        request: Request,
        seat: &K::Seat,
        now: Moment,
        shell: &mut X,
    ) -> Option<Place> {
        if shell.is_closed() {
            shell.deny(seat, Denied::Closed);
            return None;
        }
        if self.is_vacant() {
            let (token, reservation) = issue(RESERVATION, request.limit, now, shell);
            // It went on to others.
            let queued = Queued { taken_until: Some(None), ..Queued::new(token, reservation) };
            let stage = Stage::Queued(Box::new(queued));
            self.push(Batch::new(shell.number(), request.limit, stage));
        }
        // Readers wait only for callers of another kind in front of them.
        let in_front = |first: &&mut Batch<K>| {
            first.limit == request.limit && !(first.limit.is_read() && first.is_owned())
        };
        let Some(first) = self.first_mut().filter(in_front) else {
            return Some(self.join(request, now, |_| seat.clone(), shell).0);
        };
        first.take_over(shell);
        let at = first.waiters.push_front(request, seat.clone());
        Some(Place { batch: first.number, at })
    }

    /// R3: the store has answered a batch. `term` is what it was asked for.
    pub fn entered<X: Shell<K>>(
        &mut self,
        token: &K::Token,
        term: Term,
        answer: Result<Entered, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) {
        let last = self.last().map(|batch| batch.limit);
        // Gone, or under another token by now: this one's release is on its way.
        let Some(batch) = self.of_token(|own| own == token) else { return };
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
                // A batch of the same limit is behind this one only if this one is sealed, or for permits.
                if contended || last != Some(batch.limit) {
                    batch.seal(now);
                }
                let alone = batch.limit.is_alone();
                self.grant_next(number, 0, term.stored_for(), now, shell);
                // The next one may hold it as well, and would not be notified.
                if !alone && !shell.is_notified() {
                    self.look();
                }
            }
            Ok(Entered::Queued { ticket, remaining, rank, behind, added }) => {
                batch.stands(InQueue { ticket, remaining, rank, behind, added }, now, shell);
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

    /// R4: the store may have reserved the lock for a token. Ignore tokens that the line does not
    /// [know](Self::knows).
    pub fn called(&mut self, is: impl Fn(&K::Token) -> bool) {
        if let Some(queued) = self.of_token(is).and_then(Batch::queued) {
            queued.hint = true;
        }
    }

    /// R4: another process stands behind a token.
    pub fn sealed(&mut self, is: impl Fn(&K::Token) -> bool, now: Moment) {
        if let Some(batch) = self.of_token(is) {
            batch.seal(now);
        }
    }

    /// The lock may be free: the first batch that waits for it looks.
    pub fn look(&mut self) {
        if let Some(queued) = self.batches_mut().find_map(Batch::queued) {
            queued.hint = true;
        }
    }

    /// Places in the queue, and notifications of them, may have been lost: every batch looks.
    pub fn look_all(&mut self) {
        self.batches_mut().filter_map(Batch::queued).for_each(|queued| queued.hint = true);
    }

    /// A batch that waits is due: it asks, or goes if it has no waiters left.
    pub(super) fn look_for<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let closed = shell.is_closed();
        let Some(batch) = self.numbered(number) else { return };
        if !closed && batch.waiters.any_live(now) {
            return batch.ask(now, shell);
        }
        // Waiters get the reason now: later there is no batch to take it from.
        let verdict = if closed { Some(Denied::Closed) } else { batch.verdict(now) };
        let why = |request: &Request| verdict.clone().unwrap_or_else(|| request.unanswered());
        batch.waiters.deny_all(shell, why);
        self.dissolve(number, shell);
    }

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

    /// R6: a permit without waiters left in its batch goes to a waiter of another batch that was let in as
    /// well. Returns the claim if there is none.
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
}
