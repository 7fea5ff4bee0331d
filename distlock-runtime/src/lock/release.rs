//! Giving a lock back: once, in order behind the acquire, and whoever gives up on the answer.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::claim::Claim;
use super::table::LockTable;
use crate::clock::{Clock, Moment};
use crate::engine::janitor::Open;
use crate::engine::schedule::{Due, Schedule, Slot};
use crate::error::LockError;
use crate::namespace::{BuildStoredHasher, StoredName};
use crate::observe;
use crate::shrink::shrink;
use crate::store::{Fault, Freed, Message, Op};
use crate::token::Token;

/// How long after a reserved lock should have been taken it is looked at.
const REPAIR_AFTER: Duration = Duration::from_millis(5);

/// When the caller of [`LockRequest::run`](crate::LockRequest::run), or of a function with the
/// attribute, has its result.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// After the store has confirmed that the lock is free.
    #[default]
    Wait,
    /// As soon as the release is sent: one round trip less for each call. Whoever takes the lock next
    /// over the same manager comes behind it. A release that fails is reported as the event
    /// `released_late`, and tried again until the lock has expired by itself.
    /// [`LockManager::close`](crate::LockManager::close) waits for it.
    Background,
}

/// Why a lock that its holder believed to have was not freed by its release; `None` if it was, by
/// this one or by another of the same token.
pub(super) fn not_ours(claim: &Claim, freed: &Freed, clock: Clock) -> Option<&'static str> {
    match freed.was_ours || claim.was_undone() {
        true => None,
        // It was held until its holder was done.
        false if clock.now() >= claim.deadline() => Some("its lease ran out while it was released"),
        false => Some("the store had it free or with another owner when it was released"),
    }
}

/// Says what became of a release that nobody waits for, unless all is well.
fn report(claim: &Claim, result: &Result<Freed, Fault>, clock: Clock) {
    let lock = &claim.lock;
    let error = match result {
        Ok(freed) => match not_ours(claim, freed, clock) {
            Some(reason) => LockError::lost(lock, reason, false),
            None => return,
        },
        Err(fault) => fault.clone().into_error(Some(lock)),
    };
    observe::released_late(lock, &error);
}

