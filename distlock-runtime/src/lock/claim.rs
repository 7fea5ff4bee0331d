//! A claim: one owner token of this process, what its lease is worth, and when that is to be renewed.
//!
//! The lease of its present holder owns the claim, not the other way round.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::lease::Lease;
use super::serve::Due;
use super::table::lock;
use super::tenure::Tenure;
use crate::clock::Moment;
use crate::engine::timers::{Slot, Timers};
use crate::name::LockName;
use crate::store::owner::Owner;
use crate::store::{Renewal, Term};

/// While others of this process stand behind the holder, the lease is kept young enough to be
/// handed over as it is.
const WITH_LOCAL_WAITERS: Duration = Duration::from_millis(500);
/// One owner token of this process.
pub(crate) struct Claim {
    pub(crate) owner: Arc<Owner>,
    pub(super) tenure: Tenure,
    /// Others of this process wait for the same lock.
    local_waiters: AtomicBool,
    watch: Mutex<Watch>,
}

/// The engine's view of a lease.
#[derive(Default)]
struct Watch {
    slot: Option<Slot>,
    /// Its present holder's lease, which owns the claim.
    holder: Weak<Lease>,
    /// It has no holder until it was renewed for the next one, to this time to live.
    wanted: Option<Duration>,
    renewing: bool,
    /// A renewal failed: when to try again.
    retry_at: Option<Moment>,
    ended: bool,
}

impl Claim {
    pub(crate) fn new(lock: Arc<LockName>, token: String) -> Self {
        Self {
            owner: Arc::new(Owner::new(lock, token)),
            tenure: Tenure::default(),
            local_waiters: AtomicBool::new(false),
            watch: Mutex::default(),
        }
    }

    /// The store granted it in answer to a command sent at `sent`.
    pub(super) fn granted(&self, fence: u64, sent: Moment, deadline: Moment) {
        self.owner.set_granted();
        self.tenure.granted(fence, sent, deadline);
    }

    /// What to ask the store for in a renewal.
    pub(super) fn renewal(&self, ttl: Duration, draw: bool) -> Renewal {
        Renewal { owner: self.owner.clone(), ttl, draw, fence: self.tenure.fence() }
    }

    pub(super) fn deadline(&self) -> Moment {
        self.tenure.deadline()
    }

    /// Whether the next renewal is to draw a counter value. Every other one does where that fails: the
    /// counter may be what is wrong, and a lease that is held does not depend on it.
    pub(crate) fn draws(&self) -> bool {
        self.tenure.needs_fence() && !(self.tenure.draw_failed() && self.holder().is_some())
    }

    /// Others of this process have come to wait behind the holder, or none is left.
    pub(crate) fn set_local_waiters(&self, any: bool) {
        self.local_waiters.store(any, Ordering::Release);
    }

    pub(crate) fn has_local_waiters(&self) -> bool {
        self.local_waiters.load(Ordering::Acquire)
    }

    /// How old the lease may become before it is renewed.
    fn period(&self, term: &Term) -> Duration {
        let third = term.ttl / 3;
        if self.has_local_waiters() {
            third.min(term.ttl / 10).clamp(Duration::from_millis(5), WITH_LOCAL_WAITERS)
        } else {
            third
        }
    }

    /// When to renew next: some time after the last renewal, on a grid, so that leases taken one
    /// after the other are renewed together in one pipeline.
    pub(crate) fn next_renewal(&self, term: &Term) -> Moment {
        let watch = self.watch();
        if watch.renewing {
            return Moment::NEVER;
        }
        if let Some(retry_at) = watch.retry_at {
            return retry_at;
        }
        let period = self.period(term);
        let grid = u64::try_from((period / 8).as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        let due = self.tenure.confirmed().after(period).as_nanos();
        Moment::from_nanos(due - due % grid)
    }

    /// The lease has a holder now.
    pub(crate) fn held_by(self: &Arc<Self>, lease: &Arc<Lease>, timers: &Timers<Due>) {
        let at = lease.due_at();
        let mut watch = self.watch();
        watch.holder = Arc::downgrade(lease);
        watch.wanted = None;
        if watch.slot.is_none_or(|slot| slot.at() > at) {
            self.insert(&mut watch, at, timers);
        }
    }

    /// The lease has no holder until it was renewed to `ttl`.
    pub(crate) fn wanted_for(self: &Arc<Self>, ttl: Duration, timers: &Timers<Due>) {
        let mut watch = self.watch();
        watch.holder = Weak::new();
        watch.wanted = Some(ttl);
        self.insert(&mut watch, Moment::from_nanos(0), timers);
    }

    pub(crate) fn holder(&self) -> Option<Arc<Lease>> {
        self.watch().holder.upgrade()
    }

    /// What the lease is to be renewed to before its next holder can have it.
    pub(crate) fn wanted(&self) -> Option<Duration> {
        self.watch().wanted
    }

    /// Has the engine look at the lease at `at`, unless it has ended.
    pub(crate) fn reschedule(self: &Arc<Self>, at: Moment, timers: &Timers<Due>) {
        self.insert(&mut self.watch(), at, timers);
    }

    /// Has the engine look at the lease not later than `at`, unless it has ended.
    pub(crate) fn hasten(self: &Arc<Self>, at: Moment, timers: &Timers<Due>) {
        let mut watch = self.watch();
        if !watch.renewing && watch.slot.is_some_and(|slot| slot.at() > at) {
            self.insert(&mut watch, at, timers);
        }
    }

    fn insert(self: &Arc<Self>, watch: &mut Watch, at: Moment, timers: &Timers<Due>) {
        // In memory nothing is due: a lease is watched by those who wait for its end.
        if watch.ended || at == Moment::NEVER {
            return;
        }
        if let Some(old) = watch.slot.replace(timers.insert(at, Due::Renew(self.clone()))) {
            timers.remove(old);
        }
    }

    /// A renewal is about to be sent; false if one is under way.
    pub(crate) fn begin_renewal(&self) -> bool {
        let mut watch = self.watch();
        !std::mem::replace(&mut watch.renewing, true)
    }

    /// The renewal was answered, or failed and is to be tried again.
    pub(crate) fn end_renewal(&self, retry_at: Option<Moment>) {
        let mut watch = self.watch();
        watch.renewing = false;
        watch.retry_at = retry_at;
    }

    /// It has no holder any more, and will have none: it is not renewed.
    pub(crate) fn stop_watching(&self, timers: &Timers<Due>) {
        let slot = {
            let mut watch = self.watch();
            watch.ended = true;
            watch.holder = Weak::new();
            watch.slot.take()
        };
        if let Some(slot) = slot {
            timers.remove(slot);
        }
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        lock(&self.watch)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("lock", &self.owner.lock).finish_non_exhaustive()
    }
}
