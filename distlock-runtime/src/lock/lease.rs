//! A lease: the time for which the store has promised a lock to one owner.
//!
//! `Held → Released | Lost`, both final. The deadline is the engine's own: counted from before the
//! command was sent, less drift, so that it passes here before it passes at the store.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::engine::Engine;
use crate::engine::schedule::{Alarm, Due, Schedule, Slot};
use crate::error::{LockError, LockName};
use crate::observe;
use crate::race::until;
use crate::store::{Claim, padded};

/// What a lease is worth here: its time to live less what two clocks may drift apart in it.
pub(crate) fn deadline(sent: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2).min(ttl / 4);
    sent.after(ttl - drift)
}

/// How a lease ended that its holder did not give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Loss {
    /// The deadline passed without a confirmed renewal.
    Expired = 2,
    /// The store says that the lock is not ours.
    Taken = 3,
    /// The manager was closed.
    Closed = 4,
    /// It was held for as long as it may be.
    MaxHold = 5,
    /// An operator took it away.
    Forced = 6,
    /// Whoever asked for it, and for others that were not free, was not polled to the end.
    Abandoned = 7,
}

impl Loss {
    fn reason(self) -> &'static str {
        match self {
            Self::Expired => "its lease ran out before it could be renewed",
            Self::Taken => "the store has it free or with another owner",
            Self::Closed => "the lock manager was closed",
            Self::MaxHold => "it was held for its `max_hold`",
            Self::Forced => "it was taken away by force_release",
            Self::Abandoned => "the call that took it was not polled until the others were free",
        }
    }

    fn from_state(state: u8) -> Option<Self> {
        use Loss::{Abandoned, Closed, Expired, Forced, MaxHold, Taken};
        [Expired, Taken, Closed, MaxHold, Forced, Abandoned]
            .into_iter()
            .find(|loss| *loss as u8 == state)
    }
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;

/// A lock that was granted.
pub(crate) struct Lease {
    pub(crate) claim: Arc<Claim>,
    pub(crate) fencing_token: u64,
    schedule: Arc<Schedule>,
    clock: Clock,
    /// The engine renews it and watches its deadline.
    tended: bool,
    deadline: AtomicU64,
    /// `max_hold`: no renewal moves the deadline past this.
    last: Moment,
    /// `min_hold`: it is not freed before this.
    free_from: Option<Moment>,
    state: AtomicU8,
    ended: Notify,
    /// Where it stands in the engine's schedule; `None` once it ended.
    slot: Mutex<Option<Slot>>,
    /// Whoever asked for it has it: before that nothing was done under it.
    handed_out: AtomicBool,
    /// If it was not handed out by then, it never will be.
    wanted_until: Moment,
    /// A body runs under it.
    body: AtomicBool,
    /// Its holder has let go of it, body and all.
    gone: AtomicBool,
}

