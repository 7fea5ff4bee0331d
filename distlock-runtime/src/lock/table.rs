//! Which locks this process holds or waits for: the lines of all locks, and what they share.
//!
//! `arrive` is how calls come into a line and leave it, `lead` the try of a call that found none,
//! `queue` what is asked of the store's queue, `hand_over` how a lease goes from one holder to the
//! next, `release` how it is given back. Mutexes are never held across an await, and no task is woken
//! under one: what is to be done is collected as [`Effects`] and carried out afterwards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::alleged::Alleged;
use super::batch::Line;
use super::claim::Claim;
use super::lapsed::Lapsed;
use super::lines::Lines;
use super::queue::POLL_UNNOTIFIED;
use super::registry::HeldLeases;
use super::release_repeat::Repeats;
use super::release_retry::Retries;
use super::serve::Due;
use super::tenure::deadline;
use super::waiter::{Denied, Waiter, Woken};
use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarms;
use crate::engine::timers::Timers;
use crate::engine::{Background, Engine};
use crate::home::Home;
use crate::name::{LockName, StoredName};
use crate::store::owner::Owner;
use crate::store::{Fault, Store, Term};
use crate::token::Identity;

pub(super) const SHARDS: usize = 64;

/// All lines of one manager.
pub(crate) struct LockTable {
    pub(super) shards: [Mutex<Lines>; SHARDS],
    home: Home,
    pub(super) store: Arc<dyn Store>,
    pub(super) background: Background,
    pub(super) identity: Identity,
    pub(super) command_timeout: Duration,
    pub(super) repeats: Repeats,
    pub(crate) retries: Retries,
    /// Whose turn it is of those that renew very many leases.
    pub(crate) many_renewals: tokio::sync::Mutex<()>,
    pub(crate) lapsed: Lapsed,
    pub(super) alleged: Alleged,
    pub(super) held: HeldLeases,
    timers: Arc<Timers<Due>>,
    alarms: Arc<Alarms>,
    pub(super) clock: Clock,
    pub(super) remote: bool,
    closed: AtomicBool,
    batches: AtomicU64,
    /// Of batches that the engine took over while their leader was still trying, by number.
    leaders: Mutex<HashMap<u64, Arc<Waiter>>>,
}

/// What is to be done once no mutex is held.
#[derive(Default)]
pub(super) struct Effects {
    woken: Vec<Woken>,
    /// Tokens that left the queue.
    leaving: Vec<Arc<Owner>>,
    /// A batch has something to ask of the store.
    poll: bool,
}

impl Effects {
    pub(super) fn wake(&mut self, woken: Option<Woken>) {
        self.woken.extend(woken);
    }

    pub(super) fn leave(&mut self, owner: Arc<Owner>) {
        owner.retire();
        self.leaving.push(owner);
    }

    pub(super) fn poll(&mut self) {
        self.poll = true;
    }

    pub(super) fn carry_out(self, table: &Arc<LockTable>, lock: &Arc<LockName>) {
        self.woken.into_iter().for_each(Woken::wake);
        for owner in self.leaving {
            table.leave_queue(owner);
        }
        if self.poll {
            table.schedule_poll(lock);
        }
    }
}

