//! Waiting at the store: batches enter its queue, are notified, and ask again when they were not.
//!
//! Everything that could create a lock for a waiting batch is sent from here, on the engine's thread
//! and never twice at the same time. So a release that the engine sends later arrives later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::batch::{Batch, Queued, Stage};
use super::claim::Claim;
use super::lines::{numbered, of_token};
use super::serve::Due;
use super::table::{Effects, LockTable, reservation_of};
use super::waiter::{Denied, Waiter};
use crate::clock::Moment;
use crate::error::BackendKind;
use crate::jitter::jittered;
use crate::name::LockName;
use crate::store::owner::Owner;
use crate::store::{Entered, Entry, Fault, Message, News, Op, Term};
use crate::token::Token;

/// The poll interval of a process that is notified: a notification may be lost.
const POLL: Duration = Duration::from_secs(5);
/// The poll interval of a process that is not.
pub(super) const POLL_UNNOTIFIED: Duration = Duration::from_secs(1);
/// A store in this process that does not say how long a lock is taken is asked after this.
const POLL_LOCAL: Duration = Duration::from_millis(250);
/// How long after it should be free a lock is asked for again.
const AFTER_EXPIRY: Duration = Duration::from_millis(5);
/// A reservation that was not used in time is twice as long the next time, up to this.
const LONGEST_RESERVATION: Duration = Duration::from_secs(8);

/// One question to the store.
struct Ask {
    entry: Entry,
    claim: Arc<Claim>,
    /// A token to be released behind it.
    instead_of: Option<Arc<Owner>>,
}

impl LockTable {
    /// Has the batches of a lock ask the store: on the engine, or here if the store is in this process.
    pub(super) fn schedule_poll(self: &Arc<Self>, lock: &Arc<LockName>) {
        if self.is_remote() {
            let (table, lock) = (self.clone(), lock.clone());
            self.background.spawn(async move { table.poll_queue(&lock) });
        } else {
            self.poll_queue(lock);
        }
    }

    /// Asks the store for every batch that is due.
    pub(super) fn poll_queue(self: &Arc<Self>, lock: &Arc<LockName>) {
        let mut effects = Effects::default();
        let (mut asks, mut overdue, mut deserted) = (Vec::new(), Vec::new(), Vec::new());
        {
            let mut lines = self.lines(lock.stored());
            let now = self.clock().now();
            let notified = self.store.hears(lock);
            let Some(line) = lines.get_mut(lock.stored()) else { return };
            for batch in line.batches() {
                match &batch.stage {
                    Stage::Queued(queued) if queued.asking => {}
                    Stage::Queued(queued) if queued.is_due(now) => {
                        if self.is_closed() || !batch.has_live(now) {
                            self.deny_all(batch, now, &mut effects);
                            deserted.push(batch.number);
                        } else if let Some(next) = batch.next(now) {
                            let term = next.wish.term_at(self.is_remote());
                            asks.push(self.ask_for(batch, term, notified));
                        }
                    }
                    Stage::Queued(queued) if queued.slot.is_none() => {
                        self.plan(batch, &mut effects)
                    }
                    // The engine watches the leases of other stores.
                    Stage::Owned if !self.is_remote() => {
                        let holder = batch.claim.holder();
                        overdue.extend(holder.filter(|holder| now >= holder.ends_at()));
                    }
                    _ => {}
                }
            }
            for number in deserted {
                self.dissolve(&mut lines, lock.stored(), number, &mut effects);
            }
        }
        effects.carry_out(self, lock);
        for lease in overdue {
            self.end_overdue(&lease, self.clock().now());
        }
        for ask in asks {
            self.ask(ask);
        }
    }

    /// Ends every wait of a batch that is about to be taken out. A waiter that asks later finds no batch
    /// to tell why.
    fn deny_all(&self, batch: &mut Batch, now: Moment, effects: &mut Effects) {
        let verdict = match batch.verdict(now) {
            _ if self.is_closed() => Some(Denied::Fault(Fault::closed())),
            verdict => verdict,
        };
        for waiter in batch.waiters() {
            let denied = verdict.clone().unwrap_or_else(|| waiter.wish.unanswered());
            effects.wake(waiter.deny(denied));
        }
    }

