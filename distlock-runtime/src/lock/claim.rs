//! A claim: one owner token, from before its first command until nothing of it can run any more.
//!
//! While it owns the lock it is what successive holders of this process share: the store knows one
//! lease, which they hand on, each with a fencing token and a deadline of its own.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use super::lease::Lease;
use super::serve::Due;
use super::table::lock;
use crate::clock::Moment;
use crate::engine::timers::{Slot, Timers};
use crate::name::LockName;
use crate::store::Term;

/// Public fencing tokens leave room under each counter value for holders of one process that hand
/// a lease on without asking the store.
pub(crate) const TOKENS_PER_FENCE: u64 = 1024;
/// While others of this process stand behind the holder, the lease is kept young enough to be
/// handed over as it is.
const WITH_LOCAL_WAITERS: Duration = Duration::from_millis(500);
/// A lease that was not confirmed for so long is renewed before it is handed over.
const STALE: Duration = Duration::from_secs(1);

/// Bits for how many commands are unanswered, below those for the connection.
const COUNT: u32 = 16;

/// What a lease is worth here: its time to live less what two clocks may drift apart in it.
pub(crate) fn deadline(sent: Moment, ttl: Duration) -> Moment {
    let drift = ttl / 100 + Duration::from_millis(2).min(ttl / 4);
    sent.after(ttl - drift)
}

/// One owner token.
pub(crate) struct Claim {
    pub(crate) lock: Arc<LockName>,
    /// Unique, used once.
    pub(crate) token: String,
    /// When the first command that could create the lock was sent.
    first_sent: AtomicU64,
    /// The latest moment until which the commands that were sent may have the lock stored.
    stored_until: AtomicU64,
    /// The connection on which acquires were sent and not answered, and how many, in one number; 0 if
    /// there are none. A caller and the engine may both have sent one.
    unanswered: AtomicU64,
    /// The last connection that died with an acquire unanswered; 0 if none did.
    died_with: AtomicU64,
    /// A command of it may have left something in the store.
    traced: AtomicBool,
    /// Its release was begun: nothing that could create the lock is sent any more.
    retired: AtomicBool,
    /// It was released with the wish to keep the lock until then; 0 if not.
    kept_until: AtomicU64,
    /// It was released without its last holder's knowledge as well.
    undone: AtomicBool,

    // From here on: what it is worth once it is granted.
    fence: AtomicU64,
    /// The first counter value it was granted with; 0 before.
    ticket: AtomicU64,
    /// The last fencing token that was given out under it.
    issued: AtomicU64,
    deadline: AtomicU64,
    /// When the last command was sent to which the store said that it owns the lock.
    confirmed: AtomicU64,
    /// The last renewal has failed, and was to draw a counter value.
    draw_failed: AtomicBool,
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

/// Whether a lease can be handed to the next holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    AsItIs,
    /// Too little is left of it, or it was not heard of for too long.
    AfterRenewal,
    /// More is left than was asked for, and a lease in use is never shortened.
    TooLong,
}

/// How much of the process's name is in a mark.
const MARK: usize = 8;

impl Claim {
    /// Short words that no other claim has: the end of its token.
    pub(crate) fn mark(&self) -> &str {
        let process = self.token.find('.').unwrap_or(0);
        self.token.get(process.saturating_sub(MARK)..).unwrap_or(&self.token)
    }

    pub(crate) fn new(lock: Arc<LockName>, token: String) -> Self {
        Self {
            lock,
            token,
            first_sent: AtomicU64::new(Moment::NEVER.as_nanos()),
            stored_until: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            died_with: AtomicU64::new(0),
            traced: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            kept_until: AtomicU64::new(0),
            undone: AtomicBool::new(false),
            fence: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            issued: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            draw_failed: AtomicBool::new(false),
            local_waiters: AtomicBool::new(false),
            watch: Mutex::default(),
        }
    }

    /// A token of which only the store knows more.
    pub(crate) fn stray(lock: Arc<LockName>, token: String) -> Self {
        let (first_sent, traced) = (AtomicU64::new(0), AtomicBool::new(true));
        Self { first_sent, traced, ..Self::new(lock, token) }
    }

