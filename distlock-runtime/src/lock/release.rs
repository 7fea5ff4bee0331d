//! Giving a lock back: once, in order behind the acquire, and whoever gives up on the answer.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::claim::Claim;
use super::table::LockTable;
use crate::clock::Moment;
use crate::engine::janitor;
use crate::engine::schedule::{Due, Schedule, Slot};
use crate::namespace::{BuildStoredHasher, StoredName};
use crate::store::{Fault, Freed, Message, Op, Store};
use crate::token::Token;

/// A lock that is kept after its release outlives the time the engine frees it by this much.
pub(crate) const KEEP_MARGIN: Duration = Duration::from_millis(100);
/// How long after a reserved lock should have been taken it is looked at.
const REPAIR_AFTER: Duration = Duration::from_millis(5);

impl LockTable {
    /// Begins a release in the background: its command is on its way when this returns (behind
    /// everything that was sent for the lock before), and the engine waits for the answer.
    pub(crate) fn give_back(self: &Arc<Self>, claim: Arc<Claim>, keep: Option<Duration>) {
        claim.retire();
        if !claim.is_unsent() {
            drop(self.release(claim, keep));
        } else {
            self.freed(&claim, None, &Freed { was_ours: false, settled: true, next: None });
        }
    }

    /// Gives a claim back that may stand in the queue: the engine does, behind what it sent.
    pub(super) fn leave_queue(self: &Arc<Self>, claim: Arc<Claim>) {
        if self.is_remote() {
            let table = self.clone();
            self.background.finish(async move { table.give_back(claim, None) });
        } else {
            self.give_back(claim, None);
        }
    }

    /// A release whose answer can be awaited. Its command is sent when it is polled or dropped,
    /// which is to happen before the caller does anything else to the same lock. Dropped before its
    /// answer, the engine finishes it.
    ///
    /// With `keep` the lock is not free before that time, though nobody holds it any more: the
    /// store is told now, so that this also holds when the process ends.
    pub(crate) fn release(
        self: &Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
    ) -> Releasing {
        claim.retire();
        Releasing { table: self.clone(), claim, keep, state: State::Unsent }
    }

    /// The store has answered: it has reserved the lock for the next one, or whoever waits here may
    /// look.
    fn freed(self: &Arc<Self>, claim: &Arc<Claim>, keep: Option<Duration>, freed: &Freed) {
        let lock = &claim.lock;
        if let Some(keep) = keep {
            return self.free_later(claim.clone(), keep);
        }
        match freed.next.as_deref().and_then(|next| Some((next, Token::parse(next)?))) {
            Some((next, token)) if token.process == self.owner.process() => {
                let message = Message { prefix: lock.prefix(), stored: lock.stored(), token: next };
                if let Some(lock) = self.called(message) {
                    self.call_usher(&lock);
                }
            }
            Some((_, token)) => {
                let at = self.clock().now().after(token.claim + REPAIR_AFTER);
                self.repairs.note(claim, at, self);
            }
            None if !self.store.hears(lock) => self.look_now(lock),
            None => {}
        }
    }

    fn free_later(self: &Arc<Self>, claim: Arc<Claim>, keep: Duration) {
        let table = self.clone();
        self.background.spawn(async move {
            tokio::time::sleep(keep).await;
            table.release_once(claim).await;
        });
    }

    /// Releases a claim that the store frees by itself if this fails.
    async fn release_once(self: &Arc<Self>, claim: Arc<Claim>) {
        let limit = self.clock().now().after(self.patience);
        if let Ok(freed) = self.store.clone().release(claim.clone(), None, limit).await {
            self.freed(&claim, None, &freed);
        }
    }

    /// Looks after locks that were reserved for processes which may have died since.
    pub(crate) fn repair(self: &Arc<Self>) {
        for claim in self.repairs.due(self) {
            let table = self.clone();
            self.background.spawn(async move { table.release_once(claim).await });
        }
    }

    fn hand_to_engine(self: &Arc<Self>, claim: Arc<Claim>, keep: Option<Duration>, op: Op<Freed>) {
        let table = self.clone();
        let store: Arc<dyn Store> = self.store.clone();
        let due = keep.map(|keep| store.clock().now().after(keep));
        self.background.finish(async move {
            let freed = janitor::see_through(store, claim.clone(), due, op).await;
            let rest = due.map(|due| due.since(table.clock().now()));
            table.freed(&claim, rest.filter(|rest| !rest.is_zero()), &freed);
        });
    }
}

