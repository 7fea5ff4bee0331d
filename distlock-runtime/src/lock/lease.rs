//! A lease as its caller sees it: first the seat in which the caller waits for the lock, then what its body
//! looks at before every poll.
//!
//! `Waiting → Held → Released | Lost`, the last two final. The lock's line (`distlock_core::line`) decides all of it, under
//! the mutex of its shard; this file keeps what the line has decided, to be read without that mutex. The
//! deadline is our own: it is counted from before the command was sent, less drift, so that it passes here
//! before it passes at the store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::clock::{Clock, Moment};
use distlock_core::limit::Limit;
use distlock_core::line::{Denied, Grant, Loss, Position, Request};
use distlock_core::name::{LockName, StoredName};
use distlock_core::store::Fault;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::services::Services;
use crate::error::LockError;
use crate::observe::{Account, LeaseEvent, LostReason, Observers};

/// Returns the reason that is reported. An abandoned lease has no holder, so its loss is reported to nobody.
fn reported(loss: Loss) -> LostReason {
    match loss {
        Loss::Expired | Loss::Abandoned => LostReason::Expired,
        Loss::Taken => LostReason::Taken,
        Loss::Closed => LostReason::Closed,
        Loss::MaxHold => LostReason::MaxHold,
        Loss::Forced => LostReason::Forced,
    }
}

