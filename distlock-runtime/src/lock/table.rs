//! Which locks this process holds or waits for: the lines of all locks, and what they share.
//!
//! What becomes of a lock is decided by its line (`core`). Here a line is found, changed under the mutex
//! of its shard, and planned to be looked at again when it is due; what the change has brought about is
//! carried out afterwards ([`Turn`]). Mutexes are never held across an await, and no task is woken under
//! one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::core::{Closing, Limit, Line, Renew, Reservation};
use super::effects::{Live, Turn};
use super::lease::Lease;
use super::lines::{Lines, Name, Next};
use super::orphans::Strays;
use super::release_recheck::Repeats;
use super::release_retry::Retries;
use super::renew::Turns;
use super::revoked::ForceReleased;
use super::schedule::Agenda;
use super::serve::Due;
use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarms;
use crate::engine::timers::Timers;
use crate::engine::{Background, Engine};
use crate::home::Home;
use crate::itself::Itself;
use crate::name::{LockName, StoredName};
use crate::observe::Observers;
use crate::peers::{Answers, Questions};
use crate::store::Store;
use crate::store::owner::Owner;
use crate::token::Identity;

pub(super) const SHARDS: usize = 64;

/// All lines of one manager.
pub(crate) struct LockTable {
    shards: [Mutex<Lines>; SHARDS],
    home: Home,
    pub(super) store: Arc<dyn Store>,
    background: Background,
    identity: Identity,
    /// What other processes may learn of this one; `None`: nothing.
    pub(super) itself: Option<Itself>,
    pub(crate) questions: Questions,
    pub(super) answers: Answers,
    pub(super) command_timeout: Duration,
    pub(super) repeats: Repeats,
    pub(crate) retries: Retries,
    pub(super) many_renewals: Turns,
    pub(super) force_released: ForceReleased,
    pub(super) strays: Strays,
    pub(super) agenda: Agenda,
    timers: Arc<Timers<Due>>,
    alarms: Arc<Alarms>,
    observers: Observers,
    clock: Clock,
    needs_renewal: bool,
    closed: AtomicBool,
    numbers: AtomicU64,
}

