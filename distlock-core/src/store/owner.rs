//! An owner token, and what is known of the commands that were sent for it.
//!
//! A token names one acquisition: it is used once, from before its first command until nothing of it
//! can run any more. Commands may stay without an answer, and their bytes may arrive long after their
//! connection has died; whether a lock can still be taken under a token, and from when on it cannot, is
//! what is kept here. What a lease is worth is not a store's business.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Limit;
use crate::clock::Moment;
use crate::name::LockName;
use crate::token::Token;

/// Public fencing tokens leave room under each counter value for holders of one process that hand
/// a lease over without asking the store.
#[allow(unreachable_pub)] // Public for the model.
pub const TOKENS_PER_FENCE: u64 = 1024;

/// Bits for how many commands are unanswered, below those for the connection.
const COUNT: u32 = 16;
/// An acquire without an answer may run long after its time, when a server that stood still goes
/// on, and its ttl counts from there. A server that stands still for longer is not waited for.
const LATEST: Duration = Duration::from_secs(10 * 60);
/// How long a queue lasts after its last poll. Every waiter polls more often than this (R11).
pub const QUEUE_LIFE: Duration = Duration::from_secs(20);
/// How much of the process's name is in a mark.
const MARK: usize = 8;

/// The pauses after which a release is repeated while bytes of an acquire may still arrive (R9).
pub const RELEASE_REPEATS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(750), Duration::from_millis(3000)];

/// One owner token.
pub struct Owner {
    pub lock: Arc<LockName>,
    /// Unique, used once.
    pub token: String,
    /// How many may hold the lock beside it; the token says so as well.
    pub limit: Limit,
    /// When the first command that could create the lock was sent.
    first_sent: AtomicU64,
    /// The latest moment until which the commands that were sent may have the lock stored.
    stored_until: AtomicU64,
    /// The connection on which acquires were sent and not answered, and how many, in one number; 0 if
    /// there are none. A caller and the engine may both have sent one.
    unanswered: AtomicU64,
    /// The connections that died with an acquire unanswered: the lowest and the highest number. The highest
    /// is 0 if none did.
    died_first: AtomicU64,
    died_last: AtomicU64,
    /// A command of it may have left something in the store.
    traced: AtomicBool,
    /// An acquire that was not carried out was sent again, perhaps behind the release.
    resent: AtomicBool,
    /// The store has said that it owned the lock.
    granted: AtomicBool,
    /// Its release was begun: nothing that could create the lock is sent any more.
    retired: AtomicBool,
    /// It was released with the wish to keep the lock until then; 0 if not.
    kept_until: AtomicU64,
    /// It was released without its last holder's knowledge as well.
    undone: AtomicBool,
    /// The store has freed the lock, but has not let in the next waiter.
    freed: AtomicBool,
    /// When the token's place in the queue ends; 0 if it never had one.
    stands_until: AtomicU64,
    /// The same token at each node of a quorum, where it is one.
    parts: OnceLock<Box<[Part]>>,
}

/// A token at one node of a quorum.
pub struct Part {
    pub owner: Arc<Owner>,
    /// Offers without an answer, which may give the node's vote back: while there are any, a vote of the
    /// node does not count.
    returns: AtomicUsize,
}

impl Part {
    /// To be called before the bytes of a command go out that may give the node's vote back.
    pub fn returning(&self) {
        self.returns.fetch_add(1, Ordering::AcqRel);
    }

    /// It was answered, and so has run.
    pub fn returned(&self) {
        self.returns.fetch_sub(1, Ordering::AcqRel);
    }

    /// Nothing that was sent can take a vote back that comes in now.
    pub fn is_steady(&self) -> bool {
        self.returns.load(Ordering::Acquire) == 0
    }
}

impl Owner {
    /// A token that was issued with this limit.
    #[inline]
    pub fn new(lock: Arc<LockName>, token: String, limit: Limit) -> Self {
        Self {
            lock,
            token,
            limit,
            first_sent: AtomicU64::new(Moment::NEVER.as_nanos()),
            stored_until: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            died_first: AtomicU64::new(u64::MAX),
            died_last: AtomicU64::new(0),
            traced: AtomicBool::new(false),
            resent: AtomicBool::new(false),
            granted: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            kept_until: AtomicU64::new(0),
            undone: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            stands_until: AtomicU64::new(0),
            parts: OnceLock::new(),
        }
    }

