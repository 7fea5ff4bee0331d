//! The trait [`Observer`], which reports to a program what happens to its locks, and its events.

use std::time::Duration;

use crate::error::{LockError, LostReason};
use crate::name::LockName;

/// Is called on everything that happens to the locks of a manager: for metrics, audits and alerts of your own.
/// Every method has an empty default.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use distlock::{LockManager, LockName};
/// use distlock::observe::{Acquired, Observer};
///
/// #[derive(Clone, Default)]
/// struct Count(Arc<AtomicU64>);
///
/// impl Observer for Count {
///     fn acquired(&self, _: &LockName, _: &Acquired) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let count = Count::default();
/// let locks = LockManager::builder().url("memory://").observer(count.clone()).build()?;
/// locks.lock("order:42").run(async {}).await?;
/// assert_eq!(count.0.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
///
/// # In pairs
///
/// - A call ends in one [`acquired`](Self::acquired) or one [`refused`](Self::refused), whatever becomes of
///   it: its future may be dropped, panic, or end with its runtime. (A call for several locks ends in one
///   `acquired` for each of them, with an [`index`](Acquired::index).)
/// - Before that, [`waiting`](Self::waiting) is called at most once for the call; `queued` in the event says
///   whether it was.
/// - Each `acquired` is followed by one [`released`](Self::released), also if the lease was lost. Not if it
///   is [`Via::Outer`]: then nothing new is held.
///
/// So gauges that go up with the one and down with the other are right.
///
/// # Where it runs
///
/// [`waiting`](Self::waiting), [`acquired`](Self::acquired), [`refused`](Self::refused),
/// [`released`](Self::released) and [`command`](Self::command) are called in the task of the caller, or on
/// the manager's thread if that has sent the command: be quick, and do not block. No mutex is held
/// meanwhile, and what is reported has been done: a release, for example, has been sent.
///
/// The other methods report what happens in the background. They are called on a thread that only does this
/// and writes the log: in order, a moment later. If an observer is so slow that tens of
/// thousands of these pile up, further ones are dropped, and counted in the event `events_dropped`.
///
/// A panic of an observer ends there, and harms no lock. In a child that was forked nothing is observed.
///
/// # Privacy
///
/// [`LockName::name`] and [`LockName::template`] are the same for all values and may go into a label.
/// [`LockName::key`] contains values, and there is no limit to their number: not for metrics.
#[allow(unused_variables)]
pub trait Observer: Send + Sync + 'static {
    /// A call waits for a lock: for others to let go of it, or for a store that cannot be reached.
    fn waiting(&self, lock: &LockName, event: &Waiting) {}

    /// A call has its lock.
    fn acquired(&self, lock: &LockName, event: &Acquired) {}

    /// A call has ended without its lock: it was refused, or cancelled.
    fn refused(&self, lock: &LockName, event: &Refused<'_>) {}

    /// A holder has let go of its lock: the release is sent, or another call of this process has it.
    fn released(&self, lock: &LockName, event: &Released) {}

    /// The manager has renewed a lease, or has failed to; then it tries again while the lease lasts. Not called
    /// for [`LockGuard::extend`](crate::LockGuard::extend).
    fn renewed(&self, lock: &LockName, event: &Renewed) {}

    /// A lease was lost while it was held.
    fn lost(&self, lock: &LockName, event: &Lost) {}

    /// A body has returned, but its lock could not be freed as it should.
    fn released_late(&self, lock: &LockName, event: &ReleasedLate) {}

    /// A connection to the store was made or lost, or the server turned out to be set up wrongly.
    fn connection(&self, event: &Connection) {}

    /// The store has answered a command, or has not.
    fn command(&self, event: &Command) {}
}

/// The reason why a call waits.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The call waits for a store that cannot be reached. If false, others hold the lock.
    pub outage: bool,
}