    fn ask_for(&self, batch: &mut Batch, term: Term, notified: bool) -> Ask {
        let Batch { stage, claim, ticket, .. } = batch;
        let Stage::Queued(queued) = stage else { unreachable!("only queued batches ask") };
        if let Some(slot) = queued.slot.take() {
            self.timers().remove(slot);
        }
        let known = Token::parse(&claim.owner.token);
        let reservation = reservation_of(notified, queued.reservation);
        if known.is_none_or(|token| token.hears != notified || token.reservation != reservation) {
            // The token tells the process that frees the lock whether this one is notified, and for how
            // long to reserve the lock.
            let new = self.new_claim(&claim.owner.lock, queued.reservation);
            let old = std::mem::replace(claim, new);
            old.owner.retire();
            if !old.owner.is_unsent() {
                debug_assert!(queued.instead_of.is_none(), "a claim that replaces another is new");
                queued.instead_of = Some(old.owner.clone());
            }
        }
        queued.asking = true;
        if claim.owner.is_unsent() {
            // It has not stood there yet.
            queued.stands = false;
        }
        let instead_of = queued.instead_of.take();
        // Once the old claim is released the lock may be reserved for the new one.
        queued.hint = instead_of.is_some();
        let entry = Entry { owner: claim.owner.clone(), term, ticket: *ticket };
        Ask { entry, claim: claim.clone(), instead_of }
    }

    fn ask(self: &Arc<Self>, ask: Ask) {
        let Ask { entry, claim, instead_of } = ask;
        let term = entry.term;
        let limit = self.clock().now().after(self.command_timeout);
        let op = self.store.clone().enter(entry, limit);
        let table = self.clone();
        self.follow(op, move |answer| table.entered(&claim, term, answer));
        // Behind it, or the batch would lose its place, or its grant.
        if let Some(old) = instead_of {
            self.release_in_background(old, None);
        }
    }

