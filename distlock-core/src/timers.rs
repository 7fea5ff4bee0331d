//! Entries that become due at a moment.
//!
//! The engine keeps the time for all callers, because their runtimes may be blocked, paused, or without a timer. Nearly
//! every entry is removed long before it is due. So inserting and removing are cheap, and the engine is only woken for an
//! entry that is due before its next planned look.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::per_thread::PerThread;
use crate::signal::Signal;

/// The handle of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    at: Moment,
    id: NonZeroU64,
    place: u32,
    shard: u8,
}

/// Entries in no order, with a lower bound for the earliest moment. Inserting and removing must be cheap. Searching for
/// due entries may cost more, because it happens about once in a command's timeout.
struct Shard<D> {
    entries: Vec<Option<(Slot, D)>>,
    vacant: Vec<u32>,
    issued: NonZeroU64,
    /// No entry is due before this.
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
            // More entries would not fit into memory.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = Slot { at, id: self.issued, place, shard };
        self.entries[place as usize] = Some((slot, due));
        slot
    }

    /// Returns the entry of a slot, unless it was taken out.
    fn entry(&mut self, slot: Slot) -> Option<&mut Option<(Slot, D)>> {
        let entry = self.entries.get_mut(slot.place as usize)?;
        entry.as_ref().is_some_and(|(own, _)| own.id == slot.id).then_some(entry)
    }

    fn remove(&mut self, slot: Slot) -> Option<D> {
        let (_, due) = self.entry(slot)?.take()?;
        self.vacant.push(slot.place);
        Some(due)
    }

    /// Moves the entries that are due at `now` to `due`, and returns a moment before which no other entry is due.
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

    /// Returns the memory that a burst needed.
    fn tidy(&mut self) {
        let used = self.entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.entries.truncate(used);
        self.entries.shrink_to(2 * used);
        self.vacant.clear();
        let vacant = (0..).zip(&self.entries).filter(|(_, entry)| entry.is_none());
        self.vacant.extend(vacant.map(|(place, _)| place));
        // Low places are used first, so that the end of the list becomes free.
        self.vacant.reverse();
    }
}

/// The moment of the engine's next look at its timers, and the signal that makes it look earlier.
#[derive(Default)]
pub struct Plan {
    /// The moment in nanoseconds. Entries that are due earlier wake the engine.
    next: AtomicU64,
    changed: Signal,
}

impl Plan {
    /// Makes the engine look now, although no entry is due earlier.
    pub fn nudge(&self) {
        self.changed.notify();
    }

    /// Resolves after a [nudge](Self::nudge), or after an entry was inserted that is due before the planned look.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Makes a new plan: `look` takes the due entries out and returns when the next one is due. Returns that moment, or
    /// the moment of an entry that was inserted meanwhile.
    pub fn renew(&self, look: impl FnOnce() -> Moment) -> Moment {
        self.next.store(u64::MAX, Ordering::Release);
        let next = look();
        self.next.fetch_min(next.as_nanos(), Ordering::AcqRel);
        next
    }

    /// Wakes the engine if a new entry, which is due at `at`, is due before the planned look.
    fn advance(&self, at: Moment) {
        if at.as_nanos() < self.next.load(Ordering::Acquire)
            && at.as_nanos() < self.next.fetch_min(at.as_nanos(), Ordering::AcqRel)
        {
            self.changed.notify();
        }
    }
}

/// Entries of one kind, each of which becomes due at a moment.
pub struct Timers<D> {
    shards: PerThread<Mutex<Shard<D>>>,
    plan: Arc<Plan>,
}

impl Slot {
    /// Returns when the entry is due.
    pub fn at(self) -> Moment {
        self.at
    }
}

impl<D> Timers<D> {
    /// Returns timers without entries. All timers of one engine share its plan.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { shards: PerThread::default(), plan }
    }

    /// Inserts an entry that is due at `at`, and wakes the engine if it would look too late.
    pub fn insert(&self, at: Moment, due: D) -> Slot {
        let slot = {
            let (number, shard) = self.shards.own();
            lock(shard).insert(at, number, due)
        };
        // The order matters. The engine resets its plan first and then scans under the shard's mutex. So either that
        // scan sees the entry, or the plan that was reset is seen here.
        self.plan.advance(at);
        slot
    }

    /// Removes an entry. Does nothing if it was taken out because it was due.
    pub fn remove(&self, slot: Slot) {
        // It is dropped once the shard is not locked any more, because its destructor may use these timers.
        let due = self.shard(slot).remove(slot);
        drop(due);
    }

    /// Takes out the entries that are due at `now`. Returns them, and a moment before which no other entry is due.
    pub fn take_due(&self, now: Moment) -> (Vec<D>, Moment) {
        let mut due = Vec::new();
        let mut next = Moment::NEVER;
        for shard in self.shards.parts() {
            next = next.min(lock(shard).take_due(now, &mut due));
        }
        (due, next)
    }

    /// Calls `look` with the entry of a slot, and returns its value; `None` if the entry was taken out.
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

/// The tasks that wait for a moment. A task that waits for an answer inserts its deadline here and removes it after the
/// answer. In the common case the engine never looks at the entry.
pub type Alarms = Timers<Waker>;

impl Alarms {
    /// Sets the waker of an entry. Returns false if the entry was taken out.
    fn rearm(&self, slot: Slot, waker: &Waker) -> bool {
        match self.with(slot, |old| old.will_wake(waker)) {
            Some(true) => return true,
            Some(false) => {}
            None => return false,
        }
        // The new waker is cloned and the old one dropped while the shard is not locked: a waker may own its task, and
        // the task may own a lock.
        let mut new = waker.clone();
        self.with(slot, |old| std::mem::swap(old, &mut new)).is_some()
    }
}

/// How long to wait before a paused clock is read again.
const PAUSED: Duration = Duration::from_millis(50);

/// A future that resolves at a moment, on any runtime.
///
/// The engine wakes it, and the engine does not know that a test has paused tokio's clock. So the runtime also waits
/// on tokio's timers for a store whose leases age on that clock: only they move a paused clock forward.
pub enum Alarm<'a> {
    /// Resolves at a moment.
    Set {
        /// The alarms of the engine.
        alarms: &'a Alarms,
        /// The clock that `at` is read on.
        clock: Clock,
        /// The moment.
        at: Moment,
        /// The entry among the alarms, from the first poll on.
        slot: Option<Slot>,
    },
    /// Never resolves.
    Never,
}

impl<'a> Alarm<'a> {
    /// Returns a future that resolves at `at`, or never for [`Moment::NEVER`].
    #[inline]
    pub fn at(alarms: &'a Alarms, clock: Clock, at: Moment) -> Self {
        if at == Moment::NEVER {
            return Self::Never;
        }
        Self::Set { alarms, clock, at, slot: None }
    }
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Set { alarms, clock, at, slot } = self.get_mut() else {
            return Poll::Pending;
        };
        // An entry that is still there was not due when the engine last looked. So not every poll has to read the clock.
        if slot.is_some_and(|slot| alarms.rearm(slot, cx.waker())) {
            return Poll::Pending;
        }
        let mut look_at = *at;
        if slot.take().is_some() {
            if clock.now() >= *at {
                return Poll::Ready(());
            }
            // The clock is paused, and the engine's clock has passed this moment. Without a later one the engine would
            // wake this task again and again.
            look_at = look_at.max(clock.real_now().after(PAUSED));
        }
        *slot = Some(alarms.insert(look_at, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Self::Set { alarms, slot: Some(slot), .. } = self {
            alarms.remove(*slot);
        }
    }
}