/// How a call got its lock.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// From the call to the lock.
    pub waited: Duration,
    /// How it came by it.
    pub via: Via,
    /// Larger than that of every earlier holder.
    pub fencing_token: u64,
    /// Whether [`Observer::waiting`] was called before. It is called once for each call, so for a call for
    /// several locks only the event with index 0 sets this.
    pub queued: bool,
    /// Which of the call's locks it is, from 0 on. To count calls, count those with 0.
    pub index: usize,
}

impl Acquired {
    pub(crate) fn new(
        waited: Duration,
        via: Via,
        fencing_token: u64,
        queued: bool,
        index: usize,
    ) -> Self {
        Self { waited, via, fencing_token, queued, index }
    }
}

/// How a call came by a lock.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// It was free.
    Free,
    /// From the store, where it was this process's turn.
    Queue,
    /// From another call of this process that was done with it, without a command.
    HandOver,
    /// An outer call holds it: the call has joined its lock.
    Outer,
}

/// How a call ended without its lock.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Refused<'a> {
    /// From the call to its end.
    pub waited: Duration,
    /// Why; `None` if it was cancelled: its future was dropped.
    pub error: Option<&'a LockError>,
    /// Whether [`Observer::waiting`] was called before.
    pub queued: bool,
}

impl<'a> Refused<'a> {
    pub(crate) fn new(waited: Duration, error: Option<&'a LockError>, queued: bool) -> Self {
        Self { waited, error, queued }
    }

    /// The outcome in a word, for a label: `busy`, `backend`, `deadlock`, `invalid`, `closed` or `cancelled`.
    pub fn outcome(&self) -> &'static str {
        match self.error {
            None => "cancelled",
            Some(LockError::Busy { .. }) => "busy",
            Some(LockError::WouldDeadlock { .. }) => "deadlock",
            Some(LockError::InvalidKey { .. } | LockError::InvalidOption { .. }) => "invalid",
            Some(LockError::Closed) => "closed",
            Some(_) => "backend",
        }
    }
}

/// How a lock was held.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// From the grant until the release was sent, or the lease was lost.
    pub held: Duration,
    /// The store has confirmed it, or another call of this process has the lock. If false, the caller did not
    /// wait for the answer, or there was none yet.
    pub confirmed: bool,
    /// It had been lost before.
    pub lost: bool,
}

/// How the renewal of a lease ended.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// The store has confirmed the renewal. If false, the renewal has failed and is retried while the lease
    /// lasts.
    pub ok: bool,
}

/// How a lease was lost.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// From the grant until it was lost.
    pub held: Duration,
    /// Why.
    pub reason: LostReason,
    /// That of the lease.
    pub fencing_token: u64,
}

/// What went wrong with a release.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct ReleasedLate {
    /// The error that a caller waiting for the release would get. Where the holder is no longer known, it names
    /// the call that first asked for the lock.
    pub error: LockError,
    /// It was repeated in the background until the lock had expired by itself, and is given up now. If not,
    /// that is what begins.
    pub given_up: bool,
}

/// What became of a connection, or what it has shown.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// A connection for commands was made.
    Connected,
    /// It was lost. It is made again by itself.
    Disconnected,
    /// The server does not let us subscribe or publish; reported once.
    #[non_exhaustive]
    Denied {
        /// The server's words.
        error: String,
    },
    /// The server evicts keys when its memory is full, locks among them; reported once.
    #[non_exhaustive]
    MayEvict {
        /// Its `maxmemory-policy`.
        policy: String,
    },
}

/// A command of ours, and how long its answer took.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// `set` (a try of its own), `acquire` (a place in the queue), `confirm` (a look from that place),
    /// `exchange` (a writer goes on as a reader), `release`, `renew` or `inspect`.
    pub command: &'static str,
    /// From before it was sent; with it, the wait for a connection.
    pub took: Duration,
    /// It was answered, whatever the answer.
    pub ok: bool,
}