impl LockTable {
    /// Begins a release in the background: its command is on its way when this returns (behind
    /// everything that was sent for the lock before), and the engine waits for the answer.
    pub(crate) fn give_back(self: &Arc<Self>, claim: Arc<Claim>, keep: Option<Duration>) {
        claim.retire();
        if !claim.is_unsent() {
            drop(self.release(claim, keep));
        } else {
            self.freed(&claim, None, &Freed::nothing());
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
        Releasing { table: self.clone(), claim, keep, state: State::Unsent, reported: false }
    }

    /// The same for a body that has returned and nobody who waits: a failure is reported.
    pub(super) fn release_unawaited(self: &Arc<Self>, claim: Arc<Claim>, keep: Option<Duration>) {
        let mut release = self.release(claim, keep);
        release.reported = true;
        drop(release);
    }

    /// The store has answered: it has reserved the lock for the next one, or whoever waits here may
    /// look.
    pub(crate) fn freed(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        keep: Option<Duration>,
        freed: &Freed,
    ) {
        let lock = &claim.lock;
        if let Some(keep) = keep {
            if freed.awaited {
                self.repairs.note(claim, self.clock().now().after(keep), self);
            } else if !self.store.hears(lock) {
                // Whoever waits here does not know yet how long it is kept.
                self.look_now(lock);
            }
            return;
        }
        match freed.next.as_deref().and_then(|next| Some((next, Token::parse(next)?))) {
            Some((next, token)) if token.process == self.owner.process() => {
                let message = Message { stored: lock.stored(), token: next };
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

    /// Releases a claim that the store frees by itself if this fails.
    async fn release_once(self: &Arc<Self>, claim: Arc<Claim>) {
        let limit = self.clock().now().after(self.patience);
        if let Ok(freed) = self.store.clone().release(claim.clone(), None, limit).await {
            self.freed(&claim, None, &freed);
        }
    }

    /// Looks after locks that were kept for their `min_hold`, or reserved for processes which may have
    /// died since.
    pub(crate) fn repair(self: &Arc<Self>) {
        for claim in self.repairs.due(self) {
            let table = self.clone();
            self.background.spawn(async move { table.release_once(claim).await });
        }
    }

    fn hand_to_engine(
        self: &Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
        op: Op<Freed>,
        reported: bool,
    ) {
        let table = self.clone();
        let due = keep.map(|keep| self.clock().now().after(keep));
        let unfinished = self.background.unfinished();
        self.background.spawn(async move {
            let first = op.await;
            if reported {
                report(&claim, &first, table.clock());
            }
            table.janitor.see_through(Open::new(claim, due, unfinished), first, &table);
        });
    }
}

/// Releases to be repeated: a lock that was kept for its `min_hold`, or handed to a process which died
/// before it took it, would else be free without anybody noticing, with others in the queue.
#[derive(Default)]
pub(super) struct Repairs {
    /// The last release of each lock, and when to repeat it.
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    of: HashMap<StoredName, Place, BuildStoredHasher>,
    /// By the time they are due.
    in_order: BTreeMap<Place, Arc<Claim>>,
    added: u64,
    /// Where the engine is told to look at them next.
    planned: Option<Slot>,
}

/// When it is due, and a number that tells those apart that are due at the same time.
type Place = (Moment, u64);

impl Notes {
    fn plan(&mut self, at: Option<Moment>, schedule: &Schedule) {
        let slot = at.map(|at| schedule.insert(at, Due::Repair));
        if let Some(old) = std::mem::replace(&mut self.planned, slot) {
            schedule.remove(old);
        }
    }

    fn add(&mut self, claim: &Arc<Claim>, at: Moment) {
        self.added += 1;
        let place = (at, self.added);
        let before = match self.of.get_mut(claim.lock.stored()) {
            Some(note) => Some(std::mem::replace(note, place)),
            None => self.of.insert(claim.lock.stored().clone(), place),
        };
        if let Some(before) = before {
            self.in_order.remove(&before);
        }
        self.in_order.insert(place, claim.clone());
    }

    fn take_due(&mut self, now: Moment) -> Vec<Arc<Claim>> {
        let mut due = Vec::new();
        while let Some(first) = self.in_order.first_entry().filter(|first| first.key().0 <= now) {
            let claim = first.remove();
            self.of.remove(claim.lock.stored());
            due.push(claim);
        }
        shrink(&mut self.of);
        due
    }

    fn next(&self) -> Option<Moment> {
        self.in_order.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Repairs {
    fn note(&self, claim: &Arc<Claim>, at: Moment, table: &LockTable) {
        let mut notes = self.notes();
        if notes.planned.is_none_or(|planned| at < planned.at()) {
            notes.plan(Some(at), table.schedule());
        }
        notes.add(claim, at);
    }

    /// Takes out what is due.
    fn due(&self, table: &LockTable) -> Vec<Arc<Claim>> {
        let now = table.clock().now();
        let mut notes = self.notes();
        let due = notes.take_due(now);
        let next = notes.next();
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
    /// What became of it is reported: nobody waits for it.
    reported: bool,
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
            let mut op = self.table.store.clone().release(self.claim.clone(), self.keep, limit);
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
                this.table.hand_to_engine(this.claim.clone(), this.keep, repeated, false);
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
        if matches!(self.state, State::Gone) || !self.table.home().is_here() {
            return;
        }
        self.send();
        let op: Op<Freed> = match std::mem::replace(&mut self.state, State::Gone) {
            State::Unsent | State::Gone => return,
            State::Done(freed) => {
                if self.reported {
                    report(&self.claim, &Ok(freed.clone()), self.table.clock());
                }
                return self.table.freed(&self.claim, self.keep, &freed);
            }
            State::Answered(result) => Box::pin(std::future::ready(result)),
            State::Sent(op) => op,
        };
        self.table.hand_to_engine(self.claim.clone(), self.keep, op, self.reported);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::error::Label;
    use crate::key::LockKey;
    use crate::namespace::Namespace;

    fn claim(namespace: &Namespace, key: &str) -> Arc<Claim> {
        let name = namespace.name(Label::Given("test".into()), LockKey::from(key));
        Arc::new(Claim::new(name.expect("a key"), String::new()))
    }

    #[test]
    fn r30_a_note_costs_the_same_however_many_there_are() {
        const MANY: u64 = 100_000;
        let namespace = Namespace::new("").expect("no prefix");
        let mut notes = Notes::default();
        for n in 0..MANY {
            notes.add(&claim(&namespace, &n.to_string()), Moment::from_nanos(n));
        }
        let begun = Instant::now();
        for n in 0..MANY {
            assert_eq!(notes.next(), Some(Moment::from_nanos(n)));
            assert_eq!(notes.take_due(Moment::from_nanos(n)).len(), 1);
            // About a second in a debug build; looking through all of them each time takes many minutes.
            assert!(begun.elapsed().as_secs() < 60, "{n} of {MANY}");
        }
        assert!(notes.next().is_none());
    }

    #[test]
    fn the_last_release_of_a_lock_is_the_one_to_repeat() {
        let namespace = Namespace::new("").expect("no prefix");
        let at = Moment::from_nanos;
        let mut notes = Notes::default();
        let (first, last, other) =
            (claim(&namespace, "a"), claim(&namespace, "a"), claim(&namespace, "b"));
        notes.add(&first, at(5));
        notes.add(&other, at(6));
        notes.add(&last, at(7));
        assert_eq!(notes.next(), Some(at(6)));
        assert!(notes.take_due(at(5)).is_empty());
        let due = notes.take_due(at(9));
        assert!(due.len() == 2 && Arc::ptr_eq(&due[0], &other) && Arc::ptr_eq(&due[1], &last));
        assert!(notes.next().is_none() && notes.take_due(at(9)).is_empty());
    }
}