    /// Sends what `op` has to send, here and now, and sees to its answer when it is there.
    fn follow<T: Send + 'static>(
        &self,
        mut op: Op<T>,
        then: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) {
        match Pin::new(&mut op).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => then(answer),
            Poll::Pending => self.background.spawn_here(self.is_remote(), async move {
                then(op.await);
            }),
        }
    }

    /// The store has answered a batch. // R3
    fn entered(self: &Arc<Self>, claim: &Arc<Claim>, term: Term, answer: Result<Entered, Fault>) {
        let lock = &claim.owner.lock;
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            let now = self.clock().now();
            let Some(line) = lines.get_mut(lock.stored()) else { return };
            let last = line.last().number;
            // Gone, or under another claim by now: this one's release is on its way.
            let Some(batch) = line.of_claim(claim) else { return };
            let is_last = batch.number == last;
            let Stage::Queued(queued) = &mut batch.stage else { return };
            queued.asking = false;
            match answer {
                Ok(Entered::Granted { fence, sent, contended }) => {
                    claim.granted(fence, sent, self.deadline(sent, term));
                    if now < claim.deadline() {
                        batch.owns();
                        if contended || !is_last {
                            batch.seal(now);
                        }
                        self.grant(&mut lines, claim, term.stored_for(), &mut effects);
                    } else {
                        self.too_late(batch, claim, now, &mut effects);
                    }
                }
                Ok(Entered::Queued { ticket, rest, rank, behind, added }) => {
                    batch.ticket = ticket;
                    self.stands(batch, rest, rank, added, now, &mut effects);
                    if behind > 0 {
                        batch.seal(now);
                    }
                    self.plan(batch, &mut effects);
                }
                Err(fault) if fault.passing => {
                    queued.failed(fault, now);
                    self.plan(batch, &mut effects);
                }
                Err(fault) => {
                    let number = batch.number;
                    for waiter in batch.waiters() {
                        effects.wake(waiter.deny(Denied::Fault(fault.clone())));
                    }
                    self.dissolve(&mut lines, lock.stored(), number, &mut effects);
                }
            }
        }
        effects.carry_out(self, lock);
    }

    /// A batch stands in the store's queue, `rank` others in front of it; it was `added` if it did not
    /// stand there before.
    fn stands(
        &self,
        batch: &mut Batch,
        remaining: Option<Duration>,
        rank: u64,
        added: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Batch { stage: Stage::Queued(queued), claim, .. } = batch else { return };
        queued.trouble = None;
        let taken_until = remaining.map(|remaining| now.after(remaining));
        let was_known = queued.taken_until.replace(taken_until).is_some();
        if added && std::mem::replace(&mut queued.stands, true) {
            // The lock was reserved for it and it did not answer in time, or was not notified: a
            // new token says that it takes longer. // R12
            queued.reservation = (queued.reservation * 2).min(LONGEST_RESERVATION);
            queued.hint = true;
        }
        queued.poll_at = now.after(self.pause(claim, queued.reservation, remaining, rank));
        if !was_known {
            // Those whose wait is over have only waited for this.
            for waiter in batch.waiters().filter(|waiter| waiter.wish.wait <= now) {
                effects.wake(waiter.prompt());
            }
        }
    }

    /// A batch was granted the lock too late to use it, which may happen. But one that is too far away
    /// for its ttl asks from the end of the queue and after a pause the next time, or those behind it
    /// would wait for nothing.
    fn too_late(&self, batch: &mut Batch, claim: &Arc<Claim>, now: Moment, effects: &mut Effects) {
        if !std::mem::replace(&mut batch.late, true) {
            self.reenter(batch, Some(claim.clone()));
            return effects.poll();
        }
        self.reenter(batch, None);
        batch.ticket = 0;
        if let Stage::Queued(queued) = &mut batch.stage {
            let text = "its answer took longer than the lock's ttl";
            queued.failed(Fault::passing(BackendKind::TimedOut, text), now);
        }
        self.plan(batch, effects);
        effects.leave(claim.owner.clone());
    }

    /// How long to wait before the next poll.
    fn pause(
        &self,
        claim: &Claim,
        reservation: Duration,
        remaining: Option<Duration>,
        rank: u64,
    ) -> Duration {
        if !self.is_remote() {
            return remaining.unwrap_or_else(|| jittered(POLL_LOCAL));
        }
        let late = if rank == 0 { AFTER_EXPIRY } else { reservation };
        let free = remaining.map(|remaining| remaining + late);
        let notified = Token::parse(&claim.owner.token).is_some_and(|token| token.hears);
        let poll =
            if notified { jittered(POLL / 5) + POLL * 4 / 5 } else { jittered(POLL_UNNOTIFIED) };
        free.map_or(poll, |free| free.min(poll))
    }

    /// Has a batch polled when it is due.
    fn plan(&self, batch: &mut Batch, effects: &mut Effects) {
        let Batch { stage: Stage::Queued(queued), claim, .. } = batch else { return };
        if queued.hint {
            effects.poll();
        } else if self.is_remote() {
            let due = Due::Poll(claim.owner.lock.clone());
            queued.slot = Some(self.timers().insert(queued.poll_at, due));
        } else {
            self.wake_next(batch, effects);
        }
    }

    /// Has the first waiter of a batch set its timer anew, where the engine has none for it.
    pub(super) fn wake_next(&self, batch: &mut Batch, effects: &mut Effects) {
        if let Some(next) = batch.next(self.clock().now()) {
            effects.wake(next.prompt());
        }
    }

    /// When a waiter has to poll by itself, where the engine does not.
    pub(super) fn poll_at(&self, lock: &LockName, waiter: &Waiter) -> Moment {
        if self.is_remote() {
            return Moment::NEVER;
        }
        let number = waiter.batch.load(std::sync::atomic::Ordering::Acquire);
        let mut lines = self.lines(lock.stored());
        let batch = numbered(&mut lines, lock.stored(), number);
        match batch.map(|batch| (&batch.stage, &batch.claim)) {
            Some((Stage::Queued(queued), _)) if !queued.asking => queued.poll_at,
            Some((Stage::Owned, claim)) => {
                claim.holder().map_or(Moment::NEVER, |holder| holder.ends_at())
            }
            _ => Moment::NEVER,
        }
    }

    /// The lock may be free: the first batch that waits for it asks.
    pub(super) fn poll_now(self: &Arc<Self>, lock: &Arc<LockName>) {
        let waits = {
            let mut lines = self.lines(lock.stored());
            let queued = lines.get_mut(lock.stored()).and_then(|line| {
                line.batches().find_map(|batch| match &mut batch.stage {
                    Stage::Queued(queued) => Some(queued),
                    _ => None,
                })
            });
            queued.map(|queued| queued.hint = true).is_some()
        };
        if waits {
            self.schedule_poll(lock);
        }
    }

    /// The store has a notification.
    pub(crate) fn on_notification(self: &Arc<Self>, news: News<'_>) {
        match news {
            News::Reserved(message) => {
                if let Some(lock) = self.reserved(message) {
                    self.poll_queue(&lock);
                }
            }
            News::Behind(message) => {
                let now = self.clock().now();
                let mut lines = self.lines(message.stored);
                if let Some(batch) = of_token(&mut lines, message.stored, message.token) {
                    batch.seal(now);
                }
            }
            News::TakenAway(message) => self.look_into(message),
            News::Interrupted => self.poll_everywhere(),
        }
    }

    /// A lock may have been reserved for this token: which one, if a batch waits under it. // R4
    pub(super) fn reserved(self: &Arc<Self>, message: Message<'_>) -> Option<Arc<LockName>> {
        let mut lines = self.lines(message.stored);
        // Without a batch the token was given up, and its release is sent or about to be. A second one
        // would free what `min_hold` keeps, and have the first one find the lock gone.
        let batch = of_token(&mut lines, message.stored, message.token)?;
        let Stage::Queued(queued) = &mut batch.stage else { return None };
        queued.hint = true;
        Some(batch.claim.owner.lock.clone())
    }

    /// Places in the queue, and notifications, may have been lost.
    fn poll_everywhere(self: &Arc<Self>) {
        for lock in self.queued_locks() {
            self.schedule_poll(&lock);
        }
    }
}

impl Queued {
    fn is_due(&self, now: Moment) -> bool {
        self.hint || self.poll_at <= now
    }
}