    /// The same token at each of so many nodes.
    pub fn parts(&self, nodes: usize) -> &[Part] {
        let parts = self.parts.get_or_init(|| {
            let part = || {
                let owner = Self::new(self.lock.clone(), self.token.clone(), self.limit);
                Part { owner: Arc::new(owner), returns: AtomicUsize::new(0) }
            };
            (0..nodes).map(|_| part()).collect()
        });
        // Retired while they were made.
        if self.is_retired() {
            parts.iter().for_each(|part| part.owner.retire());
        }
        parts
    }

    /// A token of which only the store knows more.
    pub fn stray(lock: Arc<LockName>, token: String) -> Self {
        let (first_sent, traced) = (AtomicU64::new(0), AtomicBool::new(true));
        let limit = Token::parse(&token).map_or(Limit::ALONE, |token| token.limit);
        Self { first_sent, traced, ..Self::new(lock, token, limit) }
    }

    /// Short words that no other token has: its end.
    pub fn mark(&self) -> &str {
        let process = self.token.bytes().position(|byte| byte == b'.').unwrap_or(0);
        self.token.get(process.saturating_sub(MARK)..).unwrap_or(&self.token)
    }

    /// To be called before the bytes of an acquire for `ttl` go out on connection number
    /// `connection`.
    #[inline]
    pub fn sending(&self, now: Moment, ttl: Duration, connection: u64) {
        self.first_sent.fetch_min(now.as_nanos(), Ordering::AcqRel);
        self.stored_until(now.after(ttl));
        let one_more = |unanswered| match unanswered >> COUNT {
            of if of == connection => Some(unanswered + 1),
            _ => Some(connection << COUNT | 1),
        };
        let before = self.unanswered.fetch_update(Ordering::SeqCst, Ordering::Acquire, one_more);
        let before = before.unwrap_or_default() >> COUNT;
        // A token's acquires go over one connection at a time: another one's answer is not coming any more.
        if before != 0 && before != connection {
            self.died_first.fetch_min(before, Ordering::AcqRel);
            self.died_last.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// The same, and whether the bytes may go out: not once the release was begun, which may pass over that to
    /// which nothing was sent. // R7
    ///
    /// First it is noted and then looked, as a release is first begun and then looks what was sent: whichever comes
    /// later knows of the other. That needs one order of all four, hence `SeqCst` in each.
    #[inline]
    pub fn may_send(&self, now: Moment, ttl: Duration, connection: u64) -> bool {
        self.sending(now, ttl, connection);
        if self.is_retired() {
            self.answered(connection);
            return false;
        }
        true
    }

    /// To be called before the bytes of a command go out that may keep the lock until `end`.
    pub fn stored_until(&self, end: Moment) {
        self.stored_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// Call this before the token is sent to the queue, because the queue ends this long after its last poll.
    pub fn will_stand(&self, now: Moment) {
        self.stands_until.fetch_max(now.after(QUEUE_LIFE).as_nanos(), Ordering::AcqRel);
    }

    /// Returns when its place in the queue ends if no other token polls.
    pub fn stands_until(&self) -> Moment {
        Moment::from_nanos(self.stands_until.load(Ordering::Acquire))
    }

    /// Whether the token was sent to the queue.
    pub fn stood(&self) -> bool {
        self.stands_until.load(Ordering::Acquire) != 0
    }

    /// Not later than the grant, if there was one: read before the first acquire was sent.
    pub fn first_sent(&self) -> Moment {
        Moment::from_nanos(self.first_sent.load(Ordering::Acquire))
    }

    /// The store has answered an acquire that was sent on connection `connection`, whatever it said.
    #[inline]
    pub fn answered(&self, connection: u64) {
        let one_less = |unanswered| match unanswered >> COUNT {
            of if of == connection && unanswered & ((1 << COUNT) - 1) > 1 => Some(unanswered - 1),
            of if of == connection => Some(0),
            _ => None,
        };
        let _ = self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// The same where the lock is the token's now.
    #[inline]
    pub fn answered_yes(&self, connection: u64) {
        // At no moment between the two does it look as if the answer had been a no.
        self.leaves_a_trace();
        self.answered(connection);
    }

    /// The store has taken the lock for it, or may have put it into the queue. To be called by stores,
    /// also if the answer does not reach the caller.
    pub fn leaves_a_trace(&self) {
        self.traced.store(true, Ordering::Release);
    }

    /// Something of it may be in the store, or come to be there. Not if every acquire was answered
    /// with a no.
    pub fn may_be_stored(&self) -> bool {
        // What was answered meanwhile has left its trace before.
        self.in_doubt() || self.traced.load(Ordering::Acquire)
    }

    /// To be called before an acquire that was not carried out is sent again, and before it is looked whether the
    /// release was begun meanwhile: that may overtake it.
    pub fn sending_again(&self) {
        self.resent.store(true, Ordering::SeqCst);
    }

    /// An acquire may have been sent again.
    pub fn was_resent(&self) -> bool {
        self.resent.load(Ordering::SeqCst)
    }

    /// An acquire was sent and no answer has come.
    pub fn in_doubt(&self) -> bool {
        self.unanswered.load(Ordering::SeqCst) != 0 || self.died_last.load(Ordering::Acquire) != 0
    }

    /// Whether what was sent on connection `number` comes behind every acquire of this token that
    /// may still run: none was sent elsewhere, or only on `closed` connections. // R9
    pub fn is_behind(&self, number: u64, closed: &Range<u64>) -> bool {
        let unanswered = self.unanswered.load(Ordering::Acquire) >> COUNT;
        let last = self.died_last.load(Ordering::Acquire);
        let is_past = |connection| connection == number || closed.contains(&connection);
        // Closed connections have numbers in a row: with the first and the last all between them are.
        (unanswered == 0 || is_past(unanswered))
            && (last == 0 || is_past(last) && is_past(self.died_first.load(Ordering::Acquire)))
    }

    /// Nothing was ever sent for it: there is nothing to free.
    pub fn is_unsent(&self) -> bool {
        self.first_sent() == Moment::NEVER
    }

    /// From here on the lock has expired by itself, whatever became of the commands.
    pub fn expired_by(&self) -> Moment {
        Moment::from_nanos(self.stored_until.load(Ordering::Acquire))
    }

    /// From here on nothing can be left of it.
    pub fn gone_by(&self) -> Moment {
        let expired = self.expired_by();
        if self.in_doubt() { expired.after(LATEST) } else { expired }
    }

    /// Its release is about to be sent. Final: the token is never used again. // R7
    pub fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        if let Some(parts) = self.parts.get() {
            parts.iter().for_each(|part| part.owner.retire());
        }
    }

    /// The store has said that it owns the lock.
    pub fn set_granted(&self) {
        self.granted.store(true, Ordering::Release);
    }

    pub fn was_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    /// Its last holder is done with it, and the lock is not to be free before `end`.
    pub fn keep_until(&self, end: Moment) {
        self.kept_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// For how long from `now` it is to be kept, if at all.
    pub fn kept(&self, now: Moment) -> Option<Duration> {
        let left = Moment::from_nanos(self.kept_until.load(Ordering::Acquire)).since(now);
        (!left.is_zero()).then_some(left)
    }

    /// To be called before a release that its last holder does not know of.
    pub fn undo(&self) {
        self.undone.store(true, Ordering::Release);
    }

    pub fn was_undone(&self) -> bool {
        self.undone.load(Ordering::Acquire)
    }

    /// To be called by stores that free a lock before they let in the next waiter.
    pub fn set_freed(&self) {
        self.freed.store(true, Ordering::Release);
    }

    /// It does not own the lock any more; its release may not be done yet.
    pub fn was_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Its release was begun. Stores ask [`may_send`](Self::may_send) before they send an acquire.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }
}

/// No two owners have the same token.
impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.token == other.token
    }
}

impl Eq for Owner {}

impl Hash for Owner {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.token.hash(state);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("lock", &self.lock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
