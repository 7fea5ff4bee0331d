//! Neighbours in a lock's line: they stand at one place of the store's queue, under one token.

use std::time::Duration;

use super::claim::{Claim, Claims, HandedOn, start};
use super::queued::{InQueue, LONGEST_RESERVATION, Queued};
use super::request::{Denied, Fault, Freeing, Kinds, Request, Tried};
use super::shell::{Enter, RESERVATION, Reservation, Shell, issue, reservation};
use super::waiters::{Waiters, Waiting};
use crate::clock::Moment;
use crate::store::{Answer, Limit};

/// R4: a batch that was sealed before it owns the lock still admits arrivals within this time: tasks
/// that come back one after the other would else stand alone for ever.
const GRACE: Duration = Duration::from_millis(5);

/// R4: while a batch owns the lock it admits at most this part of its size again, within the same time.
/// The bounded local passes of lock cohorting (Dice, Marathe, Shavit, 2012): the way to the lock is most
/// of what a turn costs, and what this costs the others is less than their waits differ anyway.
const LATE_ADMISSION_DIVISOR: usize = 2;

/// Callers that arrived one after the other and want the lock with the same limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch<K: Kinds> {
    /// Stays the same while its token changes.
    pub number: u64,
    /// How many may hold the lock when one of it is let in.
    pub limit: Limit,
    /// Its place in the store's queue; 0 if it has none.
    pub ticket: u64,
    /// Since when another process stands behind it.
    pub sealed_at: Option<Moment>,
    /// R3: it was granted the lock too late to use it.
    pub late: bool,
    /// How many more it admits while it owns the lock, although sealed (R4).
    pub room: usize,
    /// Its callers, but for the holder.
    pub waiters: Waiters<K>,
    /// How far it has come.
    pub stage: Stage<K>,
}

/// How far a batch has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
// Nearly every batch owns the lock nearly all the time, and should not be taken to the heap for it.
#[allow(clippy::large_enum_variant)]
pub enum Stage<K: Kinds> {
    /// A caller tries by itself (R2).
    Leading {
        /// Under this token.
        token: K::Token,
        /// With which it was issued.
        reservation: Reservation,
        /// The caller.
        leader: Waiting<K>,
    },
    /// It is in the store's queue, or on its way there.
    Queued(Box<Queued<K>>),
    /// Its claims own the lock; callers hold it, or will once it was renewed.
    Owned(Claims<K>),
}

impl<K: Kinds> Batch<K> {
    #[inline]
    pub(super) fn new(number: u64, limit: Limit, stage: Stage<K>) -> Self {
        let (ticket, sealed_at, late, room) = (0, None, false, 0);
        Self { number, limit, ticket, sealed_at, late, room, waiters: Waiters::new(), stage }
    }

    /// R4: whether a caller that arrives now may still stand here.
    pub(super) fn admits(&self, now: Moment) -> bool {
        let Some(sealed_at) = self.sealed_at else { return true };
        let has_room = !self.is_owned() || self.room > 0;
        has_room && now < sealed_at.after(GRACE)
    }

    /// R4: another process stands behind it.
    pub(super) fn seal(&mut self, now: Moment) {
        self.sealed_at.get_or_insert(now);
    }

    /// R4: a caller joins that the batch admits.
    #[inline]
    pub(super) fn join(&mut self, at: i64, request: Request, seat: K::Seat) {
        if self.is_owned() && self.sealed_at.is_some() {
            self.room = self.room.saturating_sub(1);
        }
        self.waiters.push_back(at, request, seat);
    }

    /// Its claim owns the lock. A batch that took a free lock has passed others already (R4); and a reader
    /// delays no one but a writer that waits for all readers to end.
    #[inline]
    pub(super) fn owns(&mut self, claims: Claims<K>) {
        let stood = matches!(&self.stage, Stage::Queued(queued) if queued.stands);
        let admits = stood && !self.limit.is_read();
        self.room = if admits { self.waiters.live() / LATE_ADMISSION_DIVISOR } else { 0 };
        self.stage = Stage::Owned(claims);
    }

