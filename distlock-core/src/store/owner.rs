//! An owner token, and a ledger of the commands that were sent for it.
//!
//! A token names one acquisition. It is used once, from before its first command until no command of it can take effect
//! any more. A command may stay without an answer, and its bytes may arrive long after its connection has died. The ledger
//! tells whether the lock may still be acquired under the token, and until when.
//!
//! # Calls that a store makes
//!
//! | when | call |
//! |---|---|
//! | before the bytes of an acquire go out | [`may_send`](Owner::may_send); send nothing if it returns false |
//! | before an acquire that was not executed is sent again | [`sending_again`](Owner::sending_again), then `may_send` |
//! | before the bytes of a renewal or another command that keeps the lock go out | [`stored_until`](Owner::stored_until) |
//! | after the answer to an acquire | [`answered_yes`](Owner::answered_yes) or [`answered`](Owner::answered) |
//! | when the token may be in the queue | [`leaves_a_trace`](Owner::leaves_a_trace) |
//! | when the lock is free, and the next waiter not let in yet | [`set_freed`](Owner::set_freed) |
//! | for the answer to a release | [`is_behind`](Owner::is_behind) |
//!
//! All other changes are made by the runtime. A caller and the engine may use one token at the same time, so all fields are
//! atomic.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::Moment;
use crate::limit::Limit;
use crate::name::LockName;
use crate::token::Token;

/// The number of fencing tokens for each value of the fence counter. Holders of one process that hand over a lease
/// without asking the store get one each.
pub const TOKENS_PER_FENCE: u64 = 1024;

/// The bits for the number of unanswered commands, below those for the connection.
const COUNT: u32 = 16;
/// How long after its time an unanswered acquire may be executed: a frozen server may continue, and the ttl counts from
/// then. A server that is frozen for longer is not taken into account.
const LATEST: Duration = Duration::from_secs(10 * 60);
/// How long a queue lasts after its last poll. Every waiter polls more often than this (R11).
pub const QUEUE_LIFE: Duration = Duration::from_secs(20);
/// How many characters of the process's name are in a mark.
const MARK: usize = 8;

/// The pauses after which a release is repeated while bytes of an acquire may still arrive (R9).
pub const RELEASE_REPEATS: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(750), Duration::from_millis(3000)];

/// One owner token.
pub struct Owner {
    /// The name of the lock.
    pub lock: Arc<LockName>,
    /// The text of the token, which no other acquisition has.
    pub token: String,
    /// How many may hold the lock together with this token. The end of the token says the same.
    pub limit: Limit,
    /// When the first command that could create the lock was sent; `NEVER` before.
    first_sent: AtomicU64,
    /// The latest end of the lease that a command which was sent may have set.
    stored_until: AtomicU64,
    /// The connection on which acquires were sent and not answered, and their number, in one integer; 0 if there are none.
    /// A caller and the engine may each have sent one.
    unanswered: AtomicU64,
    /// The lowest number of a connection that died with an unanswered acquire.
    died_first: AtomicU64,
    /// The highest number of a connection that died with an unanswered acquire; 0 if none did.
    died_last: AtomicU64,
    /// Whether a command may have left the token in the store.
    traced: AtomicBool,
    /// Whether an acquire that was not executed was sent again, perhaps after the release.
    resent: AtomicBool,
    /// Whether the store has granted the lock.
    granted: AtomicBool,
    /// Whether the release was begun. Then no acquire is sent any more.
    retired: AtomicBool,
    /// Until when the release keeps the lock; 0 if it does not.
    kept_until: AtomicU64,
    /// Whether it was also released without the knowledge of its last holder.
    undone: AtomicBool,
    /// Whether the store has freed the lock. The next waiter may not have been let in.
    freed: AtomicBool,
    /// When the token's place in the queue ends; 0 if it never had a place.
    stands_until: AtomicU64,
    /// The same token at each server of a quorum.
    parts: OnceLock<Box<[Part]>>,
}

/// A token at one server of a quorum.
pub struct Part {
    /// The token, with a ledger for this server.
    pub owner: Arc<Owner>,
    /// The number of unanswered offers, which may give the server's vote back. While there are any, a vote of the server
    /// does not count.
    returns: AtomicUsize,
}

