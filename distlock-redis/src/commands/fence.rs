//! The counters that fencing tokens are drawn from (I6, R2, R5).
//!
//! Every acquisition increments a counter. That alone does not make tokens grow, because after a loss of data or a
//! failover the counter goes back. So the counter is raised to the server's time in µs, and above all values that this
//! process has seen. That happens on every connection before the first lock is acquired there, and again whenever the
//! last raise was a moment ago (`lua/raise.lua`). A value that was drawn grants nothing if it is not above all values
//! that had been seen before. Then the counter is raised, and [a renewal](crate::commands::renew) draws another value.
//!
//! A value that no valid counter can have reached is never adopted. This process would write it back after an operator
//! has fixed the counter, and a single wrong reply would spoil a good server.

use std::collections::HashMap;
use std::iter;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::collections::shrink;
use distlock_core::name::LockName;
use distlock_core::store::owner::TOKENS_PER_FENCE;
use distlock_core::store::{BackendKind, Fault};
use redis::{Cmd, Value};

use crate::connection::error::COUNTER;
use crate::connection::live::{ConnectionHandle, LiveConnection};
use crate::pubsub::prefixes::kept_until;
use crate::script::{Arg, Script};
use crate::slots::{SLOTS, Slot};

/// The highest counter value that Lua's numbers represent exactly. Together with the bits for holders below it, a
/// fencing token is still a positive 64-bit number. Microseconds reach it in 2255.
const LAST_FENCE: u64 = 1 << 53;
const _: () = assert!(LAST_FENCE.checked_mul(TOKENS_PER_FENCE).is_some());
/// How far a valid counter may be ahead of the server's time, in µs: a hundred years. It is ahead if a clock was set
/// back, even to the epoch. A value further ahead was written by something else.
const AHEAD: u64 = 100 * 366 * 24 * 3600 * 1_000_000;
/// How long a raise lasts. `INCR` alone does not reveal whether data went back while the connection stayed up, for
/// example behind a proxy that fails over silently. So the counter is raised again in the same write, unless that was a
/// moment ago. No failover is that quick.
const RAISE_AFTER: Duration = Duration::from_millis(100);
/// How many values a renewal draws at once. Holders that hand a lease on within a process use the tokens of one value
/// up within a millisecond.
pub(crate) const FENCES_PER_DRAW: u64 = 64;
const CLOCK: &str = "the server's clock is past the year 2255: set it to the time";

/// A counter, one for each prefix.
pub(crate) struct Fence {
    pub(crate) key: Arc<str>,
    /// The highest value that this process has received.
    seen: AtomicU64,
    /// The number of the connection on which the counter was raised last; 0 if on none. For the manager's own counter
    /// this is noted on each connection instead. With several connections, the counter of another prefix may be raised
    /// more often than needed, which costs a round trip.
    raised_on: AtomicU64,
    /// When the last command that raised the counter was sent.
    raised_at: AtomicU64,
}

impl Fence {
    fn new(key: Arc<str>) -> Self {
        let (seen, raised_on, raised_at) = Default::default();
        Self { key, seen, raised_on, raised_at }
    }

    /// Returns the highest value that this process has seen. It must be read before a value is requested.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Notes a value. Later values are new only if they are above it.
    pub(crate) fn has_seen(&self, value: u64) {
        self.seen.fetch_max(value, Ordering::AcqRel);
    }

    /// Whether other processes may have drawn values since the last raise that the server has forgotten.
    #[inline]
    pub(crate) fn is_stale(&self, now: Moment) -> bool {
        let raised_at = Moment::from_nanos(self.raised_at.load(Ordering::Acquire));
        now.since(raised_at) >= RAISE_AFTER
    }
}

/// The counter of one lock.
pub(crate) enum Counter<'a> {
    /// The manager's own counter.
    Own(&'a Fence),
    OfOtherPrefix(Arc<Fence>),
}

impl Counter<'_> {
    /// Whether a request has named the prefix of the lock, instead of using the manager's.
    #[inline]
    pub(crate) fn is_of_other_prefix(&self) -> bool {
        matches!(self, Self::OfOtherPrefix(_))
    }
}

impl Deref for Counter<'_> {
    type Target = Fence;

    fn deref(&self) -> &Fence {
        match self {
            Self::Own(fence) => fence,
            Self::OfOtherPrefix(fence) => fence,
        }
    }
}

/// The manager's own counters.
enum OwnFences {
    One(Fence),
    /// The counters of a cluster, one for each slot. One counter for all locks would have another slot than their keys,
    /// and one counter per lock would leave a key behind for each lock that ever existed.
    OfSlots {
        name: String,
        of: Box<[OnceLock<Box<Fence>>]>,
    },
}

