//! A lease as its caller sees it: first the seat in which it waits for the lock, then what its body
//! looks at before every poll.
//!
//! `Waiting → Held → Released | Lost`, the last two final. All of it is decided by the lock's line
//! (`core`), under the mutex of its shard; what is read here is what the line has decided, without that
//! mutex. The deadline is our own: counted from before the command was sent, less drift, so that it
//! passes here before it passes at the store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::{Grant, Loss, Position, Request};
use super::table::{LockTable, lock};
use super::waiter::Seat;
use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarm;
use crate::error::LockError;
use crate::limit::Limit;
use crate::name::{LockName, StoredName};
use crate::observe::{Account, LeaseEvent, LostReason, Observers};
use crate::select::until;
use crate::shield::shield;

/// How a loss is reported. An abandoned lease has no holder, so its loss is reported to nobody.
fn reported(loss: Loss) -> LostReason {
    match loss {
        Loss::Expired | Loss::Abandoned => LostReason::Expired,
        Loss::Taken => LostReason::Taken,
        Loss::Closed => LostReason::Closed,
        Loss::MaxHold => LostReason::MaxHold,
        Loss::Forced => LostReason::Forced,
    }
}

/// The loss that a lease's state says, if any.
fn loss_of(state: u8) -> Option<Loss> {
    use Loss::{Abandoned, Closed, Expired, Forced, MaxHold, Taken};
    [Expired, Taken, Closed, MaxHold, Forced, Abandoned]
        .into_iter()
        .find(|loss| *loss as u8 == state)
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
/// Not granted. The others are losses.
const WAITING: u8 = u8::MAX;

/// Its holder has given it back.
const RETURNED: u8 = 1;
/// A task waits for that. Hardly any does, and notifying costs 2 % of a hand-over.
const WAITED_FOR: u8 = 2;

/// A lock that one caller waits for or holds.
pub(crate) struct Lease {
    pub(super) lock: Arc<LockName>,
    pub(super) request: Request,
    clock: Clock,
    /// Tells managers apart; it outlives the lease.
    table: usize,
    /// Where it stands in its line.
    batch: AtomicU64,
    at: AtomicI64,
    pub(super) seat: Mutex<Seat>,
    state: AtomicU8,
    fencing_token: AtomicU64,
    deadline: AtomicU64,
    /// The call that asked for it has it, with all others that it asked for: before that nothing was done
    /// under it.
    in_hand: AtomicBool,
    /// It was exchanged for one to read.
    reads_on: AtomicBool,
    /// A body runs under it.
    body: AtomicBool,
    /// Its holder has given it back, after its body was dropped; and whether a task waits for that.
    returned: AtomicU8,
    changed: Notify,
    /// What is reported of it to observers.
    account: Account,
}

impl Lease {
    /// What a caller waits in, that stands at `place`.
    #[inline]
    pub(super) fn new(
        table: &Arc<LockTable>,
        lock: &Arc<LockName>,
        request: Request,
        (place, sent): (Position, Moment),
    ) -> Arc<Self> {
        Arc::new(Self {
            lock: lock.clone(),
            request,
            clock: table.clock(),
            table: Arc::as_ptr(table).addr(),
            batch: AtomicU64::new(place.batch),
            at: AtomicI64::new(place.at),
            seat: Mutex::new(Seat::WAITING),
            state: AtomicU8::new(WAITING),
            fencing_token: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            in_hand: AtomicBool::new(false),
            reads_on: AtomicBool::new(false),
            body: AtomicBool::new(false),
            returned: AtomicU8::new(0),
            changed: Notify::new(),
            account: Account::new(sent),
        })
    }

    pub(super) fn place(&self) -> Position {
        Position { batch: self.batch.load(Ordering::Acquire), at: self.at.load(Ordering::Acquire) }
    }

    /// It stands elsewhere from now on.
    pub(super) fn moved(&self, place: Position) {
        self.batch.store(place.batch, Ordering::Release);
        self.at.store(place.at, Ordering::Release);
    }

    pub(crate) fn name(&self) -> &Arc<LockName> {
        &self.lock
    }

    /// How many may hold the lock at once with it.
    pub(crate) fn limit(&self) -> Limit {
        if self.reads_on.load(Ordering::Acquire) { Limit::READ } else { self.request.limit }
    }

    /// Its holder has the lock with others that read from now on.
    pub(super) fn read_on(&self, place: Position, grant: Grant) {
        self.moved(place);
        self.granted(grant);
        self.reads_on.store(true, Ordering::Release);
    }

    pub(crate) fn fencing_token(&self) -> u64 {
        self.fencing_token.load(Ordering::Acquire)
    }

    /// Whether this is the lock stored under that name by the manager with that table.
    pub(crate) fn is_lock(&self, lock: &StoredName, table: &Arc<LockTable>) -> bool {
        self.lock.stored() == lock && self.table == Arc::as_ptr(table).addr()
    }

    /// It is the caller's.
    #[inline]
    pub(super) fn granted(&self, grant: Grant) {
        self.fencing_token.store(grant.fencing_token, Ordering::Release);
        self.deadline.store(grant.deadline.as_nanos(), Ordering::Release);
        self.state.store(HELD, Ordering::Release);
    }

    /// The caller has not taken it: another caller gets it now.
    pub(super) fn passed_over(&self) {
        self.state.store(WAITING, Ordering::Release);
    }

    pub(super) fn extended(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// It is not used from here on. Before its line knows: the next one may have it in that moment.
    pub(crate) fn retire(&self) {
        if self.state.load(Ordering::Acquire) == HELD {
            self.state.store(RELEASED, Ordering::Release);
        }
    }

    /// It is no longer ours. Final.
    pub(super) fn end(&self, loss: Loss) {
        self.state.store(loss as u8, Ordering::Release);
    }

    /// Notifies observers, and the waiters for its loss, that it was lost. To be called once everything is as
    /// it must be then.
    pub(super) fn report(&self, loss: Loss, table: &LockTable) {
        shield(|| self.changed.notify_waiters());
        // A caller that never had it asks again, or fails with `Busy`.
        if self.is_in_hand() {
            let told = (reported(loss), self.fencing_token());
            table.observers().lost(self.name(), &self.account, told, self.clock.now());
        }
    }

    /// Shows an event to the probe of a test, if there is one.
    #[inline]
    pub(super) fn show(&self, observers: &Observers, event: LeaseEvent) {
        if let Some(probe) = observers.probe() {
            let id = std::ptr::from_ref(self).addr();
            probe.see(&self.lock, id, self.limit(), self.fencing_token(), event);
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Its holder has given it back, after its body was dropped.
    #[inline]
    pub(super) fn returned_now(&self) {
        if self.returned.fetch_or(RETURNED, Ordering::AcqRel) & WAITED_FOR != 0 {
            shield(|| self.changed.notify_waiters());
        }
    }

    pub(super) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(super) fn put_in_hand(&self) {
        self.in_hand.store(true, Ordering::Release);
    }

    pub(super) fn is_in_hand(&self) -> bool {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Still ours at this very moment.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.clock.now() < self.deadline()
    }

    /// The same for a caller that has just read the clock.
    #[inline]
    pub(super) fn is_held_at(&self, now: Moment) -> bool {
        self.state.load(Ordering::Acquire) == HELD && now < self.deadline()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.state.load(Ordering::Acquire) != HELD {
            return Duration::ZERO;
        }
        match self.deadline() {
            // It has no end, which is to say its whole ttl at any time.
            Moment::NEVER => self.request.term.ttl,
            deadline => deadline.since(self.clock.now()),
        }
    }

    /// A body is about to run under it, unless it is lost: to be looked at behind this.
    pub(crate) fn begin_body(&self) {
        self.body.store(true, Ordering::Release);
        // The code that ends the lease looks for a body after that, and frees the lock if there is none:
        // one of the two sees the other.
        fence(Ordering::SeqCst);
    }

    /// A body runs under it, or will not begin: to be asked once it was lost.
    pub(crate) fn has_body(&self) -> bool {
        fence(Ordering::SeqCst);
        self.body.load(Ordering::Acquire)
    }

    /// Resolves when the holder has given it back, after its body was dropped.
    pub(crate) async fn returned(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            // One of the two sees the other.
            if self.returned.fetch_or(WAITED_FOR, Ordering::AcqRel) & RETURNED != 0 {
                return;
            }
            changed.await;
        }
    }

    fn loss(&self) -> Option<Loss> {
        loss_of(self.state.load(Ordering::Acquire))
    }

    /// A deadline that has passed is a loss, also while the engine has not seen it. True if it is
    /// lost, for whatever reason.
    pub(crate) fn is_lost(self: &Arc<Self>, table: &Arc<LockTable>) -> bool {
        if self.state.load(Ordering::Acquire) == HELD && self.clock.now() >= self.deadline() {
            table.expire(self);
        }
        self.loss().is_some()
    }

    /// Resolves when the lease is found to be lost; never if it is released first.
    pub(crate) async fn lost(self: &Arc<Self>, table: &Arc<LockTable>) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Enabled before the state is read, or an end between the two would be missed.
            changed.as_mut().enable();
            if self.loss().is_some() {
                return;
            }
            let alarm = Alarm::at(table.alarms(), self.clock, table.watched_by_callers(self));
            if until(changed, alarm).await.is_none() {
                self.is_lost(table);
            }
        }
    }

    /// The error for the caller once the lease is lost; with it a body may have been `stopped`.
    pub(crate) fn lost_error(&self, stopped: bool) -> LockError {
        let loss = self.loss().unwrap_or(Loss::Expired);
        LockError::lost(self.name(), reported(loss), stopped)
    }

    pub(super) fn seat(&self) -> std::sync::MutexGuard<'_, Seat> {
        lock(&self.seat)
    }
}

