//! The table of lines: which locks this process holds or waits for.
//!
//! A lock's line (`distlock_core::line`) decides what happens to the lock. The table finds the line, changes it under the mutex
//! of its shard, plans when it is looked at next ([`schedule`](super::schedule)), and has the effects of the change
//! carried out once the mutex is free. Mutexes are never held across an await, and no task is woken under one.
//!
//! # One circle
//!
//! A change brings about commands, and their answers change lines again. [`commands`](super::commands), which
//! carries the effects out, uses the table; so the table gets it as a function, and does not import it.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::clock::Clock;
use distlock_core::collections::shrink;
use distlock_core::fork_guard::ForkGuard;
use distlock_core::line::{Closing, Line, Loss, Renew};
use distlock_core::name::{BuildStoredHasher, LockName, StoredName};
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::owner::Owner;

use super::effects::{Effects, Live, wake};
use super::lease::Lease;
use super::release_recheck::Rechecks;
use super::release_retry::Retries;
use super::schedule::Schedule;
use super::services::Services;
use crate::observe::Observers;
use crate::peers::{Answers, Questions};

pub(super) const SHARDS: usize = 64;

/// All lines of one manager.
pub(crate) struct LockTable {
    pub(super) services: Services,
    shards: [Mutex<Shard>; SHARDS],
    carry_out: CarryOut,
    pub(super) rechecks: Rechecks,
    pub(crate) retries: Retries,
    /// Whose turn it is to renew very many leases, for each part of the store.
    pub(super) renewal_turns: Mutex<HashMap<usize, Arc<tokio::sync::Mutex<()>>>>,
    /// Questions of this process about the locks of others, and of others about its own.
    pub(crate) questions: Questions,
    pub(super) answers: Answers,
}

/// Carries out the effects of a change. The flag says whether the line is to be looked at now.
pub(super) type CarryOut = fn(&Arc<LockTable>, Effects<'_>, bool);

type Shard = HashMap<Name, Entry, BuildStoredHasher>;

/// A line, and when it is looked at next.
#[derive(Default)]
struct Entry {
    line: Line<Live>,
    schedule: Schedule,
}

/// The next step for a line after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It stays; the next look is planned.
    Stay,
    /// It is to be looked at now.
    Look,
    /// Nothing is left of it.
    Forget,
}

impl Entry {
    #[inline]
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Line<Live>, &mut Effects<'_>) -> T,
        effects: &mut Effects<'_>,
    ) -> (T, Next) {
        let out = change(&mut self.line, effects);
        let next = if self.line.is_empty() {
            self.schedule.cancel(&effects.services.timers);
            Next::Forget
        } else if self.schedule.plan(&self.line, effects) {
            Next::Look
        } else {
            Next::Stay
        };
        (out, next)
    }
}

impl LockTable {
    pub(super) fn new(services: Services, carry_out: CarryOut) -> Self {
        Self {
            services,
            shards: std::array::from_fn(|_| Mutex::default()),
            carry_out,
            rechecks: Rechecks::default(),
            retries: Retries::default(),
            renewal_turns: Mutex::default(),
            questions: Questions::default(),
            answers: Answers::default(),
        }
    }

    pub(crate) fn home(&self) -> ForkGuard {
        self.services.home
    }

    pub(crate) fn clock(&self) -> Clock {
        self.services.clock
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.services.observers
    }

    /// Returns what this manager's tokens begin with.
    pub(crate) fn process(&self) -> &str {
        self.services.identity.process()
    }

    /// Returns what other processes may learn of this one.
    pub(crate) fn itself(&self) -> Option<&ProcessInfo> {
        self.services.itself.as_ref()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.services.closed.load(Ordering::Acquire)
    }

