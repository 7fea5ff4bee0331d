//! A lease: the time for which the store has promised a lock, in the hand of one holder.
//!
//! `Held → Released | Lost`, both final. The deadline is our own: counted from before the command
//! was sent, less drift, so that it passes here before it passes at the store.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::claim::Claim;
use super::table::LockTable;
use super::tenure::deadline;
use super::waiter::{Waiter, Wish};
use crate::clock::Moment;
use crate::engine::alarm::Alarm;
use crate::error::LockError;
use crate::name::{LockName, StoredName};
use crate::observe;
use crate::race::until;
use crate::shield::shield;
use crate::store::{Term, padded};
use crate::witness::Seen;

/// A future that was granted a lock has to take it in a poll of its own within this time.
const TAKE: Duration = Duration::from_secs(1);

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

/// A lock in the hand of one holder.
pub(crate) struct Lease {
    pub(crate) claim: Arc<Claim>,
    pub(crate) fencing_token: u64,
    pub(crate) term: Term,
    table: Arc<LockTable>,
    /// The end of its `max_hold`.
    max: AtomicU64,
    /// No renewal moves the deadline past this: `max`, or a lease that is not renewed.
    last: AtomicU64,
    /// `min_hold`: it is not freed before this.
    pub(super) free_from: Option<Moment>,
    state: AtomicU8,
    ended: Notify,
    /// Whoever waited for it has taken it in a poll of its own.
    taken: AtomicBool,
    take_by: Moment,
    /// Whoever asked for it has it: before that nothing was done under it.
    handed_out: AtomicBool,
    /// One of several: not in use before its holder has the others.
    several: bool,
    /// If it was not handed out by then, it never will be.
    wanted_until: Moment,
    /// A body runs under it.
    body: AtomicBool,
    /// Its holder has given it back, body and all.
    returned: AtomicBool,
    /// Whose it is until it was taken.
    pub(super) waiter: Weak<Waiter>,
}

impl Lease {
    /// The next holder's part of a claim that the store has granted, held from `start` on; with
    /// `waiter` it is that one's to take.
    pub(crate) fn start(
        table: &Arc<LockTable>,
        claim: &Arc<Claim>,
        fencing_token: u64,
        wish: &Wish,
        start: Moment,
        waiter: Weak<Waiter>,
    ) -> Arc<Self> {
        let term = wish.term;
        let waits = waiter.strong_count() > 0;
        let lease = Arc::new(Self {
            claim: claim.clone(),
            fencing_token,
            term,
            table: table.clone(),
            max: AtomicU64::new(Moment::NEVER.as_nanos()),
            last: AtomicU64::new(Moment::NEVER.as_nanos()),
            free_from: term.min_hold.map(|min_hold| start.after(min_hold)),
            state: AtomicU8::new(HELD),
            ended: Notify::new(),
            taken: AtomicBool::new(!waits),
            take_by: if waits { start.after(TAKE) } else { Moment::NEVER },
            handed_out: AtomicBool::new(false),
            several: wish.several,
            wanted_until: wish.wanted_until,
            body: AtomicBool::new(false),
            returned: AtomicBool::new(false),
            waiter,
        });
        // One of several is kept until its holder has the others, whatever limits it afterwards.
        if !lease.several {
            lease.limit(start);
        }
        claim.held_by(&lease, table.timers());
        lease
    }

    /// From `start` on it is held for no longer than its holder asked for. One that was handed on
    /// may have more left than that.
    fn limit(&self, start: Moment) {
        let term = self.term;
        let max = term.max_hold.map_or(Moment::NEVER, |max_hold| start.after(max_hold));
        let fixed = || self.claim.deadline().min(start.after(term.ttl));
        let last = if term.renewed { max } else { max.min(fixed()) };
        self.max.store(max.as_nanos(), Ordering::Release);
        self.last.store(last.as_nanos(), Ordering::Release);
    }

    #[cfg(feature = "test-util")]
    pub(super) fn table(&self) -> &LockTable {
        &self.table
    }

    fn max(&self) -> Moment {
        Moment::from_nanos(self.max.load(Ordering::Acquire))
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.claim.owner.lock
    }

    /// Whether this is the lock stored under that name by the manager with that table.
    pub(crate) fn is_lock(&self, lock: &StoredName, table: &Arc<LockTable>) -> bool {
        self.claim.owner.lock.stored() == lock && Arc::ptr_eq(&self.table, table)
    }

