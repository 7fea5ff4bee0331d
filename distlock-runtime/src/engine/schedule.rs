//! What is due when: timers of calls, and leases to tend.
//!
//! Callers' runtimes may be blocked, paused, or without a timer, so time is kept by the engine. A
//! caller that waits for an answer puts an [`Alarm`] here and takes it out again; in the common
//! case the engine never looks at it. It is only told when something is due earlier than it
//! already planned to wake.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::LockName;
use crate::lock::claim::Claim;
use crate::lock::lease::Lease;
use crate::runtime::Unable;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    at: Moment,
    id: u64,
    place: u32,
    shard: u8,
}

/// Entries in no order, with a bound for the earliest. Nearly every entry is taken out again long
/// before it is due, so that coming and going must be cheap, and looking for what is due may cost:
/// that happens about once in a command's timeout.
struct Shard {
    entries: Vec<Option<(Slot, Due)>>,
    vacant: Vec<u32>,
    issued: u64,
    /// Nothing is due before.
    earliest: Moment,
}

impl Default for Shard {
    fn default() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new(), issued: 0, earliest: Moment::NEVER }
    }
}

impl Shard {
    fn insert(&mut self, at: Moment, shard: u8, due: Due) -> Slot {
        self.issued += 1;
        self.earliest = self.earliest.min(at);
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("fewer timers than that fit into memory")
        });
        let slot = Slot { at, id: self.issued, place, shard };
        self.entries[place as usize] = Some((slot, due));
        slot
    }

    /// The entry of a slot, unless it was taken out.
    fn entry(&mut self, slot: Slot) -> Option<&mut Option<(Slot, Due)>> {
        let entry = self.entries.get_mut(slot.place as usize)?;
        entry.as_ref().is_some_and(|(own, _)| own.id == slot.id).then_some(entry)
    }

    fn remove(&mut self, slot: Slot) -> Option<Due> {
        let (_, due) = self.entry(slot)?.take()?;
        self.vacant.push(slot.place);
        Some(due)
    }

    /// Adds what is due at `now` to `due` and says when the next entry is.
    fn take_due(&mut self, now: Moment, due: &mut Vec<Due>) -> Moment {
        if self.earliest > now {
            return self.earliest;
        }
        let mut next = Moment::NEVER;
        self.earliest = Moment::NEVER;
        for entry in &mut self.entries {
            match entry {
                Some((slot, _)) if slot.at > now => next = next.min(slot.at),
                // Stays, and is found again if it is not rescheduled.
                Some((slot, Due::Tend(claim))) => {
                    self.earliest = self.earliest.min(slot.at);
                    due.push(Due::Tend(claim.clone()));
                }
                Some(_) => due.extend(entry.take().map(|(_, due)| due)),
                None => {}
            }
        }
        self.earliest = self.earliest.min(next);
        self.tidy();
        next
    }

    /// Gives back what a burst has left behind.
    fn tidy(&mut self) {
        let used = self.entries.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.entries.truncate(used);
        self.entries.shrink_to(2 * used);
        self.vacant.clear();
        let vacant = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_none());
        // Low places are used first, so that the end can be given back.
        self.vacant.extend(vacant.rev().map(|(place, _)| place as u32));
    }
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
            lock(shard).insert(at, number, due)
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
        // Dropped once the shard is free again: dropping a lease may come back here.
        let due = self.shard(slot).remove(slot);
        drop(due);
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
            next = next.min(lock(shard).take_due(now, &mut due));
        }
        self.planned.fetch_min(next.as_nanos(), Ordering::AcqRel);
        (due, next)
    }

    /// Every lease that is held, once.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        // All shards at once: a lease moves from one to another when it is rescheduled. It is in the
        // new place before it leaves the old one, so it may be seen twice, but is never missed.
        let shards: Vec<_> = self.shards.parts().map(lock).collect();
        let entries = shards.iter().flat_map(|shard| shard.entries.iter().flatten());
        let claims = entries
            .filter_map(|(_, due)| match due {
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
        match self.shard(slot).entry(slot) {
            Some(Some((_, Due::Wake(old)))) if old.will_wake(waker) => return true,
            Some(Some((_, Due::Wake(_)))) => {}
            _ => return false,
        }
        // Cloned, and the one before it dropped, while the shard is free: a waker may own its task,
        // and the task a lock.
        let mut new = waker.clone();
        match self.shard(slot).entry(slot) {
            Some(Some((_, Due::Wake(old)))) => {
                std::mem::swap(old, &mut new);
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
/// The engine wakes it. A store whose leases age on tokio's clock is waited for on tokio's timers as
/// well, where there are any: a clock that was paused is only moved on by those.
pub(crate) enum Alarm<'a> {
    Set { schedule: &'a Schedule, clock: Clock, at: Moment, slot: Option<Slot>, timer: Timer },
    Never,
}

/// A clock that stands while real time goes on is looked at again so much later.
const STANDING: Duration = Duration::from_millis(50);

impl<'a> Alarm<'a> {
    pub(crate) fn at(schedule: &'a Schedule, clock: Clock, at: Moment) -> Self {
        if at == Moment::NEVER {
            return Self::Never;
        }
        Self::Set { schedule, clock, at, slot: None, timer: Timer::default() }
    }
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self::Set { schedule, clock, at, slot, timer } = self.get_mut() else {
            return Poll::Pending;
        };
        if let Some(instant) = clock.instant(*at)
            && timer.poll(instant, cx).is_ready()
        {
            return Poll::Ready(());
        }
        // An entry that is still there was not due yet when the engine last looked, which saves asking
        // the clock at every poll.
        if slot.is_some_and(|slot| schedule.rearm(slot, cx.waker())) {
            return Poll::Pending;
        }
        let mut look_at = *at;
        if slot.take().is_some() {
            if clock.now() >= *at {
                return Poll::Ready(());
            }
            // Due at once for the engine, whose clock nobody pauses: it would have nothing else to do.
            look_at = look_at.max(clock.real_now().after(STANDING));
        }
        *slot = Some(schedule.insert(look_at, Due::Wake(cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Self::Set { schedule, slot: Some(slot), .. } = self {
            schedule.remove(*slot);
        }
    }
}

/// A timer of the caller's runtime, where there is one that may pause its clock.
#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    runtime: Option<Id>,
}

impl Timer {
    fn poll(&mut self, at: tokio::time::Instant, cx: &mut Context<'_>) -> Poll<()> {
        static UNABLE: Unable = Unable::new();
        let Ok(here) = Handle::try_current() else { return Poll::Pending };
        if self.runtime != Some(here.id()) {
            // The timers of the runtime that it was polled on before may not run any more.
            self.runtime = Some(here.id());
            // The clock of one with several threads cannot be paused.
            let may_pause = here.runtime_flavor() == RuntimeFlavor::CurrentThread;
            self.sleep = may_pause
                .then(|| UNABLE.attempt(|| Box::pin(tokio::time::sleep_until(at))))
                .flatten();
        }
        let Some(sleep) = &mut self.sleep else { return Poll::Pending };
        // A runtime that has ended makes timers, but polls none.
        let polled = UNABLE.attempt(|| sleep.as_mut().poll(cx));
        if polled.is_none() {
            self.sleep = None;
        }
        polled.unwrap_or(Poll::Pending)
    }
}