    #[inline]
    fn shard(&self, stored: &StoredName) -> MutexGuard<'_, Shard> {
        lock(&self.shards[stored.part(SHARDS)])
    }

    /// Changes a lock's line, and has the effects carried out.
    #[inline]
    pub(super) fn change<T>(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        change: impl FnOnce(&mut Line<Live>, &mut Effects<'_>) -> T,
    ) -> T {
        let mut effects = Effects::new(&self.services, lock);
        let stored = lock.stored();
        let (out, next) = {
            let mut shard = self.shard(stored);
            let (out, next) = match shard.get_mut(stored) {
                Some(entry) => entry.change(change, &mut effects),
                None => {
                    let entry = shard.entry(Name(lock.clone())).or_default();
                    entry.change(change, &mut effects)
                }
            };
            (out, next.forget(&mut shard, stored))
        };
        self.carry_out(effects, next);
        out
    }

    /// [`change`](Self::change) for a line that may not be there: then there is nothing to change.
    #[inline]
    pub(super) fn change_known<T: Default>(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        change: impl FnOnce(&mut Line<Live>, &mut Effects<'_>) -> T,
    ) -> T {
        let mut effects = Effects::new(&self.services, lock);
        let stored = lock.stored();
        let (out, next) = {
            let mut shard = self.shard(stored);
            let Some(entry) = shard.get_mut(stored) else { return T::default() };
            let (out, next) = entry.change(change, &mut effects);
            (out, next.forget(&mut shard, stored))
        };
        self.carry_out(effects, next);
        out
    }

    /// Changes a line of which only the stored name is known.
    pub(super) fn change_stored(
        self: &Arc<Self>,
        stored: &StoredName,
        change: impl FnOnce(&mut Line<Live>),
    ) {
        let lock = self.shard(stored).get_key_value(stored).map(|(name, _)| name.0.clone());
        if let Some(lock) = lock {
            self.change_known(&lock, |line, _| change(line));
        }
    }

    /// Does what is due of a line. Returns what is to be renewed: the caller sends that, perhaps with the
    /// renewals of other lines.
    pub(super) fn look(self: &Arc<Self>, lock: &Arc<LockName>) -> Vec<Renew<Live>> {
        let mut effects = Effects::new(&self.services, lock);
        let stored = lock.stored();
        let next = {
            let mut shard = self.shard(stored);
            let Some(entry) = shard.get_mut(stored) else { return Vec::new() };
            let now = self.services.clock.now();
            entry.schedule.looked(&entry.line, now, &mut effects);
            let ((), next) = entry.change(|line, effects| line.run(now, effects), &mut effects);
            next.forget(&mut shard, stored)
        };
        let renewals = effects.take_renewals();
        self.carry_out(effects, next);
        renewals
    }

    #[inline]
    fn carry_out(self: &Arc<Self>, effects: Effects<'_>, next: Next) {
        if effects.more.is_some() || next == Next::Look {
            (self.carry_out)(self, effects, next == Next::Look);
        } else if let Some(waker) = effects.woken {
            wake(waker);
        }
    }

    /// Looks at a lock's line; `None` if there is none.
    pub(crate) fn read<T>(
        &self,
        stored: &StoredName,
        look: impl FnOnce(&Line<Live>) -> T,
    ) -> Option<T> {
        self.shard(stored).get(stored).map(|entry| look(&entry.line))
    }

    /// Looks at the lines of one shard, until `look` returns false.
    pub(super) fn read_shard(
        &self,
        shard: usize,
        mut look: impl FnMut(&LockName, &Line<Live>) -> bool,
    ) {
        let shard = lock(&self.shards[shard]);
        let _ = shard.iter().all(|(name, entry)| look(&name.0, &entry.line));
    }

    /// Returns the token of that text that owns the lock, if it is one of this process.
    pub(crate) fn owner_of(&self, stored: &StoredName, token: &str) -> Option<Arc<Owner>> {
        let shard = self.shard(stored);
        let mut claims = shard.get(stored)?.line.claims();
        claims.find(|claim| claim.token.token == token).map(|claim| claim.token.clone())
    }

    /// Returns how many calls wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.count(Line::waiting)
    }

    /// Returns how many leases are held.
    pub(crate) fn held(&self) -> usize {
        self.count(|line| line.held().count())
    }

    fn count(&self, of: impl Fn(&Line<Live>) -> usize) -> usize {
        let in_shard = |shard: &Shard| shard.values().map(|entry| of(&entry.line)).sum::<usize>();
        self.shards.iter().map(|shard| in_shard(&lock(shard))).sum()
    }

    /// Returns every lock that is held or waited for here.
    pub(crate) fn locks(&self) -> Vec<Arc<LockName>> {
        let names = |shard: &Mutex<Shard>| {
            lock(shard).keys().map(|name| name.0.clone()).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(names).collect()
    }

    /// Returns whether a lease is lost, for whatever reason. A deadline that has passed is a loss, also while
    /// the engine has not seen it.
    pub(super) fn is_lost(self: &Arc<Self>, lease: &Arc<Lease>) -> bool {
        if lease.is_overdue() {
            self.change_known(&lease.lock, |line, effects| {
                line.expire(lease.place(), self.services.clock.now(), effects);
            });
        }
        lease.loss().is_some()
    }

    /// Notes that, as the store says, the lock is not the token's any more. Returns whether it was held here.
    pub(crate) fn taken_away(self: &Arc<Self>, owner: &Arc<Owner>, loss: Loss) -> bool {
        self.change_known(&owner.lock, |line, effects| {
            let held = line.held().any(|(token, _)| token == owner);
            line.taken_away(owner, loss, self.services.clock.now(), effects);
            held
        })
    }

    /// Gives no more locks, and ends every wait and every lease. Returns what is to be done with each lease.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<Closing<Live>> {
        self.services.closed.store(true, Ordering::Release);
        let mut closing = Vec::new();
        for name in self.locks() {
            self.change_known(&name, |line, effects| {
                line.close(self.services.clock.now(), effects);
                closing.append(&mut effects.take_closing());
            });
        }
        closing
    }
}

impl Next {
    /// Forgets a line that is empty.
    #[inline(always)]
    fn forget(self, shard: &mut Shard, stored: &StoredName) -> Self {
        if self == Self::Forget {
            forget(shard, stored);
        }
        self
    }
}

fn forget(shard: &mut Shard, stored: &StoredName) {
    shard.remove(stored);
    shrink(shard);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lock by the name under which it is stored.
struct Name(Arc<LockName>);

impl Borrow<StoredName> for Name {
    fn borrow(&self) -> &StoredName {
        self.0.stored()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.stored().hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.stored() == other.0.stored()
    }
}

impl Eq for Name {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::LockManager;

    /// Returns how many lines there is room for.
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
            // A shard keeps room for some locks, or its map would be made again all the time.
            assert!(room(&table) <= SHARDS * 128, "room for {} is left", room(&table));
        }
    }
}
