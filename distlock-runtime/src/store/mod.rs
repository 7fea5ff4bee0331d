//! What the engine needs from a place that keeps locks.
//!
//! One narrow trait: try once, renew, release, and a clock. Everything about time, waiting,
//! cancellation and repair is the engine's and the same for every store. A store that can wake
//! waiters, keep a queue or ask several nodes does so behind the same four verbs.

pub(crate) mod memory;
pub(crate) mod redis;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::error::{BackendKind, LockError, LockName};

/// An operation under way. It owns all it needs, so that whoever began it can leave it to the engine.
pub(crate) type Op<T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>;

/// A place that keeps locks.
///
/// An operation is under way once its future was polled. Operations of one key reach the store in
/// the order of their first polls: a release that is polled after an acquire takes effect after it.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// What the leases of this store age on.
    fn clock(&self) -> Clock;

    /// Whether leases here need to be renewed and watched by the engine. Where the store lives and
    /// dies with the process, a renewed lease simply has no end.
    fn is_remote(&self) -> bool;

    /// Resolves once the store has answered, so that a bad address shows at start-up.
    fn ready(self: Arc<Self>, limit: Moment) -> Op<()>;

    /// Takes the lock if it is free. Answers by `limit`, or with a fault.
    fn try_acquire(self: Arc<Self>, claim: Arc<Claim>, limit: Moment) -> Op<Answer>;

    /// Frees the lock if this claim owns it, or with `keep` has it free itself after that time.
    /// Idempotent. Waits for a connection until `limit`.
    fn release(
        self: Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
        limit: Moment,
    ) -> Op<Freed>;

    /// Extends the leases to at least these times to live, never re-creating a lock: one answer for
    /// each, in order. A `false` means that the lock is no longer the claim's.
    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed>;

    /// Who has the lock, and for how long.
    fn inspect(self: Arc<Self>, lock: Arc<LockName>, limit: Moment) -> Op<Option<Holder>>;
}

/// Who has a lock.
#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) token: String,
    /// `None` if it has no end, which no lock of ours is.
    pub(crate) rest: Option<Duration>,
}

/// One attempt to own one lock: what the store is told about it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) lock: Arc<LockName>,
    /// The owner token: unique, used once.
    pub(crate) token: String,
    pub(crate) term: Term,
    /// When a command that could create or extend the lock was last sent.
    last_sent: AtomicU64,
    /// The connection on which an acquire was sent and not answered; 0 if there is none.
    in_doubt: AtomicU64,
}

impl Claim {
    pub(crate) fn new(lock: Arc<LockName>, token: String, term: Term) -> Self {
        let (last_sent, in_doubt) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { lock, token, term, last_sent, in_doubt }
    }

    /// To be called before the bytes of an acquire go out on connection number `connection`.
    pub(crate) fn sending(&self, now: Moment, connection: u64) {
        self.extending(now);
        self.in_doubt.store(connection, Ordering::Release);
    }

    /// To be called before the bytes of a renewal go out.
    pub(crate) fn extending(&self, now: Moment) {
        // Zero says that nothing was sent; a clock may start there.
        self.last_sent.fetch_max(now.as_nanos().max(1), Ordering::AcqRel);
    }

    /// The store has answered the acquire, whatever it said.
    pub(crate) fn answered(&self) {
        self.in_doubt.store(0, Ordering::Release);
    }

    /// On which connection an acquire is unanswered, if any is.
    pub(crate) fn in_doubt(&self) -> Option<u64> {
        match self.in_doubt.load(Ordering::Acquire) {
            0 => None,
            connection => Some(connection),
        }
    }

    /// Nothing was ever sent for this claim: there is nothing to free.
    pub(crate) fn is_unsent(&self) -> bool {
        self.last_sent.load(Ordering::Acquire) == 0
    }

    /// From here on the lock has expired by itself, whatever became of the commands.
    pub(crate) fn expired_by(&self) -> Moment {
        Moment::from_nanos(self.last_sent.load(Ordering::Acquire)).after(self.term.stored_for())
    }
}

/// For how long a lock is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    /// How long it may outlive a holder that died; the length of a lease.
    pub(crate) ttl: Duration,
    /// The engine keeps extending the lease while it is held.
    pub(crate) renewed: bool,
    /// It is not extended past this, counted from when it was taken.
    pub(crate) max_hold: Option<Duration>,
    /// It is not freed before this, counted from when it was taken.
    pub(crate) min_hold: Option<Duration>,
}

impl Term {
    /// The length of a lease, which `max_hold` may cut short.
    pub(crate) fn lease(&self) -> Duration {
        self.max_hold.map_or(self.ttl, |max_hold| padded(max_hold).min(self.ttl))
    }

    /// How long the store is to keep the lock: a holder that dies must not free it before its
    /// `min_hold` either.
    pub(crate) fn stored_for(&self) -> Duration {
        self.min_hold.map_or(self.lease(), |min_hold| min_hold.max(self.lease()))
    }
}

/// What to ask the store for so that `wanted` is left here after drift.
pub(crate) fn padded(wanted: Duration) -> Duration {
    wanted.saturating_add(wanted / 50).saturating_add(Duration::from_millis(5))
}

/// What a store says to a try.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The lock is the claim's until `sent + ttl`, less drift.
    Granted {
        /// Grows with every acquisition of the lock.
        fence: u64,
        /// An instant not later than the grant: read before the command was sent.
        sent: Moment,
    },
    /// Somebody else's, for this long if the store could tell.
    Taken { rest: Option<Duration> },
}

/// What became of a release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freed {
    /// The lock was the claim's until now.
    pub(crate) was_ours: bool,
    /// No command of the claim can still take effect. If not, the release must be repeated.
    pub(crate) settled: bool,
}

/// One lease to extend.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    pub(crate) claim: Arc<Claim>,
    pub(crate) ttl: Duration,
}

/// Answers to renewals, in the order they were asked.
#[derive(Debug)]
pub(crate) struct Renewed {
    /// Read before the commands were sent.
    pub(crate) sent: Moment,
    pub(crate) answers: Vec<Result<bool, Fault>>,
}

/// Why a store could not say yes or no.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) kind: BackendKind,
    /// The store's words; never keys or passwords.
    detail: Option<Arc<str>>,
    /// Another try may go better.
    pub(crate) passing: bool,
}

impl Fault {
    pub(crate) fn passing(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: true }
    }

    pub(crate) fn lasting(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: false }
    }

    pub(crate) fn timed_out() -> Self {
        Self { kind: BackendKind::TimedOut, detail: None, passing: true }
    }

    /// The manager gives no more locks.
    pub(crate) fn closed() -> Self {
        Self::lasting(BackendKind::Other, "the lock manager was closed")
    }

    pub(crate) fn into_error(self, lock: Option<&LockName>) -> LockError {
        LockError::Backend {
            lock: lock.cloned().map(Box::new),
            kind: self.kind,
            source: self.detail.map(|text| Box::new(Detail(text)) as _),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// A store's own words, as the source of an error.
#[derive(Debug)]
struct Detail(Arc<str>);

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Detail {}