impl Part {
    /// Notes an offer. Call this before the bytes of a command go out that may give the server's vote back.
    pub fn returning(&self) {
        self.returns.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that an offer was answered, and so was executed.
    pub fn returned(&self) {
        self.returns.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether no unanswered offer can take back a vote that arrives now.
    pub fn is_steady(&self) -> bool {
        self.returns.load(Ordering::Acquire) == 0
    }
}

impl Owner {
    /// Makes a token that was issued with this limit.
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

    /// Returns the token at each server of a quorum of `nodes` servers.
    pub fn parts(&self, nodes: usize) -> &[Part] {
        let parts = self.parts.get_or_init(|| {
            let part = || {
                let owner = Self::new(self.lock.clone(), self.token.clone(), self.limit);
                Part { owner: Arc::new(owner), returns: AtomicUsize::new(0) }
            };
            (0..nodes).map(|_| part()).collect()
        });
        // The token may have been retired while the parts were made.
        if self.is_retired() {
            parts.iter().for_each(|part| part.owner.retire());
        }
        parts
    }

    /// Makes a token of which this process has no ledger, for example another process's. The store may have anything of
    /// it.
    pub fn stray(lock: Arc<LockName>, token: String) -> Self {
        let (first_sent, traced) = (AtomicU64::new(0), AtomicBool::new(true));
        let limit = Token::parse(&token).map_or(Limit::ALONE, |token| token.limit);
        Self { first_sent, traced, ..Self::new(lock, token, limit) }
    }

    /// Returns a short text that no other token has: the end of the token.
    pub fn mark(&self) -> &str {
        let process = self.token.bytes().position(|byte| byte == b'.').unwrap_or(0);
        self.token.get(process.saturating_sub(MARK)..).unwrap_or(&self.token)
    }

    /// Notes an acquire for `ttl` on connection number `connection`. Call this before its bytes go out, or better
    /// [`may_send`](Self::may_send).
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
        // The acquires of a token go over one connection at a time. So the connection before has died, and its answer will
        // not come any more.
        if before != 0 && before != connection {
            self.died_first.fetch_min(before, Ordering::AcqRel);
            self.died_last.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// Notes an acquire for `ttl` on connection number `connection`, and returns whether its bytes may go out. Call this
    /// before they do. They may not once the release was begun, because a release skips a token for which nothing was sent
    /// (R7).
    ///
    /// This first notes the acquire and then looks for a release. A release first begins and then looks for acquires. So
    /// the later of the two sees the other. That needs one order of all four steps, hence `SeqCst` in each.
    #[inline]
    pub fn may_send(&self, now: Moment, ttl: Duration, connection: u64) -> bool {
        self.sending(now, ttl, connection);
        if self.is_retired() {
            self.answered(connection);
            return false;
        }
        true
    }

    /// Notes that the store may keep the lock until `end`. Call this before the bytes of such a command go out.
    pub fn stored_until(&self, end: Moment) {
        self.stored_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// Notes that the token may get a place in the queue. Call this before the token is sent there. The place ends
    /// [`QUEUE_LIFE`] after the last poll.
    pub fn will_stand(&self, now: Moment) {
        self.stands_until.fetch_max(now.after(QUEUE_LIFE).as_nanos(), Ordering::AcqRel);
    }

    /// Returns when the token's place in the queue ends, if no other token polls.
    pub fn stands_until(&self) -> Moment {
        Moment::from_nanos(self.stands_until.load(Ordering::Acquire))
    }

    /// Returns whether the token was sent to the queue.
    pub fn stood(&self) -> bool {
        self.stands_until.load(Ordering::Acquire) != 0
    }

    /// Returns when the first acquire was sent, which is not later than the grant; `NEVER` if none was.
    pub fn first_sent(&self) -> Moment {
        Moment::from_nanos(self.first_sent.load(Ordering::Acquire))
    }

    /// Notes an answer, of any kind, to an acquire that was sent on connection number `connection`.
    #[inline]
    pub fn answered(&self, connection: u64) {
        let one_less = |unanswered| match unanswered >> COUNT {
            of if of == connection && unanswered & ((1 << COUNT) - 1) > 1 => Some(unanswered - 1),
            of if of == connection => Some(0),
            _ => None,
        };
        let _ = self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }

    /// Notes that an acquire on connection number `connection` was answered with a grant.
    #[inline]
    pub fn answered_yes(&self, connection: u64) {
        // In this order, so that at no moment the answer looks like a refusal.
        self.leaves_a_trace();
        self.answered(connection);
    }

    /// Notes that the store has granted the lock, or may have put the token into the queue. Stores call this even if the
    /// answer does not reach the caller.
    pub fn leaves_a_trace(&self) {
        self.traced.store(true, Ordering::Release);
    }

    /// Returns whether the token may be in the store, now or later. It is not if every acquire was refused.
    pub fn may_be_stored(&self) -> bool {
        // The order matters: a grant that is answered meanwhile leaves its trace before it is counted as answered.
        self.in_doubt() || self.traced.load(Ordering::Acquire)
    }

    /// Notes that an acquire that was not executed is sent again. Call this before [`may_send`](Self::may_send), because
    /// the release may overtake that acquire.
    pub fn sending_again(&self) {
        self.resent.store(true, Ordering::SeqCst);
    }

    /// Returns whether an acquire may have been sent again.
    pub fn was_resent(&self) -> bool {
        self.resent.load(Ordering::SeqCst)
    }

    /// Returns whether an acquire was sent that has no answer.
    pub fn in_doubt(&self) -> bool {
        self.unanswered.load(Ordering::SeqCst) != 0 || self.died_last.load(Ordering::Acquire) != 0
    }

    /// Returns whether a release on connection `number` comes after every acquire of this token that may still be
    /// executed (R9). It does if the acquires were sent on the same connection, or on `closed` ones. The server has executed
    /// or dropped what was sent on those.
    pub fn is_behind(&self, number: u64, closed: &Range<u64>) -> bool {
        let unanswered = self.unanswered.load(Ordering::Acquire) >> COUNT;
        let last = self.died_last.load(Ordering::Acquire);
        let is_past = |connection| connection == number || closed.contains(&connection);
        // Closed connections have consecutive numbers. If the first and the last are closed, so are all between them.
        (unanswered == 0 || is_past(unanswered))
            && (last == 0 || is_past(last) && is_past(self.died_first.load(Ordering::Acquire)))
    }

    /// Returns whether nothing was ever sent for the token, so that there is nothing to free.
    pub fn is_unsent(&self) -> bool {
        self.first_sent() == Moment::NEVER
    }

    /// Returns when the lock has expired by itself, if no unanswered acquire is executed later.
    pub fn expired_by(&self) -> Moment {
        Moment::from_nanos(self.stored_until.load(Ordering::Acquire))
    }

    /// Returns when the store has nothing of the token any more, not even of an unanswered acquire that is executed late.
    pub fn gone_by(&self) -> Moment {
        let expired = self.expired_by();
        if self.in_doubt() { expired.after(LATEST) } else { expired }
    }

    /// Begins the release. No acquire is sent from now on, and the token is never used again (R7).
    pub fn retire(&self) {
        self.retired.store(true, Ordering::SeqCst);
        if let Some(parts) = self.parts.get() {
            parts.iter().for_each(|part| part.owner.retire());
        }
    }

    /// Notes that the store has granted the lock.
    pub fn set_granted(&self) {
        self.granted.store(true, Ordering::Release);
    }

    /// Returns whether the store has granted the lock.
    pub fn was_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    /// Notes that the last holder has released the token, and that the lock must not be free before `end`.
    pub fn keep_until(&self, end: Moment) {
        self.kept_until.fetch_max(end.as_nanos(), Ordering::AcqRel);
    }

    /// Returns how long from `now` the lock must be kept; `None` if it need not be.
    pub fn kept(&self, now: Moment) -> Option<Duration> {
        let left = Moment::from_nanos(self.kept_until.load(Ordering::Acquire)).since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Notes a release that the last holder does not know of. Call this before that release.
    pub fn undo(&self) {
        self.undone.store(true, Ordering::Release);
    }

    /// Returns whether there was a release that the last holder does not know of.
    pub fn was_undone(&self) -> bool {
        self.undone.load(Ordering::Acquire)
    }

    /// Notes that the lock is free. Stores call this if they free a lock before they let in the next waiter.
    pub fn set_freed(&self) {
        self.freed.store(true, Ordering::Release);
    }

    /// Returns whether the store has freed the lock. Its release may not be done yet.
    pub fn was_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Returns whether the release was begun. Before an acquire, stores call [`may_send`](Self::may_send) instead.
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
