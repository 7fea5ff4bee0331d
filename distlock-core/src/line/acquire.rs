//! R1: callers that come, and those that leave before they have the lock.

use std::cmp::Reverse;
use std::time::Duration;

use super::claim::Fit;
use super::line::Aside;
use super::{
    Answer, Arrival, Attempt, Batch, Claim, Claims, Denied, Fault, Finished, Grant, Kinds, Limit,
    Line, Place, Queued, RESERVATION, Request, Reservation, Shell, Stage, Tried, Waiters, Waiting,
};
use crate::clock::Moment;

/// A process that is not notified looks at least so often (R11); its reservations outlast that.
pub(super) const LOOK_DEAF: Duration = Duration::from_secs(1);

/// The reservation of a token that is issued now: for a process that polls, long enough that it has polled.
pub(super) fn reservation<K: Kinds, X: Shell<K>>(reserve_for: Duration, shell: &X) -> Reservation {
    let notified = shell.is_notified();
    let time = if notified { reserve_for } else { reserve_for.max(LOOK_DEAF * 3) };
    Reservation { notified, time }
}

/// A token under which nothing was sent.
#[inline]
pub(super) fn issue<K: Kinds, X: Shell<K>>(
    reserve_for: Duration,
    limit: Limit,
    now: Moment,
    shell: &mut X,
) -> (K::Token, Reservation) {
    let reservation = reservation(reserve_for, shell);
    (shell.issue(limit, reservation, now), reservation)
}

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
        let is_lost = |lost: &super::line::Lost<K>| lost.holder.place(lost.number) == place;
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
}

impl<K: Kinds> Batch<K> {
    /// R2: more than one depends on a batch's try, so the engine sees to it from now on: the leader's
    /// future may not be polled any more.
    #[inline]
    fn take_over<X: Shell<K>>(&mut self, shell: &mut X) {
        if let Stage::Leading { .. } = self.stage {
            self.take_over_try(shell);
        }
    }

    fn take_over_try<X: Shell<K>>(&mut self, shell: &mut X) {
        let Stage::Leading { token, reservation, leader } = &self.stage else { return };
        let queued = Queued::new(token.clone(), *reservation);
        let Waiting { at, request, seat } = leader.clone();
        if let Some(seat) = seat {
            shell.take_over(&seat);
            self.waiters.push_back(at, request, seat);
        }
        self.stage = Stage::Queued(Box::new(queued));
    }

    #[inline]
    fn settle<X: Shell<K>>(
        &mut self,
        answer: Result<Answer, K::Fault>,
        patient: bool,
        now: Moment,
        shell: &mut X,
    ) -> Tried<K::Fault> {
        let Stage::Leading { token, reservation, leader } = &mut self.stage else {
            return Tried::TakenOver;
        };
        // Whatever the answer is, it does not lead any more.
        let Waiting { at, request, seat } = leader;
        let Some(seat) = seat.take() else { return Tried::TakenOver };
        let (caller, token) = ((*at, *request, seat), token.clone());
        let refused = match answer {
            Ok(Answer::Granted { fence, sent }) => {
                return match start(token, caller, fence, sent, now, shell) {
                    Ok((claim, grant)) => {
                        self.owns(Claims::one(claim));
                        Tried::Held(grant)
                    }
                    Err(why) => Tried::Denied { why, release: true },
                };
            }
            Ok(Answer::Taken { remaining }) => Ok(remaining),
            Err(fault) => Err(fault),
        };
        let (at, request, seat) = caller;
        let mut queued = Queued::new(token, *reservation);
        match refused {
            Ok(remaining) if patient => {
                queued.taken_until = Some(remaining.map(|remaining| now.after(remaining)));
            }
            // A clear no: there is nothing to give back.
            Ok(remaining) => {
                return Tried::Denied { why: Denied::Taken(remaining), release: false };
            }
            Err(fault) if patient && fault.is_passing() => {
                // That it had no time for an answer says nothing of the store.
                if !request.hurried || !fault.is_timeout() {
                    let pause = shell.jittered(queued.pause);
                    queued.failed(Denied::Fault(fault), now, pause);
                }
            }
            Err(fault) => return Tried::Denied { why: Denied::Fault(fault), release: true },
        }
        self.stage = Stage::Queued(Box::new(queued));
        self.waiters.push_back(at, request, seat);
        Tried::Wait
    }
}

/// The claim of a token that was granted to a caller's own try, or why it is of no use.
#[inline]
fn start<K: Kinds, X: Shell<K>>(
    token: K::Token,
    (at, request, seat): (i64, Request, K::Seat),
    fence: u64,
    sent: Moment,
    now: Moment,
    shell: &X,
) -> Result<(Claim<K>, Grant), Denied<K::Fault>> {
    let term = request.stored_term(shell.needs_renewal());
    let granted = (token, request.limit);
    let mut claim = Claim::granted(granted, fence, sent, term, shell.needs_renewal());
    if now >= claim.deadline {
        return Err(Denied::Outlasted);
    }
    let fencing_token = claim.issue().ok_or(Denied::NoFence)?;
    // `close` looks at the line after this: either it sees this claim, or this sees that it has begun.
    if shell.is_closed() {
        return Err(Denied::Closed);
    }
    let grant = claim.hold((at, request, seat), fencing_token, sent);
    Ok((claim, grant))
}
