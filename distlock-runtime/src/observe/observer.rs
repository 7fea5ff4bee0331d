//! The trait [`Observer`], its events, and the commands that they name.

use std::time::Duration;

use distlock_core::name::LockName;

use crate::error::{LockError, LostReason};

/// A receiver of everything that happens to the locks of a manager: for metrics, audits and alerts of your own.
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
/// - A call ends in one [`acquired`](Self::acquired) or one [`refused`](Self::refused). This also holds if its
///   future is dropped, panics, or ends with its runtime. (A call for several locks ends in one `acquired` for
///   each of them, with an [`index`](Acquired::index).)
/// - Before that, [`waiting`](Self::waiting) is called at most once for the call; `queued` in the event says
///   whether it was.
/// - Each `acquired` is followed by one [`released`](Self::released), also if the lease was lost. The exception is
///   [`Via::Outer`]: then nothing new is held.
///
/// So a gauge that goes up with the first event and down with the second is correct.
///
/// # Where it runs
///
/// [`waiting`](Self::waiting), [`acquired`](Self::acquired), [`refused`](Self::refused),
/// [`released`](Self::released) and [`command`](Self::command) are called in the task of the caller, or on
/// the manager's thread if that has sent the command. Be quick there, and do not block. No mutex is held
/// meanwhile, and the event has already happened: a release, for example, has been sent.
///
/// The other methods report events in the background. They are called a moment later, in order, on a thread that
/// does only this and writes the log. If an observer is so slow that tens of thousands of events pile up, further
/// ones are dropped, and counted in the event `events_dropped`.
///
/// A panic of an observer is caught, and harms no lock. In a child that was forked nothing is observed.
///
/// # Privacy
///
/// [`LockName::name`] and [`LockName::template`] are the same for all values and may go into a label.
/// [`LockName::key`] contains values, and there is no limit to their number: not for metrics.
#[allow(unused_variables)]
pub trait Observer: Send + Sync + 'static {
    /// Receives that a call waits for a lock: until others release it, or for a store that cannot be reached.
    fn waiting(&self, lock: &LockName, event: &Waiting) {}

    /// Receives that a call has its lock.
    fn acquired(&self, lock: &LockName, event: &Acquired) {}

    /// Receives that a call has ended without its lock, because it was refused or cancelled.
    fn refused(&self, lock: &LockName, event: &Refused<'_>) {}

    /// Receives that a holder has given up its lock: the release is sent, or another call of this process has it.
    fn released(&self, lock: &LockName, event: &Released) {}

    /// Receives that the manager has renewed a lease, or has failed to. After a failure it tries again while the
    /// lease lasts. Not called for [`LockGuard::extend`](crate::LockGuard::extend).
    fn renewed(&self, lock: &LockName, event: &Renewed) {}

    /// Receives that a lease was lost while it was held.
    fn lost(&self, lock: &LockName, event: &Lost) {}

    /// Receives that a body has returned, but its lock could not be released at once.
    fn released_late(&self, lock: &LockName, event: &ReleasedLate) {}

    /// Receives that a connection to the store was made or lost, or that the server turned out to be misconfigured.
    fn connection(&self, event: &Connection) {}

    /// Receives that the store has answered a command, or has failed to answer in time.
    fn command(&self, event: &Command) {}
}

/// The reason why a call waits.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The call waits for a store that cannot be reached. If false, others hold the lock.
    pub outage: bool,
}

/// The event of a call that has its lock.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// The time from the call until it had the lock.
    pub waited: Duration,
    /// The way in which it got the lock.
    pub via: Via,
    /// The fencing token, larger than that of every earlier holder.
    pub fencing_token: u64,
    /// Whether [`Observer::waiting`] was called before. It is called once for each call, so for a call for
    /// several locks only the event with index 0 sets this.
    pub queued: bool,
    /// Counts the locks of one call, from 0. To count calls, count the events with 0.
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