impl LockTable {
    pub(super) fn new(
        store: Arc<dyn Store>,
        engine: &Engine<Due>,
        command_timeout: Duration,
        (identity, identify): (Identity, bool),
        observers: Observers,
    ) -> Arc<Self> {
        let (clock, needs_renewal) = (store.clock(), store.needs_renewal());
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            home: Home::here(),
            store,
            background: engine.background().clone(),
            itself: identify.then(|| Itself::new(identity.process())),
            identity,
            questions: Questions::default(),
            answers: Answers::default(),
            command_timeout,
            repeats: Repeats::default(),
            retries: Retries::default(),
            many_renewals: Turns::default(),
            force_released: ForceReleased::default(),
            strays: Strays::default(),
            agenda: Agenda::of(clock, engine.reads(clock)),
            timers: engine.timers().clone(),
            alarms: engine.alarms().clone(),
            observers,
            clock,
            needs_renewal,
            closed: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
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

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    pub(super) fn timers(&self) -> &Timers<Due> {
        &self.timers
    }

    pub(super) fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// What this manager's tokens begin with.
    pub(crate) fn process(&self) -> &str {
        self.identity.process()
    }

    /// What gives tokens, and remembers them.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A lease ends that is not renewed.
    pub(super) fn needs_renewal(&self) -> bool {
        self.needs_renewal
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A token under which nothing was sent.
    #[inline]
    pub(super) fn new_owner(
        &self,
        lock: &Arc<LockName>,
        limit: Limit,
        reservation: Reservation,
        now: Moment,
    ) -> Arc<Owner> {
        let Reservation { notified, time } = reservation;
        Arc::new(Owner::new(lock.clone(), self.identity.issue(notified, time, limit, now), limit))
    }

    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    fn lines(&self, stored: &StoredName) -> MutexGuard<'_, Lines> {
        lock(&self.shards[stored.part(SHARDS)])
    }

    /// Changes a lock's line and carries out what that brings about.
    #[inline]
    pub(super) fn change<T>(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        change: impl FnOnce(&mut Line<Live>, &mut Turn<'_>) -> T,
    ) -> T {
        let mut turn = Turn::new(self, lock);
        let (out, next) = {
            let mut lines = self.lines(lock.stored());
            let (out, next) = match lines.get_mut(lock.stored()) {
                Some(entry) => entry.change(self, change, &mut turn),
                None => {
                    let entry = lines.entry(Name(lock.clone())).or_default();
                    entry.change(self, change, &mut turn)
                }
            };
            (out, next.forget(&mut lines, lock))
        };
        self.carry_out(lock, turn, next);
        out
    }

    /// The same for a line that may not be there: then there is nothing to change.
    #[inline]
    pub(super) fn change_known<T: Default>(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        change: impl FnOnce(&mut Line<Live>, &mut Turn<'_>) -> T,
    ) -> T {
        let mut turn = Turn::new(self, lock);
        let (out, next) = {
            let mut lines = self.lines(lock.stored());
            let Some(entry) = lines.get_mut(lock.stored()) else { return T::default() };
            let (out, next) = entry.change(self, change, &mut turn);
            (out, next.forget(&mut lines, lock))
        };
        self.carry_out(lock, turn, next);
        out
    }

    #[inline]
    fn carry_out(self: &Arc<Self>, lock: &Arc<LockName>, turn: Turn<'_>, next: Next) {
        turn.carry_out(self);
        if next == Next::Run {
            self.run_soon(lock);
        }
    }

    /// Has what is due of a line done, where commands are sent.
    fn run_soon(self: &Arc<Self>, lock: &Arc<LockName>) {
        if self.agenda.is_the_engines() {
            let (table, lock) = (self.clone(), lock.clone());
            self.background.spawn(async move { table.run(&lock) });
        } else {
            self.run(lock);
        }
    }

    /// Does what is due of a line, renewals included.
    pub(super) fn run(self: &Arc<Self>, lock: &Arc<LockName>) {
        let renewals = self.run_without_renewals(lock);
        if !renewals.is_empty() {
            self.renew_soon(renewals);
        }
    }

    /// Does what is due of a line; what is to be renewed is left to the caller, which may have more.
    pub(super) fn run_without_renewals(self: &Arc<Self>, lock: &Arc<LockName>) -> Vec<Renew<Live>> {
        let mut turn = Turn::new(self, lock);
        let next = {
            let mut lines = self.lines(lock.stored());
            let Some(entry) = lines.get_mut(lock.stored()) else { return Vec::new() };
            entry.planned.looked(&self.timers);
            let now = self.clock.now();
            entry.waits.look(&entry.line, now, &mut turn);
            let run = |line: &mut Line<Live>, turn: &mut Turn<'_>| line.run(now, turn);
            let ((), next) = entry.change(self, run, &mut turn);
            next.forget(&mut lines, lock)
        };
        let renewals = turn.take_renewals();
        self.carry_out(lock, turn, next);
        renewals
    }

    /// The token of that text that owns the lock, if it is one of this process.
    pub(crate) fn owner_of(&self, stored: &StoredName, token: &str) -> Option<Arc<Owner>> {
        let lines = self.lines(stored);
        let mut claims = lines.get(stored)?.line.claims();
        claims.find(|claim| claim.token.token == token).map(|claim| claim.token.clone())
    }

    /// Looks at a lock's line; `None` if there is none.
    pub(crate) fn read<T>(
        &self,
        lock: &LockName,
        look: impl FnOnce(&Line<Live>) -> T,
    ) -> Option<T> {
        self.read_stored(lock.stored(), look)
    }

    pub(super) fn read_stored<T>(
        &self,
        stored: &StoredName,
        look: impl FnOnce(&Line<Live>) -> T,
    ) -> Option<T> {
        self.lines(stored).get(stored).map(|entry| look(&entry.line))
    }

    /// Looks at the lines of one shard, until it is enough: false.
    pub(super) fn read_shard(
        &self,
        shard: usize,
        mut look: impl FnMut(&LockName, &Line<Live>) -> bool,
    ) {
        let lines = lock(&self.shards[shard]);
        let _ = lines.iter().all(|(name, entry)| look(&name.0, &entry.line));
    }

    /// Changes a line whose name is known as it is stored only.
    pub(super) fn change_stored(
        self: &Arc<Self>,
        stored: &StoredName,
        change: impl FnOnce(&mut Line<Live>),
    ) {
        let lock = self.lines(stored).get_key_value(stored).map(|(name, _)| name.0.clone());
        if let Some(lock) = lock {
            self.change_known(&lock, |line, _| change(line));
        }
    }

    /// When a caller that waits until `end` has to look at its line by itself, because no engine does:
    /// at that end, or when the line is due.
    pub(super) fn run_by_callers(&self, lock: &LockName, end: Moment) -> Moment {
        if self.agenda.is_the_engines() {
            return Moment::NEVER;
        }
        self.read(lock, Line::due).unwrap_or(Moment::NEVER).min(end)
    }

    /// When a lease has to be looked at by its holder, because no engine watches it.
    pub(super) fn watched_by_callers(&self, lease: &Lease) -> Moment {
        if self.agenda.is_the_engines() { Moment::NEVER } else { lease.deadline() }
    }

    /// How many calls wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.count(Line::waiting)
    }

    /// How many leases are held.
    pub(crate) fn held(&self) -> usize {
        self.count(|line| line.held().count())
    }

    fn count(&self, of: impl Fn(&Line<Live>) -> usize) -> usize {
        let in_shard = |lines: &Lines| lines.values().map(|entry| of(&entry.line)).sum::<usize>();
        self.shards.iter().map(|shard| in_shard(&lock(shard))).sum()
    }

    /// Every lock that is held or waited for here.
    pub(crate) fn locks(&self) -> Vec<Arc<LockName>> {
        let names = |shard: &Mutex<Lines>| {
            lock(shard).keys().map(|name| name.0.clone()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(names).collect()
    }

    /// Gives no more locks, ends every wait and every lease; says what is to become of the leases.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<Closing<Live>> {
        self.closed.store(true, Ordering::Release);
        let mut closing = Vec::new();
        for name in self.locks() {
            self.change_known(&name, |line, turn| {
                line.close(self.clock.now(), turn);
                closing.append(&mut turn.take_closing());
            });
        }
        closing
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    async fn f24_very_many_locks_leave_no_memory_behind() {
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
