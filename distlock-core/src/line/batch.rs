//! Batches: callers of one process that share one place in the store's queue, under one token.

use std::time::Duration;

use super::claim::{Claim, Claims, HandedOn};
use super::holder::Recipient;
use super::queued::{InQueue, Queued};
use super::request::{AttemptOutcome, Denied, FaultClass, Freeing, Kinds, Request};
use super::shell::{Enter, RESERVATION, Reservation, Shell, issue, reservation};
use super::waiters::{LocalWaiter, Waiters};
use crate::clock::Moment;
use crate::store::{Answer, Limit};

/// R4: how long a sealed batch still admits callers. Without this, tasks that return one after the other would
/// each be in a batch of their own.
const GRACE: Duration = Duration::from_millis(5);
/// R4: a sealed batch that owns the lock admits one more caller for each two that waited when its turn came. These
/// are the bounded local passes of lock cohorting (Dice, Marathe, Shavit, 2012): the hand-over to another process
/// is most of the cost of a turn, and the others wait longer by less than their waits differ anyway.
const LATE_ADMISSION_DIVISOR: usize = 2;

/// Callers that arrived one after the other and want the lock with the same limit.
///
/// - Its waiters are served in order. Those of a batch that owns the lock get it without a command (R6).
/// - Once sealed it is never opened again (R4), so it ends with its last waiter.
/// - Its `number` and `ticket` stay the same when it takes another token, so it keeps its place in the line and in
///   the store's queue (R6, R10, R12). Only a second grant that is too late costs it the latter (R3).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch<K: Kinds> {
    /// The number that names the batch.
    pub number: u64,
    /// The limit of all its callers (R1).
    pub limit: Limit,
    /// The ticket of its place in the store's queue; 0 if it has none.
    pub ticket: u64,
    /// When the batch was sealed: since then another process waits behind it (R4).
    pub sealed_at: Option<Moment>,
    /// Whether a grant has arrived too late to be used (R3).
    pub late: bool,
    /// How many more callers it admits while it owns the lock and is sealed (R4).
    pub room: usize,
    /// Its waiters.
    pub waiters: Waiters<K>,
    /// Its stage on the way to the lock.
    pub stage: Stage<K>,
}

/// The stage of a batch on its way to the lock.
///
/// A batch begins as `Leading` (R2) or `Queued` (R1). A grant makes it `Owned`. A claim that is lost or unfit for the
/// next waiter makes it `Queued` again, with a new token and its old ticket (R6, R10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
// Nearly every batch owns the lock nearly all the time, so the largest variant is the usual one.
#[allow(clippy::large_enum_variant)]
pub enum Stage<K: Kinds> {
    /// A caller tries to take the lock by itself (R2). The batch has no other callers.
    Leading {
        /// The token of the attempt.
        token: K::Token,
        /// The reservation with which the token was issued.
        reservation: Reservation,
        /// The caller. Its handle is gone once the attempt is settled.
        leader: LocalWaiter<K>,
    },
    /// The batch is in the store's queue, or on its way there.
    Queued(Box<Queued<K>>),
    /// The batch owns the lock by its claims. Each claim has holders, or awaits a renewal for the next one.
    Owned(Claims<K>),
}

impl<K: Kinds> Batch<K> {
    /// Creates a batch without waiters.
    #[inline]
    pub(super) fn new(number: u64, limit: Limit, stage: Stage<K>) -> Self {
        let (ticket, sealed_at, late, room) = (0, None, false, 0);
        Self { number, limit, ticket, sealed_at, late, room, waiters: Waiters::new(), stage }
    }

    /// Returns whether a caller that arrives now may join (R4).
    pub(super) fn admits(&self, now: Moment) -> bool {
        let Some(sealed_at) = self.sealed_at else { return true };
        let has_room = !self.is_owned() || self.room > 0;
        has_room && now < sealed_at.after(GRACE)
    }

    /// Seals the batch, because another process waits behind it (R4).
    pub(super) fn seal(&mut self, now: Moment) {
        self.sealed_at.get_or_insert(now);
    }

    /// Adds a caller that the batch admits (R4).
    #[inline]
    pub(super) fn join(&mut self, at: i64, request: Request, caller: K::Caller) {
        if self.is_owned() && self.sealed_at.is_some() {
            self.room = self.room.saturating_sub(1);
        }
        self.waiters.push_back(at, request, caller);
    }