    /// To be called before the bytes of an acquire for `ttl` go out on connection number
    /// `connection`.
    pub(crate) fn sending(&self, now: Moment, ttl: Duration, connection: u64) {
        self.first_sent.fetch_min(now.as_nanos(), Ordering::AcqRel);
        self.stored_until(now.after(ttl));
        let one_more = |unanswered| match unanswered >> COUNT {
            of if of == connection => Some(unanswered + 1),
            _ => Some(connection << COUNT | 1),
        };
        let before = self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        let before = before.unwrap_or_default() >> COUNT;
        // Connections are numbered as they are made: another one's answer is not coming any more.
        if before != 0 && before != connection {
            self.died_with.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// To be called before the bytes of a command go out that may keep the lock until `end`.
    pub(crate) fn stored_until(&self, end: Moment) {
        self.stored_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// Not later than the grant, if there was one: read before the first acquire was sent.
    pub(crate) fn first_sent(&self) -> Moment {
        Moment::from_nanos(self.first_sent.load(Ordering::Acquire))
    }

    /// The store has answered an acquire that was sent on connection `connection`, whatever it said.
    pub(crate) fn answered(&self, connection: u64) {
        let one_less = |unanswered| match unanswered >> COUNT {
            of if of == connection && unanswered & ((1 << COUNT) - 1) > 1 => Some(unanswered - 1),
            of if of == connection => Some(0),
            _ => None,
        };
        let _ = self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// The store has taken the lock for it, or may have put it into the queue. To be called by stores,
    /// also if nobody hears the answer.
    pub(crate) fn leaves_a_trace(&self) {
        self.traced.store(true, Ordering::Release);
    }

    /// Something of it may be in the store, or come to be there. Not if every acquire was answered
    /// with a no.
    pub(crate) fn may_be_stored(&self) -> bool {
        self.traced.load(Ordering::Acquire) || self.in_doubt()
    }

    /// The store has said that it owned the lock.
    pub(crate) fn was_granted(&self) -> bool {
        self.ticket() != 0
    }

    /// An acquire was sent and no answer has come.
    pub(crate) fn in_doubt(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) != 0 || self.died_with.load(Ordering::Acquire) != 0
    }

    /// Whether what was sent on connection `number` comes behind every acquire of this claim that
    /// may still run: none was sent elsewhere, or only on connections below `buried_below`.
    pub(crate) fn is_behind(&self, number: u64, buried_below: u64) -> bool {
        let unanswered = self.unanswered.load(Ordering::Acquire) >> COUNT;
        let died_with = self.died_with.load(Ordering::Acquire);
        (unanswered == 0 || unanswered == number || unanswered < buried_below)
            && (died_with == 0 || died_with == number || died_with < buried_below)
    }

    /// Nothing was ever sent for this claim: there is nothing to free.
    pub(crate) fn is_unsent(&self) -> bool {
        self.first_sent() == Moment::NEVER
    }

    /// From here on the lock has expired by itself, whatever became of the commands.
    pub(crate) fn expired_by(&self) -> Moment {
        Moment::from_nanos(self.stored_until.load(Ordering::Acquire))
    }

    /// Its release is about to be sent. Final: the token is never given to anybody again.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Its last holder is done with it, and the lock is not to be free before `end`.
    pub(crate) fn keep_until(&self, end: Moment) {
        self.kept_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// For how long from `now` it is to be kept, if at all.
    pub(super) fn kept(&self, now: Moment) -> Option<Duration> {
        let left = Moment::from_nanos(self.kept_until.load(Ordering::Acquire)).since(now);
        (!left.is_zero()).then_some(left)
    }

    /// To be called before a release that its last holder does not know of.
    pub(super) fn undo(&self) {
        self.undone.store(true, Ordering::Release);
    }

    pub(super) fn was_undone(&self) -> bool {
        self.undone.load(Ordering::Acquire)
    }

    /// Stores look at this right before they send an acquire.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// The store granted it in answer to a command sent at `sent`.
    pub(crate) fn granted(&self, fence: u64, sent: Moment, deadline: Moment) {
        let _ = self.ticket.compare_exchange(0, fence, Ordering::AcqRel, Ordering::Relaxed);
        self.fence.fetch_max(fence, Ordering::AcqRel);
        self.deadline.fetch_max(deadline.as_nanos(), Ordering::AcqRel);
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// The store confirmed a renewal that was sent at `sent`, and may have drawn a counter value.
    /// Never shortens; too late changes nothing.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Duration, fence: Option<u64>) {
        self.deadline.fetch_max(deadline(sent, ttl).as_nanos(), Ordering::AcqRel);
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.draw_failed.store(false, Ordering::Release);
        if let Some(fence) = fence {
            self.fence.fetch_max(fence, Ordering::AcqRel);
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// A fencing token for the next holder; `None` if the counter value has no more. To be called
    /// by whoever has the lock's line, one at a time.
    pub(crate) fn issue(&self) -> Option<u64> {
        let fence = self.fence.load(Ordering::Acquire);
        let issued = self.issued.load(Ordering::Acquire);
        let next = (fence * TOKENS_PER_FENCE).max(issued + 1);
        if next >= (fence + 1) * TOKENS_PER_FENCE {
            return None;
        }
        self.issued.store(next, Ordering::Release);
        Some(next)
    }

    /// No later holder gets a fencing token as low as this one.
    pub(crate) fn outdo(&self, fencing_token: u64) {
        self.issued.fetch_max(fencing_token, Ordering::AcqRel);
    }

    /// The counter value it was granted with, as a ticket for those who waited with it.
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Acquire)
    }

    /// The counter value that its fencing tokens are counted under.
    pub(crate) fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    /// Half of the fencing tokens under its counter value are used: time to draw another.
    pub(crate) fn needs_fence(&self) -> bool {
        let fence = self.fence.load(Ordering::Acquire);
        self.issued.load(Ordering::Acquire) >= fence * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2
    }

    /// Whether the next renewal is to draw a counter value. Every other one does where that fails: the
    /// counter may be what is wrong, and a lease that is held does not depend on it.
    pub(crate) fn draws(&self) -> bool {
        let failed = self.draw_failed.load(Ordering::Acquire);
        self.needs_fence() && !(failed && self.holder().is_some())
    }

    /// A renewal has failed, which was to `draw` a counter value or not.
    pub(crate) fn not_renewed(&self, draw: bool) {
        self.draw_failed.store(draw, Ordering::Release);
    }

    /// Whether the lease can go to a holder on these terms at `now`.
    pub(crate) fn fit(&self, term: &Term, now: Moment) -> Fit {
        let left = self.deadline().since(now);
        let wanted = term.stored_for();
        let enough = if term.renewed { wanted.mul_f64(0.9) } else { wanted.mul_f64(0.99) };
        let confirmed = Moment::from_nanos(self.confirmed.load(Ordering::Acquire));
        if left > wanted.mul_f64(1.1).max(wanted.saturating_add(Duration::from_millis(100))) {
            Fit::TooLong
        } else if left < enough || now.since(confirmed) > STALE {
            Fit::AfterRenewal
        } else {
            Fit::AsItIs
        }
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
        let confirmed = Moment::from_nanos(self.confirmed.load(Ordering::Acquire));
        let due = confirmed.after(period).as_nanos();
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
        f.debug_struct("Claim").field("lock", &self.lock).finish_non_exhaustive()
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