/// Releases to be repeated: a lock that was handed to a process which died before it took it would
/// else be free without anybody noticing, with others in the queue.
#[derive(Default)]
pub(super) struct Repairs {
    /// The last release of each lock, and when to repeat it.
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    of: HashMap<StoredName, (Arc<Claim>, Moment), BuildStoredHasher>,
    /// Where the engine is told to look at them next.
    planned: Option<Slot>,
}

impl Notes {
    fn plan(&mut self, at: Option<Moment>, schedule: &Schedule) {
        let slot = at.map(|at| schedule.insert(at, Due::Repair));
        if let Some(old) = std::mem::replace(&mut self.planned, slot) {
            schedule.remove(old);
        }
    }
}

impl Repairs {
    fn note(&self, claim: &Arc<Claim>, at: Moment, table: &LockTable) {
        let mut notes = self.notes();
        if notes.planned.is_none_or(|planned| at < planned.at()) {
            notes.plan(Some(at), table.schedule());
        }
        match notes.of.get_mut(claim.lock.stored()) {
            Some(note) => *note = (claim.clone(), at),
            None => drop(notes.of.insert(claim.lock.stored().clone(), (claim.clone(), at))),
        }
    }

    /// Takes out what is due.
    fn due(&self, table: &LockTable) -> Vec<Arc<Claim>> {
        let now = table.clock().now();
        let mut notes = self.notes();
        let due = notes.of.extract_if(|_, (_, at)| *at <= now);
        let due = due.map(|(_, (claim, _))| claim).collect();
        let next = notes.of.values().map(|(_, at)| *at).min();
        notes.plan(next, table.schedule());
        due
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A release under way.
pub(crate) struct Releasing {
    table: Arc<LockTable>,
    claim: Arc<Claim>,
    keep: Option<Duration>,
    state: State,
}

enum State {
    Unsent,
    Sent(Op<Freed>),
    /// Answered, but not the end of it.
    Answered(Result<Freed, Fault>),
    Done(Freed),
    Gone,
}

impl Releasing {
    /// Sends it, for whoever polls it later.
    pub(crate) fn send(&mut self) {
        self.begin(&mut Context::from_waker(Waker::noop()));
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        if let State::Unsent = self.state {
            let limit = self.table.clock().now().after(self.table.patience);
            // Freed by its ttl a little after the engine frees it, or nobody would be told.
            let stored = self.keep.map(|keep| keep + KEEP_MARGIN);
            let mut op = self.table.store.clone().release(self.claim.clone(), stored, limit);
            self.state = match op.as_mut().poll(cx) {
                Poll::Pending => State::Sent(op),
                Poll::Ready(result) => State::answered(result),
            };
        }
    }
}

impl State {
    fn answered(result: Result<Freed, Fault>) -> Self {
        match result {
            Ok(freed) if freed.settled => Self::Done(freed),
            result => Self::Answered(result),
        }
    }
}

impl Future for Releasing {
    type Output = Result<Freed, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let State::Unsent = this.state {
            this.begin(cx);
        } else if let State::Sent(op) = &mut this.state
            && let Poll::Ready(result) = op.as_mut().poll(cx)
        {
            this.state = State::answered(result);
        }
        match std::mem::replace(&mut this.state, State::Gone) {
            sent @ State::Sent(_) => {
                this.state = sent;
                Poll::Pending
            }
            State::Answered(result) => {
                let repeated = Box::pin(std::future::ready(result.clone()));
                this.table.hand_to_engine(this.claim.clone(), this.keep, repeated);
                Poll::Ready(result)
            }
            State::Done(freed) => {
                this.table.freed(&this.claim, this.keep, &freed);
                Poll::Ready(Ok(freed))
            }
            State::Unsent | State::Gone => unreachable!("a release was polled after it was done"),
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        self.send();
        let op: Op<Freed> = match std::mem::replace(&mut self.state, State::Gone) {
            State::Unsent | State::Gone => return,
            State::Done(freed) => return self.table.freed(&self.claim, self.keep, &freed),
            State::Answered(result) => Box::pin(std::future::ready(result)),
            State::Sent(op) => op,
        };
        self.table.hand_to_engine(self.claim.clone(), self.keep, op);
    }
}