impl LockTable {
    pub(super) fn new(
        store: Arc<dyn Store>,
        engine: &Engine<Due>,
        command_timeout: Duration,
    ) -> Arc<Self> {
        let (clock, remote) = (store.clock(), store.is_remote());
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            home: Home::here(),
            store,
            background: engine.background().clone(),
            identity: Identity::new(),
            command_timeout,
            repeats: Repeats::default(),
            retries: Retries::default(),
            many_renewals: tokio::sync::Mutex::default(),
            lapsed: Lapsed::default(),
            alleged: Alleged::default(),
            held: HeldLeases::default(),
            timers: engine.timers().clone(),
            alarms: engine.alarms().clone(),
            clock,
            remote,
            closed: AtomicBool::new(false),
            batches: AtomicU64::new(0),
            leaders: Mutex::default(),
        })
    }

    pub(crate) fn home(&self) -> Home {
        self.home
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    pub(super) fn timers(&self) -> &Timers<Due> {
        &self.timers
    }

    pub(super) fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// What this manager's tokens begin with.
    pub(crate) fn process(&self) -> &str {
        self.identity.process()
    }

    /// Leases must be renewed and are watched by the engine.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Calls of this process wait for the lock.
    pub(crate) fn has_waiters(&self, lock: &StoredName) -> bool {
        let mut lines = self.lines(lock);
        lines.get_mut(lock).is_some_and(|line| line.batches().any(|batch| batch.has_waiters()))
    }

    /// How many calls wait here.
    pub(crate) fn waiting(&self) -> usize {
        let in_shard = |lines: &mut Lines| lines.values_mut().map(Line::waiting).sum::<usize>();
        self.shards.iter().map(|shard| in_shard(&mut lock(shard))).sum()
    }

    /// Gives no more locks, and ends every wait.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        let mut effects = Vec::new();
        for shard in &self.shards {
            let mut lines = lock(shard);
            let mut queued = Vec::new();
            for (name, line) in lines.iter_mut() {
                let mut own = Effects::default();
                for batch in line.batches() {
                    for waiter in batch.waiters() {
                        own.wake(waiter.deny(Denied::Fault(Fault::closed())));
                    }
                    // One that is being renewed for the next holder has none to be freed by.
                    if !batch.is_owned() || batch.claim.holder().is_none() {
                        queued.push((effects.len(), batch.number));
                    }
                }
                effects.push((name.0.clone(), own));
            }
            // Out of the store's queue now, and counted as unfinished until the store has confirmed it.
            for (at, number) in queued {
                let (name, own) = &mut effects[at];
                self.dissolve(&mut lines, name.stored(), number, own);
            }
        }
        for (lock, own) in effects {
            own.carry_out(self, &lock);
        }
    }

    /// A claim that was never sent. A lock that is reserved for it is kept for `reservation`.
    pub(super) fn new_claim(&self, lock: &Arc<LockName>, reservation: Duration) -> Arc<Claim> {
        self.new_claim_at(lock, reservation, self.clock.now())
    }

    /// The same at a moment that was read already: reading it again costs 1 % of a lock.
    pub(super) fn new_claim_at(
        &self,
        lock: &Arc<LockName>,
        reservation: Duration,
        now: Moment,
    ) -> Arc<Claim> {
        let notified = self.store.hears(lock);
        let reservation = reservation_of(notified, reservation);
        Arc::new(Claim::new(lock.clone(), self.identity.issue(notified, reservation, now)))
    }

    /// Until when a lease is worth something here that was asked for at `sent`.
    pub(super) fn deadline(&self, sent: Moment, term: Term) -> Moment {
        // In memory a renewed lease has no end: nothing could keep a renewal from being in time.
        let endless = term.renewed && !self.remote;
        if endless { Moment::NEVER } else { deadline(sent, term.lease()) }
    }

    /// The number of a new batch.
    pub(super) fn number(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lines(&self, stored: &StoredName) -> MutexGuard<'_, Lines> {
        lock(&self.shards[stored.part(SHARDS)])
    }

    pub(super) fn leaders(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        lock(&self.leaders)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For how long a lock is reserved: a process that is not notified must have polled within that time.
pub(super) fn reservation_of(notified: bool, reservation: Duration) -> Duration {
    if notified { reservation } else { reservation.max(POLL_UNNOTIFIED * 3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::LockManager;

    /// How many lines there is room for.
    fn room(table: &LockTable) -> usize {
        table.shards.iter().map(|shard| lock(shard).capacity()).sum()
    }

    #[tokio::test]
    async fn r24_very_many_locks_leave_no_memory_behind() {
        const LOCKS: usize = 20_000;
        let manager = LockManager::in_memory();
        let table = manager.locks().table.clone();
        let hold = async |from: usize| {
            let mut guards = Vec::new();
            for n in from..from + LOCKS {
                guards.push(manager.lock(n.to_string()).acquire().await.expect("free"));
            }
            guards
        };
        for _ in 0..2 {
            let some = hold(0).await;
            let others = hold(LOCKS).await;
            assert!(room(&table) >= 2 * LOCKS);
            drop(some);
            assert!(room(&table) >= LOCKS, "those that are held are there");
            drop(others);
            // A line's map keeps room for some locks, or it would be made again all the time.
            assert!(room(&table) <= SHARDS * 128, "room for {} is left", room(&table));
        }
    }
}