    /// Makes the batch the owner of the lock. A batch that took a free lock has passed others already, and a reader
    /// that is admitted delays the writer, so both admit no one once they are sealed (R4).
    #[inline]
    pub(super) fn owns(&mut self, claims: Claims<K>) {
        let stood = matches!(&self.stage, Stage::Queued(queued) if queued.stands);
        let admits = stood && !self.limit.is_read();
        self.room = if admits { self.waiters.live() / LATE_ADMISSION_DIVISOR } else { 0 };
        self.stage = Stage::Owned(claims);
    }

    /// Returns whether the batch owns the lock.
    pub fn is_owned(&self) -> bool {
        matches!(self.stage, Stage::Owned(_))
    }

    /// Returns the number of tokens that the batch has at the store.
    pub(super) fn places(&self) -> usize {
        self.claims().map_or(1, Claims::count)
    }

    /// Returns whether callers wait in the batch.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiters.live() > 0
    }

    /// Returns the place in the store's queue, if the batch is at that stage.
    pub(super) fn queued(&mut self) -> Option<&mut Queued<K>> {
        match &mut self.stage {
            Stage::Queued(queued) => Some(queued),
            Stage::Leading { .. } | Stage::Owned(_) => None,
        }
    }

    /// Returns the claims by which the batch owns the lock.
    pub fn claims(&self) -> Option<&Claims<K>> {
        match &self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// Returns the claims by which the batch owns the lock.
    pub(super) fn claims_mut(&mut self) -> Option<&mut Claims<K>> {
        match &mut self.stage {
            Stage::Owned(claims) => Some(claims),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// Returns whether `is` holds for a token with which the batch asks for the lock or owns it.
    pub fn is_of(&self, is: &impl Fn(&K::Token) -> bool) -> bool {
        match &self.stage {
            Stage::Leading { token, .. } => is(token),
            Stage::Queued(queued) => is(&queued.token),
            Stage::Owned(claims) => claims.iter().any(|claim| is(&claim.token)),
        }
    }

    /// Returns the reason why a waiter of the batch does not have the lock, if it is known.
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

    /// Returns when something is due for the batch.
    #[inline]
    pub(super) fn due(&self) -> Moment {
        match &self.stage {
            Stage::Leading { .. } => Moment::NEVER,
            Stage::Queued(queued) => queued.due(),
            Stage::Owned(claims) => claims.due(self.is_crowded()),
        }
    }

    /// Leaves the attempt of a leading batch to the engine, because a second caller depends on it and the leader's
    /// future may never be polled again (R2).
    #[inline]
    pub(super) fn take_over<X: Shell<K>>(&mut self, shell: &mut X) {
        if let Stage::Leading { .. } = self.stage {
            self.take_over_try(shell);
        }
    }

    /// Leaves the attempt to the engine. Apart from `take_over`, so that only the check is inlined.
    fn take_over_try<X: Shell<K>>(&mut self, shell: &mut X) {
        let Stage::Leading { token, reservation, leader } = &self.stage else { return };
        let queued = Queued::new(token.clone(), *reservation);
        let LocalWaiter { at, request, caller } = leader.clone();
        if let Some(caller) = caller {
            shell.take_over(&caller);
            self.waiters.push_back(at, request, caller);
        }
        self.stage = Stage::Queued(Box::new(queued));
    }

    /// Settles the leader's own attempt (R2). If the lock is taken and the caller is `patient`, the batch waits.
    #[inline]
    pub(super) fn settle<X: Shell<K>>(
        &mut self,
        answer: Result<Answer, K::Fault>,
        patient: bool,
        now: Moment,
        shell: &mut X,
    ) -> AttemptOutcome<K::Fault> {
        let Stage::Leading { token, reservation, leader } = &mut self.stage else {
            return AttemptOutcome::TakenOver;
        };
        // Whatever the answer is, the caller does not lead any more.
        let LocalWaiter { at, request, caller } = leader;
        let Some(caller) = caller.take() else { return AttemptOutcome::TakenOver };
        let recipient = Recipient { at: *at, request: *request, caller };
        let token = token.clone();
        let refused = match answer {
            Ok(Answer::Granted { fence, sent }) => {
                return match Claim::start(token, recipient, fence, sent, now, shell) {
                    Ok((claim, grant)) => {
                        self.owns(Claims::one(claim));
                        AttemptOutcome::Held(grant)
                    }
                    Err(why) => AttemptOutcome::Denied { why, release: true },
                };
            }
            Ok(Answer::Taken { remaining }) => Ok(remaining),
            Err(fault) => Err(fault),
        };
        let Recipient { at, request, caller } = recipient;
        let mut queued = Queued::new(token, *reservation);
        match refused {
            Ok(remaining) if patient => {
                queued.taken_until = Some(remaining.map(|remaining| now.after(remaining)));
            }
            // The answer is a clear no, so the token has nothing to release.
            Ok(remaining) => {
                return AttemptOutcome::Denied { why: Denied::Taken(remaining), release: false };
            }
            Err(fault) if patient && fault.is_passing() => {
                // If the caller had no time for an answer, the missing answer is no fault of the store.
                if !request.hurried || !fault.is_timeout() {
                    let pause = shell.jittered(queued.pause);
                    queued.failed(Denied::Fault(fault), now, pause);
                }
            }
            Err(fault) => {
                return AttemptOutcome::Denied { why: Denied::Fault(fault), release: true };
            }
        }
        self.stage = Stage::Queued(Box::new(queued));
        self.waiters.push_back(at, request, caller);
        AttemptOutcome::Wait
    }

    /// Asks the store for the lock (R11). Takes another token before that if the present one has a reservation that
    /// is out of date (R12, R13).
    pub(super) fn ask<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let Some(next) = self.waiters.next(now, shell) else { return };
        let term = next.stored_term(shell.needs_renewal());
        let (ticket, limit) = (self.ticket, self.limit);
        let Some(queued) = self.queued() else { return };
        // The script that reserves the lock reads from the token whether this process is notified, and how long it
        // may take to confirm.
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
            // This token is not in the queue yet.
            queued.stands = false;
        }
        let instead_of = queued.instead_of.take();
        // The release of the old token may reserve the lock for the new one.
        queued.hint = instead_of.is_some();
        shell.enter(Enter { token: queued.token.clone(), term, ticket });
        // The release comes after the entry, or the batch would lose its place or its grant (R6).
        if let Some(old) = instead_of {
            shell.release(old, None);
        }
    }

    /// Notes that the store has the batch in its queue (R3).
    pub(super) fn is_waiting<X: Shell<K>>(&mut self, answer: InQueue, now: Moment, shell: &mut X) {
        let InQueue { ticket, remaining, rank, behind, added } = answer;
        self.ticket = ticket;
        let Stage::Queued(queued) = &mut self.stage else { return };
        queued.trouble = None;
        let taken_until = remaining.map(|remaining| now.after(remaining));
        let was_known = queued.taken_until.replace(taken_until).is_some();
        if added && std::mem::replace(&mut queued.stands, true) {
            queued.put_back();
        }
        queued.look_at = now.after(queued.pause_before_look(remaining, rank, shell));
        if behind > 0 {
            self.seal(now);
        }
        if !was_known {
            // Callers whose wait is over only awaited an answer that says whether the lock is taken.
            let over = self.waiters.iter().filter(|(_, request)| request.wait_until <= now);
            over.for_each(|(caller, _)| shell.wake(caller));
        }
    }

    /// Enters the queue again after a grant that arrived too late to be used (R3): from the old place the first time,
    /// and from the end and after a pause the second time. A process that is too far away for its ttl would keep
    /// those behind it waiting for nothing.
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

    /// Enters the queue again with a new token, at the old place (R6, R10).
    pub(super) fn reenter<X: Shell<K>>(&mut self, ticket: u64, now: Moment, shell: &mut X) {
        let (token, reservation) = issue(RESERVATION, self.limit, now, shell);
        if self.ticket == 0 {
            self.ticket = ticket;
        }
        // A caller of this process had the lock until now, so it is known to be taken.
        let queued = Queued { taken_until: Some(None), ..Queued::new(token, reservation) };
        self.stage = Stage::Queued(Box::new(queued));
    }

    /// Hands a claim to the next waiter, or to all waiters if they are readers (R6).
    ///
    /// `fresh` is the time to live that the store has just confirmed, if it has. It is enough for a waiter that asked
    /// for no more, however long the answer took.
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

    /// Ends a claim whose lock the store keeps for a `min_hold`, and returns what to release. If the batch has no
    /// other claim, its waiters enter again, and so learn how long the lock is kept.
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

    /// Enters again because the only claim is of no use to the next waiter. Its token is released after that (R6).
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
}