/// The way in which a call got its lock.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// The lock was free.
    Free,
    /// The store granted the lock when it was this process's turn in the queue.
    Queue,
    /// Another call of this process handed the lock over, without a command.
    HandOver,
    /// An outer call holds the lock, and this call has joined it.
    Outer,
}

/// The event of a call that has ended without its lock.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct Refused<'a> {
    /// The time from the call to its end.
    pub waited: Duration,
    /// The reason; `None` if the call was cancelled, because its future was dropped.
    pub error: Option<&'a LockError>,
    /// Whether [`Observer::waiting`] was called before.
    pub queued: bool,
}

impl<'a> Refused<'a> {
    pub(crate) fn new(waited: Duration, error: Option<&'a LockError>, queued: bool) -> Self {
        Self { waited, error, queued }
    }

    /// Returns the outcome as one word for a label: `busy`, `backend`, `deadlock`, `invalid`, `closed` or `cancelled`.
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

/// The event of a hold that has ended.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The time from the grant until the release was sent, or the lease was lost.
    pub held: Duration,
    /// The store has confirmed it, or another call of this process has the lock. If false, the caller did not
    /// wait for the answer, or there was none yet.
    pub confirmed: bool,
    /// The lease had been lost before.
    pub lost: bool,
}

/// The event of a renewal, which has succeeded or failed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// The store has confirmed the renewal. If false, the renewal has failed and is retried while the lease
    /// lasts.
    pub ok: bool,
}

/// The event of a lease that was lost.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The time from the grant until the lease was lost.
    pub held: Duration,
    /// The reason.
    pub reason: LostReason,
    /// The fencing token of the lease.
    pub fencing_token: u64,
}

/// A failed release, after the body has returned.
#[non_exhaustive]
#[derive(Debug, Clone)]
pub struct ReleasedLate {
    /// The error that a caller waiting for the release would get. Where the holder is no longer known, it names
    /// the call that first asked for the lock.
    pub error: LockError,
    /// The release was repeated in the background until the lock had expired by itself, and is given up now. If
    /// false, the repetition begins.
    pub given_up: bool,
}

/// A change of a connection, or a mistake in the set-up of the server that it has revealed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// A connection for commands was made.
    Connected,
    /// The connection was lost. The manager connects again by itself.
    Disconnected,
    /// The server does not allow this user to subscribe or publish. Reported once.
    #[non_exhaustive]
    Denied {
        /// The error as the server words it.
        error: String,
    },
    /// The server evicts keys when its memory is full, and locks are keys. Reported once.
    #[non_exhaustive]
    MayEvict {
        /// Its `maxmemory-policy`.
        policy: String,
    },
}

/// A command that the manager has sent, and how long its answer took.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// `set` (a call's own attempt), `acquire` (enters the queue), `confirm` (looks from that place again),
    /// `exchange` (a writer becomes a reader), `release`, `renew` or `inspect`.
    pub command: &'static str,
    /// The time from before it was sent to its answer. It includes the wait for a connection.
    pub took: Duration,
    /// The store has answered, whatever the answer.
    pub ok: bool,
}

/// The words of [`Verb`], in its order.
pub(super) const COMMANDS: [&str; 7] =
    ["set", "acquire", "confirm", "exchange", "release", "renew", "inspect"];

/// A command of a store, as observers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Set,
    Acquire,
    Confirm,
    Exchange,
    Release,
    Renew,
    Inspect,
}

impl Verb {
    pub(super) fn as_str(self) -> &'static str {
        COMMANDS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_verbs() {
        use Verb::{Acquire, Confirm, Exchange, Inspect, Release, Renew, Set};
        let verbs = [Set, Acquire, Confirm, Exchange, Release, Renew, Inspect];
        let words = verbs.map(|verb| format!("{verb:?}").to_lowercase());
        assert_eq!(words, COMMANDS);
        assert_eq!(verbs.map(Verb::as_str), COMMANDS);
    }
}
