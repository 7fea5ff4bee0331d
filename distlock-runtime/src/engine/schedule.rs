//! What is due when: timers of calls, and leases to tend.
//!
//! Callers' runtimes may be blocked, paused, or without a timer, so time is kept by the engine. A
//! caller that waits for an answer puts an [`Alarm`] here and takes it out again; in the common
//! case the engine never looks at it. It is only told when something is due earlier than it
//! already planned to wake.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::LockName;
use crate::lock::claim::Claim;
use crate::lock::lease::Lease;
use crate::shards::PerThread;

/// What to do when the time has come.
pub(crate) enum Due {
    /// Somebody waits for this moment.
    Wake(Waker),
    /// A lease is to be renewed, or has reached its deadline.
    Tend(Arc<Claim>),
    /// A batch that waits for this lock is to look at the store.
    Attend(Arc<LockName>),
    /// Releases are to be repeated.
    Repair,
}

/// Where an entry stands in the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    at: Moment,
    id: u64,
    shard: u8,
}

#[derive(Default)]
struct Shard {
    entries: BTreeMap<Slot, Due>,
    issued: u64,
}

#[derive(Default)]
pub(crate) struct Schedule {
    shards: PerThread<Mutex<Shard>>,
    /// When the engine will look next, in nanoseconds. Entries that are due earlier wake it.
    planned: AtomicU64,
    changed: Notify,
}

impl Slot {
    pub(crate) fn at(self) -> Moment {
        self.at
    }
}

impl Schedule {
    pub(crate) fn insert(&self, at: Moment, due: Due) -> Slot {
        let slot = {
            let (number, shard) = self.shards.own();
            let mut shard = lock(shard);
            shard.issued += 1;
            let slot = Slot { at, id: shard.issued, shard: number };
            shard.entries.insert(slot, due);
            slot
        };
        // After the insert: either the engine's scan, which holds the shard's mutex after it reset
        // `planned`, sees the entry, or what it reset is seen here.
        if at.as_nanos() < self.planned.load(Ordering::Acquire)
            && at.as_nanos() < self.planned.fetch_min(at.as_nanos(), Ordering::AcqRel)
        {
            self.changed.notify_one();
        }
        slot
    }

    pub(crate) fn remove(&self, slot: Slot) {
        // Taken out of the map before it is dropped: dropping a lease may come back here.
        let entry = self.shard(slot).entries.remove(&slot);
        drop(entry);
    }

    /// Has the engine look again although nothing became due earlier.
    pub(crate) fn nudge(&self) {
        self.changed.notify_one();
    }

    /// Resolves after an insert that is due earlier than what the engine waits for.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Everything that is due at `now`, and when the next entry is. Wakers are taken out. Claims stay
    /// until they are rescheduled or ended, which whoever tends them does before he comes back:
    /// somebody who looks for all leases must find those that are being tended, too.
    pub(crate) fn take_due(&self, now: Moment) -> (Vec<Due>, Moment) {
        self.planned.store(u64::MAX, Ordering::Release);
        let mut due = Vec::new();
        let mut next = Moment::NEVER;
        for shard in self.shards.parts() {
            let mut shard = lock(shard);
            let from = due.len();
            while let Some(entry) = shard.entries.first_entry() {
                if entry.key().at > now {
                    next = next.min(entry.key().at);
                    break;
                }
                due.push(entry.remove_entry());
            }
            for (slot, entry) in &due[from..] {
                if let Due::Tend(claim) = entry {
                    shard.entries.insert(*slot, Due::Tend(claim.clone()));
                }
            }
        }
        self.planned.fetch_min(next.as_nanos(), Ordering::AcqRel);
        (due.into_iter().map(|(_, entry)| entry).collect(), next)
    }

    /// Every lease that is held, once.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        // All shards at once: a lease moves from one to another when it is rescheduled. It is in the
        // new place before it leaves the old one, so it may be seen twice, but is never missed.
        let shards: Vec<_> = self.shards.parts().map(lock).collect();
        let entries = shards.iter().flat_map(|shard| shard.entries.values());
        let claims = entries
            .filter_map(|due| match due {
                Due::Tend(claim) => Some(claim.clone()),
                Due::Wake(_) | Due::Attend(_) | Due::Repair => None,
            })
            .collect::<Vec<_>>();
        // Asked only when no shard is held: a claim takes its own mutex before a shard's.
        drop(shards);
        let mut leases: Vec<_> = claims.iter().filter_map(|claim| claim.holder()).collect();
        leases.sort_by_key(|lease| Arc::as_ptr(lease).addr());
        leases.dedup_by(|a, b| Arc::ptr_eq(a, b));
        leases
    }

    fn shard(&self, slot: Slot) -> MutexGuard<'_, Shard> {
        lock(self.shards.part(slot.shard))
    }

    fn rearm(&self, slot: Slot, waker: &Waker) -> bool {
        match self.shard(slot).entries.get_mut(&slot) {
            Some(Due::Wake(old)) => {
                old.clone_from(waker);
                true
            }
            _ => false,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resolves at a moment, whatever runtime it is polled on.
///
/// A store whose leases age on tokio's clock is waited for on tokio's timers, where there are any;
/// everything else is woken by the engine.
pub(crate) enum Alarm<'a> {
    Engine { schedule: &'a Schedule, clock: Clock, at: Moment, slot: Option<Slot> },
    Tokio(Pin<Box<tokio::time::Sleep>>),
    Never,
}

impl<'a> Alarm<'a> {
    pub(crate) fn at(schedule: &'a Schedule, clock: Clock, at: Moment) -> Self {
        if at == Moment::NEVER {
            return Self::Never;
        }
        match clock.instant(at) {
            Some(instant) if tokio::runtime::Handle::try_current().is_ok() => {
                Self::Tokio(Box::pin(tokio::time::sleep_until(instant)))
            }
            _ => Self::Engine { schedule, clock, at, slot: None },
        }
    }
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Never => Poll::Pending,
            Self::Tokio(sleep) => sleep.as_mut().poll(cx),
            Self::Engine { schedule, clock, at, slot } => {
                // An entry that is still there was not due yet when the engine last looked, which
                // saves asking the clock at every poll.
                if slot.is_some_and(|slot| schedule.rearm(slot, cx.waker())) {
                    return Poll::Pending;
                }
                if slot.take().is_some() && clock.now() >= *at {
                    return Poll::Ready(());
                }
                *slot = Some(schedule.insert(*at, Due::Wake(cx.waker().clone())));
                Poll::Pending
            }
        }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Self::Engine { schedule, slot: Some(slot), .. } = self {
            schedule.remove(*slot);
        }
    }
}