/// One lease is one caller.
impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Lease {}

impl Hash for Lease {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).addr().hash(state);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fencing_token", &self.fencing_token())
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::manager::LockManager;

    /// Both come here at about the same time.
    fn meet(gate: &AtomicUsize, round: usize) {
        gate.fetch_add(1, Ordering::SeqCst);
        while gate.load(Ordering::SeqCst) < 2 * (round + 1) {
            spin_loop();
        }
    }

    /// A body that begins and the end of its lease: one of the two sees the other, or the lock would be freed
    /// under the body.
    #[test]
    fn f28_a_body_that_begins_and_the_end_of_its_lease_do_not_miss_each_other() {
        const ROUNDS: usize = 5_000;
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let manager = LockManager::in_memory();
        let guards: Vec<_> = (0..ROUNDS)
            .map(|n| {
                let request = manager.lock(n.to_string()).max_hold(Duration::from_secs(600));
                runtime.block_on(request.acquire()).expect("free")
            })
            .collect();
        let leases: Vec<_> = guards.iter().map(|guard| guard.leases()[0].clone()).collect();
        let (gate, start) = (AtomicUsize::new(0), Barrier::new(2));
        let (begun, freed) = thread::scope(|scope| {
            let body = scope.spawn(|| {
                start.wait();
                let begin = |(round, lease): (usize, &Arc<Lease>)| {
                    meet(&gate, round);
                    lease.begin_body();
                    lease.state.load(Ordering::Acquire) == HELD
                };
                leases.iter().enumerate().map(begin).collect::<Vec<_>>()
            });
            let close = scope.spawn(|| {
                start.wait();
                let close = |(round, lease): (usize, &Arc<Lease>)| {
                    meet(&gate, round);
                    lease.end(Loss::Closed);
                    !lease.has_body()
                };
                leases.iter().enumerate().map(close).collect::<Vec<_>>()
            });
            (body.join().expect("no panic"), close.join().expect("no panic"))
        });
        let missed = begun.iter().zip(&freed).filter(|(begun, freed)| **begun && **freed).count();
        assert_eq!(missed, 0, "of {ROUNDS}");
    }
}