/// The counters of one manager.
pub(crate) struct Fences {
    own: OwnFences,
    /// The counters of other prefixes that requests have named, by their keys.
    others: Mutex<OtherFences>,
    /// The highest valid value, by the server's time at the last raise of a counter.
    highest: AtomicU64,
    raise: Script,
}

impl Fences {
    pub(crate) fn new(key: String) -> Self {
        Self::with(OwnFences::One(Fence::new(key.into())))
    }

    /// Makes the counters of a cluster.
    pub(crate) fn of_slots(name: String) -> Self {
        let of = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self::with(OwnFences::OfSlots { name, of })
    }

    fn with(own: OwnFences) -> Self {
        Self {
            own,
            others: Mutex::default(),
            highest: AtomicU64::new(LAST_FENCE),
            raise: Script::raise(),
        }
    }

    /// Returns the counter of a lock.
    #[inline]
    pub(crate) fn of(&self, lock: &LockName) -> Counter<'_> {
        let key = match (lock.fence(), &self.own) {
            (None, OwnFences::One(fence)) => return Counter::Own(fence),
            (None, OwnFences::OfSlots { name, of }) => {
                let slot = Slot::of(lock.stored());
                let fence = || Box::new(Fence::new(key_of(name, slot)));
                return Counter::Own(of[slot.number()].get_or_init(fence));
            }
            (Some(key), OwnFences::One(_)) => key,
            (Some(name), OwnFences::OfSlots { .. }) => &key_of(name, Slot::of(lock.stored())),
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::OfOtherPrefix(others.of(key, Clock::Boottime.now()))
    }

    /// Whether the counter must be raised by a command of its own before a script draws from it. The scripts raise it
    /// to the server's time, but that time is not known yet on a new connection.
    pub(crate) fn needs_raise(&self, fence: &Fence, connection: &ConnectionHandle) -> bool {
        match &self.own {
            OwnFences::One(_) => !self.is_raised(fence, &connection.live),
            // A counter must not be created on a node before its slot arrives there: it may be migrated later.
            OwnFences::OfSlots { .. } => {
                !connection.asking && !connection.live.fence_raised.load(Ordering::Acquire)
            }
        }
    }

    /// Notes that a script that was sent then has drawn from the counter.
    pub(crate) fn drawn(&self, fence: &Fence, sent: Moment, live: &LiveConnection) {
        if let OwnFences::OfSlots { .. } = &self.own {
            fence.raised_on.store(live.number, Ordering::Release);
            fence.raised_at.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        }
    }

    /// Whether to try a lock with a script. The counter of a slot may be behind, and the two commands of the fast path
    /// do not check that.
    pub(crate) fn wants_script(&self, fence: &Fence, connection: &ConnectionHandle) -> bool {
        let of_slots = matches!(self.own, OwnFences::OfSlots { .. });
        of_slots && (connection.resent || !self.is_raised(fence, &connection.live))
    }

    /// Raises the counter above all values that this process has seen and to the server's time.
    ///
    /// A lock's keys are passed along so that a cluster node refuses them: otherwise a lock could be acquired there
    /// that can be freed but not renewed.
    pub(crate) async fn raise(
        &self,
        fence: &Fence,
        lock: Option<&LockName>,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        let known = fence.seen();
        let args = raise_args(known);
        let names = lock.filter(|_| matches!(self.own, OwnFences::One(_)));
        let names = names.map(|lock| [Arg::Text(lock.stored()), Arg::Queue(lock)]);
        let keys: Vec<_> =
            iter::once(Arg::Text(&fence.key)).chain(names.into_iter().flatten()).collect();
        let sent = Clock::Boottime.now();
        let answer = connection.run(&self.raise, &keys, &args, answer_by).await?;
        self.raised(fence, known, sent, &answer, &connection.live)
    }

    /// Returns the command that raises a counter, to be sent in one write with the command that draws from it. `known`
    /// is the highest value that was seen.
    pub(crate) fn raise_command(&self, fence: &Fence, known: u64) -> Cmd {
        self.raise.by_hash(&[Arg::Text(&fence.key)], &raise_args(known))
    }

    /// Reads the reply to a command that has raised the counter. It was sent at `sent`, when `known` was the highest
    /// value that this process knew.
    pub(crate) fn raised(
        &self,
        fence: &Fence,
        known: u64,
        sent: Moment,
        answer: &Value,
        live: &LiveConnection,
    ) -> Result<(), Fault> {
        let Value::Array(raised) = answer else { return Err(live.unexpected_answer()) };
        let [Value::Int(counter), Value::Int(now)] = raised[..] else {
            return Err(live.unexpected_answer());
        };
        let time = u64::try_from(now).map_err(|_| live.unexpected_answer())?;
        if time > LAST_FENCE {
            return Err(Fault::lasting(BackendKind::Other, CLOCK));
        }
        let highest = time.saturating_add(AHEAD).min(LAST_FENCE);
        let Some(counter) = u64::try_from(counter).ok().filter(|counter| *counter <= highest)
        else {
            return Err(counter_is_foreign());
        };
        live.server_clock.set(now);
        self.highest.store(highest, Ordering::Release);
        if known > highest {
            // Another server has reported that value, or this one with another clock. The script has ignored it.
            let orders = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = fence.seen.compare_exchange(known, counter, orders.0, orders.1);
        }
        // Other processes may have drawn values up to here. Values below, drawn after a loss of data, are not new.
        fence.seen.fetch_max(counter, Ordering::AcqRel);
        fence.raised_at.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.set_raised(fence, live, true);
        Ok(())
    }