    /// Whoever waited for it has it in hand.
    pub(super) fn take(&self) {
        self.taken.store(true, Ordering::Release);
    }

    /// It was granted to a future that nobody polls: it must not be held for that.
    pub(crate) fn is_grant_expired(&self) -> bool {
        !self.taken.load(Ordering::Acquire) && self.now() >= self.take_by
    }

    /// Whoever asked for it has it now, with all the others he asked for.
    pub(crate) fn hand_out(&self) {
        if self.several {
            self.limit(self.now());
        }
        self.handed_out.store(true, Ordering::Release);
        self.is_seen(Seen::Held);
        if self.several {
            self.table.store.begin_term(&self.claim.owner, self.term);
            // It may end earlier than the engine looks at it next.
            self.claim.hasten(self.due_at(), self.table.timers());
        }
    }

    /// It was taken together with others, whose time is over, and nobody polls for them any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        !self.handed_out.load(Ordering::Acquire) && self.now() >= self.wanted_until
    }

    /// For how long the store is to keep the lock after it was let go.
    pub(crate) fn keep(&self) -> Option<Duration> {
        if !self.handed_out.load(Ordering::Acquire) {
            return None;
        }
        let left = self.free_from?.since(self.now());
        (!left.is_zero()).then_some(left)
    }

    /// The `ttl` to ask for in a renewal.
    pub(crate) fn renewal_ttl(&self) -> Duration {
        self.capped(self.term.ttl)
    }

    /// A `ttl` from now, not past `max_hold`.
    pub(crate) fn capped(&self, ttl: Duration) -> Duration {
        padded(self.max().since(self.now())).min(ttl)
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.claim.deadline().min(self.last())
    }

    fn now(&self) -> Moment {
        self.table.clock().now()
    }

    /// Still ours at this very moment.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD && self.now() < self.deadline()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.state.load(Ordering::Acquire) != HELD {
            return Duration::ZERO;
        }
        match self.deadline() {
            // In memory a renewed lease has no end, which is to say its whole ttl at any time.
            Moment::NEVER => self.term.ttl,
            deadline => deadline.since(self.now()),
        }
    }

    /// The store has extended it on its holder's wish, in answer to a command sent at `sent`.
    pub(crate) fn extended(&self, sent: Moment, ttl: Duration) {
        self.claim.tenure.renewed(sent, ttl, None);
        let end = deadline(sent, ttl).min(self.max());
        self.last.fetch_max(end.as_nanos(), Ordering::AcqRel);
        self.claim.reschedule(self.due_at(), self.table.timers());
    }

    fn last(&self) -> Moment {
        Moment::from_nanos(self.last.load(Ordering::Acquire))
    }

    /// Whether a renewal would move its deadline.
    pub(crate) fn is_renewable(&self) -> bool {
        let renewed = self.term.renewed || !self.handed_out.load(Ordering::Acquire);
        renewed && self.claim.deadline() < self.last()
    }

    /// When the engine is to look at it next.
    pub(crate) fn due_at(&self) -> Moment {
        if !self.table.is_remote() {
            return Moment::NEVER;
        }
        let renewal =
            if self.is_renewable() { self.claim.next_renewal(&self.term) } else { Moment::NEVER };
        self.ends_at().min(renewal)
    }

    /// When it ends if nothing is done: at its deadline, or when whoever it was granted to has not
    /// come for it.
    pub(super) fn ends_at(&self) -> Moment {
        let mut at = self.deadline();
        if !self.taken.load(Ordering::Acquire) {
            at = at.min(self.take_by);
        }
        if !self.handed_out.load(Ordering::Acquire) {
            at = at.min(self.wanted_until);
        }
        at
    }

    /// When to try a failed renewal again, inside what is left of the lease.
    pub(crate) fn next_retry(&self) -> Moment {
        let pause = (self.term.ttl / 20).clamp(Duration::from_millis(5), Duration::from_secs(1));
        self.now().after(pause).min(self.deadline())
    }

    /// The lease is no longer ours. Final; the first reason stands.
    pub(crate) fn lose(self: &Arc<Self>, loss: Loss) -> bool {
        let capped = loss == Loss::Expired && self.deadline() == self.max();
        let loss = if capped { Loss::MaxHold } else { loss };
        if !self.end(loss as u8) {
            return false;
        }
        self.is_seen(Seen::Lost);
        if matches!(loss, Loss::Expired | Loss::MaxHold) && self.table.is_remote() {
            self.table.lapsed.note(self);
        }
        // Those who wait behind it need not wait for its body to end.
        self.table.requeue_waiters(&self.claim);
        // Only now: whoever is woken or told may take his time, and until here the engine would come
        // back to a lease that has ended.
        self.tell_end();
        // Who never had it in hand asks again, or is told that it is busy.
        if self.handed_out.load(Ordering::Acquire) {
            observe::lost(self.name(), self.fencing_token, loss.reason());
        }
        true
    }

    /// Its holder is done with it: it is not renewed any more. False if it was lost before. To be
    /// followed by [`LockTable::end`].
    pub(crate) fn finish(self: &Arc<Self>) -> bool {
        self.finish_at(self.now())
    }

    /// The same for a caller that has just read the clock.
    pub(crate) fn finish_at(self: &Arc<Self>, now: Moment) -> bool {
        // The engine may be a moment behind.
        self.is_lost_at(now);
        let was_held = self.end(RELEASED);
        if was_held {
            self.is_seen(Seen::Released);
        }
        self.returned.store(true, Ordering::Release);
        was_held
    }

    /// Wakes those who wait for its end. To be called once everything is as it must be then.
    pub(super) fn tell_end(&self) {
        shield(|| self.ended.notify_waiters());
    }

    /// A body is about to run under it, unless it is lost: to be looked at behind this.
    pub(crate) fn begin_body(&self) {
        self.body.store(true, Ordering::Release);
        // Whoever ends the lease looks for a body behind that, and frees the lock if there is none:
        // one of the two sees the other.
        fence(Ordering::SeqCst);
    }

    /// A body runs under it, or will not begin: to be asked once it was lost.
    pub(crate) fn has_body(&self) -> bool {
        fence(Ordering::SeqCst);
        self.body.load(Ordering::Acquire)
    }

    /// Its holder has given it back.
    pub(super) fn is_returned(&self) -> bool {
        self.returned.load(Ordering::Acquire)
    }

    /// Resolves when the holder has given it back, after its body was dropped.
    pub(crate) async fn returned(&self) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.is_returned() {
                return;
            }
            ended.await;
        }
    }

    fn end(&self, state: u8) -> bool {
        self.state.compare_exchange(HELD, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn loss(&self) -> Option<Loss> {
        Loss::from_state(self.state.load(Ordering::Acquire))
    }

    /// A deadline that has passed is a loss, also while the engine has not seen it. True if it is
    /// lost, for whatever reason.
    pub(crate) fn is_lost(self: &Arc<Self>) -> bool {
        self.is_lost_at(self.now())
    }

    fn is_lost_at(self: &Arc<Self>, now: Moment) -> bool {
        if self.state.load(Ordering::Acquire) == HELD && now >= self.deadline() {
            self.lose(Loss::Expired);
        }
        self.loss().is_some()
    }

    /// Resolves when somebody notices that the lease is lost; never if it is released first.
    pub(crate) async fn lost(self: &Arc<Self>) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Enabled before the state is read, or an end between the two would be missed.
            ended.as_mut().enable();
            if self.loss().is_some() {
                return;
            }
            // The engine watches what it tends. A lease on tokio's clock is watched from here.
            let remote = self.table.is_remote();
            let watch = if remote { Moment::NEVER } else { self.deadline() };
            let alarm = Alarm::at(self.table.alarms(), self.table.clock(), watch);
            if until(ended, alarm).await.is_none() && self.now() >= self.deadline() {
                self.lose(Loss::Expired);
            }
        }
    }

    /// What the caller is told once the lease is lost; with it a body may have been `stopped`.
    pub(crate) fn lost_error(&self, stopped: bool) -> LockError {
        let loss = self.loss().unwrap_or(Loss::Expired);
        LockError::lost(self.name(), loss.reason(), stopped)
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
    use std::hint::spin_loop;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;
    use crate::manager::LockManager;

    /// Both come here at about the same time.
    fn meet(gate: &AtomicUsize, round: usize) {
        gate.fetch_add(1, Ordering::SeqCst);
        while gate.load(Ordering::SeqCst) < 2 * (round + 1) {
            spin_loop();
        }
    }

    /// A body that begins and whoever ends its lease: one of the two sees the other, or the lock would
    /// be freed under the body.
    #[test]
    fn r28_a_body_that_begins_and_the_end_of_its_lease_do_not_miss_each_other() {
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
                    lease.end(Loss::Closed as u8);
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