/// Returns the loss that a lease's state stands for, if any.
fn loss_of(state: u8) -> Option<Loss> {
    use Loss::{Abandoned, Closed, Expired, Forced, MaxHold, Taken};
    [Expired, Taken, Closed, MaxHold, Forced, Abandoned]
        .into_iter()
        .find(|loss| *loss as u8 == state)
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
/// Not granted. The other states are losses.
const WAITING: u8 = u8::MAX;

/// The holder has given the lease back.
const RETURNED: u8 = 1;
/// A task waits for that. Hardly any does, and notifying costs 2 % of a hand-over.
const WAITED_FOR: u8 = 2;

/// A lock that one caller waits for or holds.
pub(crate) struct Lease {
    pub(super) lock: Arc<LockName>,
    pub(super) request: Request,
    clock: Clock,
    /// The address of the manager's services. It tells managers apart; the services outlive the lease.
    manager: usize,
    /// Where the caller stands in its line.
    batch: AtomicU64,
    at: AtomicI64,
    seat: Mutex<Seat>,
    state: AtomicU8,
    fencing_token: AtomicU64,
    deadline: AtomicU64,
    /// Whether the call has it, with all others that it asked for: before that nothing was done under it.
    in_hand: AtomicBool,
    /// Whether it was downgraded, from a write to a read.
    reads_on: AtomicBool,
    /// Whether a body runs under it.
    body: AtomicBool,
    /// Whether its holder has given it back, after its body was dropped, and whether a task waits for that.
    returned: AtomicU8,
    changed: Notify,
    /// Its times and reports, for observers.
    pub(super) account: Account,
}

/// The seat of a caller: the slot in which a line leaves its answer.
pub(super) enum Seat {
    /// Its own try is under way.
    Trying,
    /// It is in line.
    Waiting {
        waker: Option<Waker>,
        /// It is to look at the line again.
        woken: bool,
    },
    /// The lock is the caller's, as soon as it takes it.
    Granted,
    /// It did not take what it was granted in time, and is in line again when it is polled.
    PassedOver,
    Denied(Denied<Fault>),
    /// It has taken its lease, or given up.
    Left,
}

/// A change that a caller finds in its seat.
pub(super) enum SeatChange {
    Granted,
    Denied(Denied<Fault>),
    PassedOver,
    Woken,
}

impl Seat {
    const WAITING: Self = Self::Waiting { waker: None, woken: false };

    /// Moves on to another state; returns the waker of the caller, to be woken once no mutex is held.
    fn change(&mut self, to: Self) -> Option<Waker> {
        match std::mem::replace(self, to) {
            Self::Waiting { waker, .. } => waker,
            _ => None,
        }
    }
}

/// The seat, as the line and the caller's own try change it. The line's methods return the waker to wake.
impl Lease {
    /// Makes the lease of a caller that stands at `place`, and may send a try at `sent`.
    #[inline]
    pub(super) fn new(
        services: &Services,
        lock: &Arc<LockName>,
        request: Request,
        (place, sent): (Position, Moment),
    ) -> Arc<Self> {
        Arc::new(Self {
            lock: lock.clone(),
            request,
            clock: services.clock,
            manager: std::ptr::from_ref(services).addr(),
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

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the caller's own try is under way.
    pub(super) fn trying(&self) {
        *self.seat() = Seat::Trying;
    }

    /// Notes that the caller waits in line.
    pub(super) fn in_line(&self) {
        *self.seat() = Seat::WAITING;
    }

    /// Returns whether the engine has taken over the caller's try.
    pub(super) fn is_in_line(&self) -> bool {
        !matches!(*self.seat(), Seat::Trying)
    }

    /// Leaves the lock for the caller to take.
    #[inline]
    pub(super) fn grant(&self, grant: Grant, now: Moment) -> Option<Waker> {
        self.granted(grant, now);
        self.seat().change(Seat::Granted)
    }

    /// Tells the caller that it will not get the lock.
    pub(super) fn deny(&self, why: Denied<Fault>) -> Option<Waker> {
        self.seat().change(Seat::Denied(why))
    }

    /// Has the caller look at its line.
    pub(super) fn wake(&self) -> Option<Waker> {
        match &mut *self.seat() {
            Seat::Waiting { waker, woken } => {
                *woken = true;
                waker.take()
            }
            _ => None,
        }
    }

    /// Takes a grant back that the caller has not taken; returns false if it has. // R5
    pub(super) fn take_back(&self) -> bool {
        let mut seat = self.seat();
        let was_left = matches!(*seat, Seat::Granted);
        if was_left {
            *seat = Seat::PassedOver;
            self.state.store(WAITING, Ordering::Release);
        }
        was_left
    }

    /// Leaves the seat. Drop what this returns while no mutex is held: a waker may own its task, and the task
    /// a lock.
    pub(super) fn leave_seat(&self) -> Seat {
        std::mem::replace(&mut *self.seat(), Seat::Left)
    }

    /// Resolves when the seat has something for the caller. When it is polled for the `first` time, the seat has
    /// no waker yet.
    #[inline]
    pub(super) fn poll_seat(&self, first: bool, cx: &Context<'_>) -> Poll<SeatChange> {
        // Cloned, and the one before it dropped, while the seat is free: a waker may own its task,
        // and the task a lock.
        let mut spare = first.then(|| cx.waker().clone());
        loop {
            let mut seat = self.seat();
            let change = match &mut *seat {
                Seat::Waiting { waker, woken } => {
                    if std::mem::take(woken) {
                        return Poll::Ready(SeatChange::Woken);
                    }
                    if waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        return Poll::Pending;
                    }
                    if let Some(new) = spare.take() {
                        let old = waker.replace(new);
                        drop(seat);
                        drop(old);
                        return Poll::Pending;
                    }
                    drop(seat);
                    spare = Some(cx.waker().clone());
                    continue;
                }
                Seat::Granted => SeatChange::Granted,
                Seat::Denied(why) => SeatChange::Denied(why.clone()),
                Seat::PassedOver => {
                    *seat = Seat::WAITING;
                    return Poll::Ready(SeatChange::PassedOver);
                }
                Seat::Trying | Seat::Left => return Poll::Pending,
            };
            *seat = Seat::Left;
            return Poll::Ready(change);
        }
    }
}

impl Lease {
    pub(super) fn place(&self) -> Position {
        Position { batch: self.batch.load(Ordering::Acquire), at: self.at.load(Ordering::Acquire) }
    }

    /// Notes that the caller stands elsewhere from now on.
    pub(super) fn moved(&self, place: Position) {
        self.batch.store(place.batch, Ordering::Release);
        self.at.store(place.at, Ordering::Release);
    }

    pub(crate) fn name(&self) -> &Arc<LockName> {
        &self.lock
    }

    /// Returns how many may hold the lock at once with it.
    pub(crate) fn limit(&self) -> Limit {
        if self.reads_on.load(Ordering::Acquire) { Limit::READ } else { self.request.limit }
    }

    /// Notes that its holder shares the lock with other readers from now on.
    pub(super) fn read_on(&self, place: Position, grant: Grant) {
        self.moved(place);
        self.hold(grant);
        self.reads_on.store(true, Ordering::Release);
    }

    pub(crate) fn fencing_token(&self) -> u64 {
        self.fencing_token.load(Ordering::Acquire)
    }

    /// Returns whether this is the lock stored under that name by the manager with those services.
    pub(super) fn is_lock(&self, lock: &StoredName, services: &Services) -> bool {
        self.lock.stored() == lock && self.manager == std::ptr::from_ref(services).addr()
    }

    /// Notes that the lock is the caller's, from `now` on.
    #[inline]
    pub(super) fn granted(&self, grant: Grant, now: Moment) {
        self.hold(grant);
        self.account.begin(now);
    }

    #[inline]
    fn hold(&self, grant: Grant) {
        self.fencing_token.store(grant.fencing_token, Ordering::Release);
        self.deadline.store(grant.deadline.as_nanos(), Ordering::Release);
        self.state.store(HELD, Ordering::Release);
    }

    /// Notes that the lease ends at `deadline` from now on.
    pub(super) fn extended(&self, deadline: Moment) {
        self.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    /// Notes that it is not used from here on. Call this before its line knows: the next caller may have the
    /// lock in that moment.
    pub(crate) fn retire(&self) {
        if self.state.load(Ordering::Acquire) == HELD {
            self.state.store(RELEASED, Ordering::Release);
        }
    }

    /// Notes that it is no longer ours. Final.
    pub(super) fn end(&self, loss: Loss) {
        self.state.store(loss as u8, Ordering::Release);
    }

    /// Notifies observers, and those that wait for its loss, that it was lost. Call this once everything is as
    /// it must be then.
    pub(super) fn report(&self, loss: Loss, observers: &Observers) {
        shield(|| self.changed.notify_waiters());
        // A caller that never had it asks again, or fails with `Busy`.
        if self.is_in_hand() {
            let told = (reported(loss), self.fencing_token());
            observers.lost(self.name(), &self.account, told, self.clock.now());
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

    pub(super) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Notes that the call has it, with all others that it asked for.
    pub(super) fn put_in_hand(&self) {
        self.in_hand.store(true, Ordering::Release);
    }

    pub(super) fn is_in_hand(&self) -> bool {
        self.in_hand.load(Ordering::Acquire)
    }

    /// Returns whether it is still ours at this very moment.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.clock.now() < self.deadline()
    }

    /// [`is_held`](Self::is_held) for a caller that has just read the clock.
    #[inline]
    pub(super) fn is_held_at(&self, now: Moment) -> bool {
        self.state.load(Ordering::Acquire) == HELD && now < self.deadline()
    }

    /// Returns whether its deadline has passed and its line does not know that yet.
    pub(super) fn is_overdue(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.clock.now() >= self.deadline()
    }

    /// Returns the time until its deadline; zero if it is not held.
    pub(crate) fn remaining(&self) -> Duration {
        if self.state.load(Ordering::Acquire) != HELD {
            return Duration::ZERO;
        }
        match self.deadline() {
            // Without an end, its whole ttl is left at any time.
            Moment::NEVER => self.request.term.ttl,
            deadline => deadline.since(self.clock.now()),
        }
    }

    /// Notes that a body is about to run under it. Check after this call that it is not lost.
    pub(crate) fn begin_body(&self) {
        self.body.store(true, Ordering::Release);
        // The code that ends the lease looks for a body after that, and frees the lock if there is none:
        // one of the two sees the other.
        fence(Ordering::SeqCst);
    }

    /// Returns false if no body runs under it and none will begin. Call this once it was lost.
    pub(super) fn has_body(&self) -> bool {
        fence(Ordering::SeqCst);
        self.body.load(Ordering::Acquire)
    }

    /// Notes that its holder has given it back, after its body was dropped.
    #[inline]
    pub(super) fn returned_now(&self) {
        if self.returned.fetch_or(RETURNED, Ordering::AcqRel) & WAITED_FOR != 0 {
            shield(|| self.changed.notify_waiters());
        }
    }

    /// Resolves when its holder has given it back, after its body was dropped.
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

    /// Resolves when something may have changed after this was first polled: it was lost, or given back.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns how it was lost; `None` if its line knows of no loss.
    pub(super) fn loss(&self) -> Option<Loss> {
        loss_of(self.state.load(Ordering::Acquire))
    }

    /// Returns the error for the caller once it is lost; a body may have been `stopped` for it.
    pub(crate) fn lost_error(&self, stopped: bool) -> LockError {
        let loss = self.loss().unwrap_or(Loss::Expired);
        LockError::lost(self.name(), reported(loss), stopped)
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

    /// Returns when both threads have come here, at about the same time.
    fn meet(gate: &AtomicUsize, round: usize) {
        gate.fetch_add(1, Ordering::SeqCst);
        while gate.load(Ordering::SeqCst) < 2 * (round + 1) {
            spin_loop();
        }
    }

    /// Either a body that begins sees the end of its lease, or the code that ends the lease sees the body.
    /// Otherwise the lock would be freed under the body.
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