    /// Whether the counter was raised on this connection.
    #[inline]
    pub(crate) fn is_raised(&self, fence: &Fence, live: &LiveConnection) -> bool {
        match &self.own {
            OwnFences::One(own) if std::ptr::eq(fence, own) => {
                live.fence_raised.load(Ordering::Acquire)
            }
            _ => fence.raised_on.load(Ordering::Acquire) == live.number,
        }
    }

    pub(crate) fn set_raised(&self, fence: &Fence, live: &LiveConnection, raised: bool) {
        let of_slots = match &self.own {
            OwnFences::One(own) if std::ptr::eq(fence, own) => {
                return live.fence_raised.store(raised, Ordering::Release);
            }
            OwnFences::One(_) => false,
            OwnFences::OfSlots { .. } => true,
        };
        fence.raised_on.store(if raised { live.number } else { 0 }, Ordering::Release);
        if of_slots {
            live.fence_raised.store(raised, Ordering::Release);
        }
    }

    /// Whether a value that was drawn is above all that were `seen` when it was requested.
    pub(crate) fn is_new(&self, fence: &Fence, value: u64, seen: u64) -> Result<bool, Fault> {
        self.check(value)?;
        let new = value > seen;
        if new {
            fence.seen.fetch_max(value, Ordering::AcqRel);
        }
        Ok(new)
    }

    /// Whether several values that were drawn at once, of which this is the last, are above all that were `seen`.
    pub(crate) fn are_new(&self, fence: &Fence, last: u64, seen: u64) -> Result<bool, Fault> {
        let first = last.saturating_sub(FENCES_PER_DRAW - 1);
        Ok(first > seen && self.is_new(fence, last, seen)?)
    }

    /// Checks that a counter can have reached this value by counting and by the server's time.
    pub(crate) fn check(&self, value: u64) -> Result<(), Fault> {
        match value <= self.highest.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(counter_is_foreign()),
        }
    }
}

/// Returns the fault for a counter with an impossible value.
fn counter_is_foreign() -> Fault {
    Fault::lasting(BackendKind::Other, COUNTER)
}

/// Returns the key of the counter of a slot, which is in that slot.
fn key_of(name: &str, slot: Slot) -> Arc<str> {
    [name, ":{", &slot.tag(), "}"].concat().into()
}

fn raise_args(known: u64) -> [Arg<'static>; 3] {
    [known + 1, LAST_FENCE, AHEAD].map(Arg::Number)
}

/// The counters of other prefixes, for as long as they are used.
#[derive(Default)]
struct OtherFences {
    known: HashMap<Arc<str>, (Arc<Fence>, Moment)>,
    /// When the next unused counters are forgotten.
    tidy_up_at: Option<Moment>,
}

impl OtherFences {
    fn of(&mut self, key: &Arc<str>, now: Moment) -> Arc<Fence> {
        let until = kept_until(now, Duration::ZERO);
        if self.tidy_up_at.is_none_or(|at| at <= now) {
            // The process forgets what it has seen. When the counter is used again, it is raised to the server's time,
            // as in a process that has seen nothing.
            self.known.retain(|_, (fence, until)| *until >= now || Arc::strong_count(fence) > 1);
            shrink(&mut self.known);
            self.tidy_up_at = Some(until);
        }
        let made = || (Arc::new(Fence::new(key.clone())), until);
        let (fence, kept) = self.known.entry(key.clone()).or_insert_with(made);
        *kept = until;
        fence.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: FC8.
    #[test]
    fn of_several_values_drawn_at_once_the_first_is_above_all_that_were_seen() {
        let fences = Fences::new("distlock:fence".into());
        let fence = Fence::new("distlock:fence".into());
        let seen = 1_000_000;
        fence.has_seen(seen);
        // The counter went back by a little: only some of the values are new.
        for last in [seen - 1, seen, seen + 1, seen + FENCES_PER_DRAW - 1] {
            assert!(!fences.are_new(&fence, last, seen).expect("an honest value"), "{last}");
            assert_eq!(fence.seen(), seen);
        }
        let last = seen + FENCES_PER_DRAW;
        assert!(fences.are_new(&fence, last, seen).expect("an honest value"));
        assert_eq!(fence.seen(), last);
    }
}
