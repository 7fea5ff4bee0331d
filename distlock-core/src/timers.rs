//! What is due when.
//!
//! The engine keeps the time for all callers: their runtimes may be blocked, paused, or without a
//! timer. Nearly every entry is taken out again long before it is due, so coming and going are cheap,
//! and the engine is only woken for an entry that is due earlier than it already planned to look.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::Moment;
use crate::per_thread::PerThread;
use crate::signal::Signal;

/// Where an entry is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    at: Moment,
    id: NonZeroU64,
    place: u32,
    shard: u8,
}

/// Entries in no order, with a bound for the earliest: inserting and removing must be cheap, looking
/// for what is due may cost, as that happens about once in a command's timeout.
struct Shard<D> {
    entries: Vec<Option<(Slot, D)>>,
    vacant: Vec<u32>,
    issued: NonZeroU64,
    /// Nothing is due before.
    earliest: Moment,
}

impl<D> Default for Shard<D> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            issued: NonZeroU64::MIN,
            earliest: Moment::NEVER,
        }
    }
}

impl<D> Shard<D> {
    fn insert(&mut self, at: Moment, shard: u8, due: D) -> Slot {
        self.issued = self.issued.saturating_add(1);
        self.earliest = self.earliest.min(at);
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // So many entries would not fit into memory.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = Slot { at, id: self.issued, place, shard };
        self.entries[place as usize] = Some((slot, due));
        slot
    }

    /// The entry of a slot, unless it was taken out.
    fn entry(&mut self, slot: Slot) -> Option<&mut Option<(Slot, D)>> {
        let entry = self.entries.get_mut(slot.place as usize)?;
        entry.as_ref().is_some_and(|(own, _)| own.id == slot.id).then_some(entry)
    }

    fn remove(&mut self, slot: Slot) -> Option<D> {
        let (_, due) = self.entry(slot)?.take()?;
        self.vacant.push(slot.place);
        Some(due)
    }

    /// Moves what is due at `now` to `due`, and says when the next entry is.
    fn take_due(&mut self, now: Moment, due: &mut Vec<D>) -> Moment {
        if self.earliest > now {
            return self.earliest;
        }
        self.earliest = Moment::NEVER;
        for entry in &mut self.entries {
            match entry {
                Some((slot, _)) if slot.at > now => self.earliest = self.earliest.min(slot.at),
                Some(_) => due.extend(entry.take().map(|(_, due)| due)),
                None => {}
            }
        }
        self.tidy();
        self.earliest
    }

    /// Gives back what a burst has left behind.
    fn tidy(&mut self) {
        let used = self.entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.entries.truncate(used);
        self.entries.shrink_to(2 * used);
        self.vacant.clear();
        let vacant = (0..).zip(&self.entries).filter(|(_, entry)| entry.is_none());
        self.vacant.extend(vacant.map(|(place, _)| place));
        // Low places are used first, so that the end can be given back.
        self.vacant.reverse();
    }
}

/// When the engine will look next, and how it is made to look earlier.
#[derive(Default)]
pub struct Plan {
    /// In nanoseconds. Entries that are due earlier wake the engine.
    next: AtomicU64,
    changed: Signal,
}

impl Plan {
    /// Has the engine look again although nothing became due earlier.
    pub fn nudge(&self) {
        self.changed.notify();
    }

    /// Resolves after an insert that is due earlier than what the engine waits for.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Plans anew: `look` takes out what is due and says when the next entry is.
    pub fn renew(&self, look: impl FnOnce() -> Moment) -> Moment {
        self.next.store(u64::MAX, Ordering::Release);
        let next = look();
        self.next.fetch_min(next.as_nanos(), Ordering::AcqRel);
        next
    }

    /// Something is due at `at` that was not there when the engine looked last.
    fn advance(&self, at: Moment) {
        if at.as_nanos() < self.next.load(Ordering::Acquire)
            && at.as_nanos() < self.next.fetch_min(at.as_nanos(), Ordering::AcqRel)
        {
            self.changed.notify();
        }
    }
}

/// Things that are due at a moment, of whatever kind.
pub struct Timers<D> {
    shards: PerThread<Mutex<Shard<D>>>,
    plan: Arc<Plan>,
}

impl Slot {
    pub fn at(self) -> Moment {
        self.at
    }
}

impl<D> Timers<D> {
    /// All timers of one engine share its plan.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { shards: PerThread::default(), plan }
    }

    pub fn insert(&self, at: Moment, due: D) -> Slot {
        let slot = {
            let (number, shard) = self.shards.own();
            lock(shard).insert(at, number, due)
        };
        // After the insert: either the engine's scan, which holds the shard's mutex after it has reset
        // its plan, sees the entry, or what it reset is seen here.
        self.plan.advance(at);
        slot
    }

    /// Takes an entry out, unless it was due meanwhile.
    pub fn remove(&self, slot: Slot) {
        // Dropped once the shard is free again: dropping what was due may come back here.
        let due = self.shard(slot).remove(slot);
        drop(due);
    }

    /// Takes everything out that is due at `now`, and says when the next entry is.
    pub fn take_due(&self, now: Moment) -> (Vec<D>, Moment) {
        let mut due = Vec::new();
        let mut next = Moment::NEVER;
        for shard in self.shards.parts() {
            next = next.min(lock(shard).take_due(now, &mut due));
        }
        (due, next)
    }

    /// What is due at a slot; `None` once it was taken out.
    pub fn with<T>(&self, slot: Slot, look: impl FnOnce(&mut D) -> T) -> Option<T> {
        match self.shard(slot).entry(slot) {
            Some(Some((_, due))) => Some(look(due)),
            _ => None,
        }
    }

    fn shard(&self, slot: Slot) -> MutexGuard<'_, Shard<D>> {
        lock(self.shards.part(slot.shard))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