impl Lease {
    /// A lock that was granted to a command sent at `sent`, put into the engine's schedule.
    pub(crate) fn start(
        engine: &Engine,
        claim: &Arc<Claim>,
        fencing_token: u64,
        sent: Moment,
        wanted_until: Moment,
    ) -> Arc<Self> {
        let tended = engine.store.is_remote();
        let term = claim.term;
        let last = term.max_hold.map_or(Moment::NEVER, |max_hold| sent.after(max_hold));
        let endless = term.renewed && !tended;
        let end = if endless { Moment::NEVER } else { deadline(sent, term.lease()) };
        let lease = Arc::new(Self {
            claim: claim.clone(),
            fencing_token,
            schedule: engine.schedule.clone(),
            clock: engine.clock(),
            tended,
            deadline: AtomicU64::new(end.min(last).as_nanos()),
            last,
            free_from: term.min_hold.map(|min_hold| sent.after(min_hold)),
            state: AtomicU8::new(HELD),
            ended: Notify::new(),
            slot: Mutex::new(None),
            handed_out: AtomicBool::new(false),
            wanted_until,
            body: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        lease.reschedule(if tended { lease.next_renewal(sent) } else { Moment::NEVER });
        lease
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.claim.lock
    }

    /// Whether this is the lock stored under that name by the manager with that schedule.
    pub(crate) fn is_lock(&self, lock: &str, schedule: &Arc<Schedule>) -> bool {
        self.claim.lock.stored() == lock && Arc::ptr_eq(&self.schedule, schedule)
    }

    /// Whoever asked for it has it now, with all the others he asked for.
    pub(crate) fn hand_out(&self) {
        self.handed_out.store(true, Ordering::Release);
    }

    /// It was taken together with others, whose time is over, and nobody polls for them any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.handed_out.load(Ordering::Acquire) && self.clock.now() >= self.wanted_until
    }

    /// For how long the store is to keep the lock after it was let go.
    pub(crate) fn keep(&self) -> Option<Duration> {
        if !self.handed_out.load(Ordering::Acquire) {
            return None;
        }
        let left = self.free_from?.since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }

    /// The `ttl` to ask for in a renewal.
    pub(crate) fn renewal_ttl(&self) -> Duration {
        self.capped(self.claim.term.ttl)
    }

    /// A `ttl` from now, not past `max_hold`.
    pub(crate) fn capped(&self, ttl: Duration) -> Duration {
        padded(self.last.since(self.clock.now())).min(ttl)
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Still ours at this very moment.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.clock.now() < self.deadline()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.state.load(Ordering::Acquire) != HELD {
            return Duration::ZERO;
        }
        match self.deadline() {
            // In memory a renewed lease has no end, which is to say its whole ttl at any time.
            Moment::NEVER => self.claim.term.ttl,
            deadline => deadline.since(self.clock.now()),
        }
    }

    /// When to renew next: a third of the time to live after the last renewal, on a grid, so that
    /// leases taken one after the other are renewed together in one pipeline.
    pub(crate) fn next_renewal(&self, renewed: Moment) -> Moment {
        if !self.claim.term.renewed || self.deadline() == self.last {
            return self.deadline();
        }
        let period = self.claim.term.ttl / 3;
        let grid = u64::try_from((period / 8).as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        let due = renewed.after(period).as_nanos();
        Moment::from_nanos(due - due % grid).min(self.deadline())
    }

    /// When to try a failed renewal again, inside what is left of the lease.
    pub(crate) fn next_retry(&self) -> Moment {
        let pause =
            (self.claim.term.ttl / 20).clamp(Duration::from_millis(5), Duration::from_secs(1));
        self.clock.now().after(pause).min(self.deadline())
    }

    /// Has the engine look at this lease at `at`, unless it has ended.
    pub(crate) fn reschedule(self: &Arc<Self>, at: Moment) {
        let handed_out = self.handed_out.load(Ordering::Acquire);
        let at = if handed_out { at } else { at.min(self.wanted_until) };
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the slot's mutex: an end that comes now finds the new slot, or is seen here.
        if self.state.load(Ordering::Acquire) != HELD {
            return;
        }
        if let Some(old) = slot.replace(self.schedule.insert(at, Due::Tend(self.clone()))) {
            self.schedule.remove(old);
        }
    }

    /// A renewal that was sent at `sent` was confirmed. Never shortens; too late changes nothing.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration) {
        let confirmed = deadline(sent, ttl).min(self.last);
        self.deadline.fetch_max(confirmed.as_nanos(), Ordering::AcqRel);
    }

    /// The lease is no longer ours. Final; the first reason stands.
    pub(crate) fn lose(&self, loss: Loss) -> bool {
        let capped = loss == Loss::Expired && self.deadline() == self.last;
        let loss = if capped { Loss::MaxHold } else { loss };
        let lost = self.end(loss as u8);
        if lost {
            observe::lost(self.name(), self.fencing_token, loss.reason());
        }
        lost
    }

    /// Its holder is done with it: it is not renewed any more. False if it was lost before.
    pub(crate) fn finish(&self) -> bool {
        // A deadline that passed unseen is a loss too: the engine may be a moment behind.
        if self.state.load(Ordering::Acquire) == HELD && self.clock.now() >= self.deadline() {
            self.lose(Loss::Expired);
        }
        let was_held = self.end(RELEASED);
        self.gone.store(true, Ordering::Release);
        self.ended.notify_waiters();
        was_held
    }

    /// A body is about to run under it.
    pub(crate) fn begin_body(&self) {
        self.body.store(true, Ordering::Release);
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body.load(Ordering::Acquire)
    }

    /// Resolves when the holder has let go, after its body was dropped.
    pub(crate) async fn let_go(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.gone.load(Ordering::Acquire) {
                return;
            }
            ended.await;
        }
    }

    fn end(&self, state: u8) -> bool {
        let ended =
            self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(slot) = slot {
            self.schedule.remove(slot);
        }
        if ended {
            self.ended.notify_waiters();
        }
        ended
    }

    fn loss(&self) -> Option<Loss> {
        Loss::from_state(self.state.load(Ordering::Acquire))
    }

    /// Resolves when the lease is lost; never if it is released first.
    pub(crate) async fn lost(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Enabled before the state is read, or an end between the two would be missed.
            ended.as_mut().enable();
            if self.loss().is_some() {
                return;
            }
            // The engine watches what it tends. A lease on tokio's clock is watched from here.
            let watch = if self.tended { Moment::NEVER } else { self.deadline() };
            let alarm = Alarm::at(&self.schedule, self.clock, watch);
            if until(ended, alarm).await.is_none() && self.clock.now() >= self.deadline() {
                self.lose(Loss::Expired);
            }
        }
    }

    /// What the caller is told once the lease is lost.
    pub(crate) fn lost_error(&self) -> LockError {
        let loss = self.loss().unwrap_or(Loss::Expired);
        LockError::Lost { lock: Box::new(self.name().clone()), reason: loss.reason() }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("fencing_token", &self.fencing_token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_leaves_room_for_drift() {
        let sent = Moment::from_nanos(0);
        let ms = |n| Duration::from_millis(n);
        assert_eq!(deadline(sent, ms(1000)), sent.after(ms(988)));
        assert_eq!(deadline(sent, ms(10)), sent.after(Duration::from_micros(7900)));
        // Two milliseconds of drift would be all of a very short lease.
        assert_eq!(deadline(sent, ms(4)), sent.after(Duration::from_micros(2960)));
    }
}