    /// The lock is its claims'.
    pub fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned(_))
    }

    /// Under how many tokens it stands at the store.
    pub(super) fn places(&self) -> usize {
        self.claims().map_or(1, Claims::count)
    }

    /// Others of this process wait behind the holder.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiters.live() > 0
    }

    pub(super) fn queued(&mut self) -> Option<&mut Queued<K>> {
        match &mut self.stage {
            Stage::Queued(queued) => Some(queued),
            Stage::Leading { .. } | Stage::Owned(_) => None,
        }
    }

    /// The claims by which it owns the lock.
    pub fn claims(&self) -> Option<&Claims<K>> {
        match &self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    pub(super) fn claims_mut(&mut self) -> Option<&mut Claims<K>> {
        match &mut self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// The token under which it stands at the store: asks, or owns.
    pub fn is_of(&self, is: &impl Fn(&K::Token) -> bool) -> bool {
        match &self.stage {
            Stage::Leading { token, .. } => is(token),
            Stage::Queued(queued) => is(&queued.token),
            Stage::Owned(claims) => claims.iter().any(|claim| is(&claim.token)),
        }
    }

    /// Why a caller that waits in it has not got the lock so far, if that is known.
    pub(super) fn verdict(&self, now: Moment) -> Option<Denied<K::Fault>> {
        match &self.stage {
            Stage::Leading { .. } => None,
            Stage::Owned(claims) => {
                let claim = claims.first();
                Some(Denied::Taken(claim.is_held().then(|| claim.remaining(now))))
            }
            Stage::Queued(queued) => match (&queued.trouble, queued.taken_until) {
                (Some(trouble), _) => Some(trouble.clone()),
                (None, Some(until)) => Some(Denied::Taken(until.map(|until| until.since(now)))),
                (None, None) => None,
            },
        }
    }

    /// When it is to be looked at next.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        match &self.stage {
            Stage::Leading { .. } => Moment::NEVER,
            Stage::Queued(queued) => queued.due(),
            Stage::Owned(claims) => claims.due(self.is_crowded()),
        }
    }

    /// R2: more than one depends on a batch's try, so the engine sees to it from now on: the leader's
    /// future may not be polled any more.
    #[inline]
    pub(super) fn take_over<X: Shell<K>>(&mut self, shell: &mut X) {
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
    pub(super) fn settle<X: Shell<K>>(
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

    /// R11: asks the store, under a token that says what is so now (R12, R13).
    pub(super) fn ask<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let Some(next) = self.waiters.next(now, shell) else { return };
        let term = next.stored_term(shell.needs_renewal());
        let (ticket, limit) = (self.ticket, self.limit);
        let Some(queued) = self.queued() else { return };
        // The script that hands the lock on must know whether this process is notified, and how long it
        // may take to answer.
        if queued.reservation != reservation(queued.reserve_for, shell) {
            let (token, reservation) = issue(queued.reserve_for, limit, now, shell);
            let old = std::mem::replace(&mut queued.token, token);
            queued.reservation = reservation;
            shell.retire(&old);
            if !shell.is_unsent(&old) {
                debug_assert!(queued.instead_of.is_none(), "a token that replaces another is new");
                queued.instead_of = Some(old);
            }
        }
        queued.asking = true;
        if shell.is_unsent(&queued.token) {
            // It has not stood there yet.
            queued.stands = false;
        }
        let instead_of = queued.instead_of.take();
        // Once the old token is released the lock may be reserved for the new one.
        queued.hint = instead_of.is_some();
        shell.enter(Enter { token: queued.token.clone(), term, ticket });
        // Behind it, or the batch would lose its place, or its grant.
        if let Some(old) = instead_of {
            shell.release(old, None);
        }
    }

    /// R3: it stands in the queue.
    pub(super) fn stands<X: Shell<K>>(&mut self, place: InQueue, now: Moment, shell: &mut X) {
        let InQueue { ticket, remaining, rank, behind, added } = place;
        self.ticket = ticket;
        let Stage::Queued(queued) = &mut self.stage else { return };
        queued.trouble = None;
        let taken_until = remaining.map(|remaining| now.after(remaining));
        let was_known = queued.taken_until.replace(taken_until).is_some();
        if added && std::mem::replace(&mut queued.stands, true) {
            // R12: it was called and did not answer in time, or was not notified. Under a new token,
            // which says that it takes longer.
            queued.reserve_for = (queued.reserve_for * 2).min(LONGEST_RESERVATION);
            queued.hint = true;
        }
        queued.look_at = now.after(queued.pause_before_look(remaining, rank, shell));
        if behind > 0 {
            self.seal(now);
        }
        if !was_known {
            // Callers whose wait is over have waited only for this answer.
            let over = self.waiters.iter().filter(|(_, request)| request.wait_until <= now);
            over.for_each(|(seat, _)| shell.wake(seat));
        }
    }

    /// R3: it was granted the lock too late to use it, which may happen. But one that is too far away
    /// for its ttl asks from the end of the queue and after a pause the next time, or those behind it
    /// would wait for nothing.
    pub(super) fn too_late<X: Shell<K>>(&mut self, claim: Claim<K>, now: Moment, shell: &mut X) {
        let old = claim.token.clone();
        let again = std::mem::replace(&mut self.late, true);
        self.reenter(claim.ticket, now, shell);
        let pause = if again { self.queued().map(|queued| queued.pause) } else { None };
        let pause = pause.map(|pause| shell.jittered(pause));
        let Stage::Queued(queued) = &mut self.stage else { return };
        match pause {
            None => {
                shell.retire(&old);
                queued.instead_of = Some(old);
            }
            Some(pause) => {
                queued.failed(Denied::Outlasted, now, pause);
                self.ticket = 0;
                shell.release(old, None);
            }
        }
    }

    /// R6, R10: the batch asks for the lock again under a new token, from its old place.
    pub(super) fn reenter<X: Shell<K>>(&mut self, ticket: u64, now: Moment, shell: &mut X) {
        let (token, reservation) = issue(RESERVATION, self.limit, now, shell);
        if self.ticket == 0 {
            self.ticket = ticket;
        }
        // A caller of this process has had the lock until now.
        let queued = Queued { taken_until: Some(None), ..Queued::new(token, reservation) };
        self.stage = Stage::Queued(Box::new(queued));
    }

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
    pub(super) fn end_kept<X: Shell<K>>(
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
