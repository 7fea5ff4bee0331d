//! R3, R4, R11, R12, R13: a batch at the store's queue. It enters, is called, and looks again when it
//! was not.

use std::time::Duration;

use super::acquire::{LOOK_DEAF, issue, reservation};
use super::{
    Batch, Claim, Claims, Denied, Enter, Entered, Fault, Kinds, Line, Queued, RESERVATION, Request,
    Shell, Stage,
};
use crate::clock::Moment;
use crate::store::Term;

/// R11: a notification may be lost.
const LOOK: Duration = Duration::from_secs(5);
/// R11: how long after it should be free a lock is looked at.
const LATE: Duration = Duration::from_millis(5);
/// R12: the longest reservation.
const LONGEST_RESERVATION: Duration = Duration::from_secs(8);

/// What the store says to a batch that waits.
struct InQueue {
    ticket: u64,
    remaining: Option<Duration>,
    rank: u64,
    behind: u64,
    added: bool,
}

impl<K: Kinds> Line<K> {
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
}

impl<K: Kinds> Batch<K> {
    /// R11: asks the store, under a token that says what is so now (R12, R13).
    fn ask<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
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
    fn stands<X: Shell<K>>(&mut self, place: InQueue, now: Moment, shell: &mut X) {
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
    fn too_late<X: Shell<K>>(&mut self, claim: Claim<K>, now: Moment, shell: &mut X) {
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
}

impl<K: Kinds> Queued<K> {
    /// R11: how long to wait before the next look.
    fn pause_before_look<X: Shell<K>>(
        &mut self,
        remaining: Option<Duration>,
        rank: u64,
        shell: &mut X,
    ) -> Duration {
        let after = if rank == 0 { LATE } else { self.reserve_for };
        let free = remaining.map(|remaining| remaining + after);
        let look = match self.reservation.notified {
            true => shell.jittered(LOOK / 5) + LOOK * 4 / 5,
            false => self.deaf_look(rank, shell),
        };
        free.map_or(look, |free| free.min(look))
    }

    /// How long a process without messages waits before it looks. Early looks are cheap, and the lock is often
    /// free soon or the queue moves. Later in the queue it looks less often, and ever less while nothing moves.
    fn deaf_look<X: Shell<K>>(&mut self, rank: u64, shell: &mut X) -> Duration {
        let first = shell.first_look();
        if first >= LOOK_DEAF {
            return shell.jittered(LOOK_DEAF);
        }
        let places = u32::try_from(rank).unwrap_or(u32::MAX).saturating_add(1);
        let pause = match self.looked {
            Some((before, pause)) if before == rank => pause * 2,
            _ => first.saturating_mul(places),
        };
        let pause = pause.min(LOOK_DEAF);
        self.looked = Some((rank, pause));
        pause / 2 + shell.jittered(pause / 2)
    }
}
