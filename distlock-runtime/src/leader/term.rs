//! The time for which one process leads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::lock::guard::LockGuard;
use crate::lock::lease::Lease;

/// A time for which this process leads. Clones are the same term, and keep nothing alive.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::Term;
///
/// async fn lead(term: Term) {
///     // What writes later than the next leader is refused by a store that compares this.
///     let fence = term.fencing_token();
///     tokio::spawn(async move {
///         // A task of its own does not end with the term by itself.
///         while term.is_current() {
///             // … write, with `fence` …
/// #           let _ = fence;
///             tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///         }
///     });
///     std::future::pending().await
/// }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let campaign = distlock::LockManager::in_memory();
/// # let campaign = campaign.leader("k").run(lead);
/// # let _ = tokio::time::timeout(std::time::Duration::from_secs(3), campaign).await;
/// # }
/// ```
#[derive(Clone)]
pub struct Term {
    lease: Arc<Lease>,
    clock: Clock,
    since: Moment,
}

impl Term {
    /// The term of this guard; `None` if it holds nothing any more.
    pub(super) fn of(guard: &LockGuard, clock: Clock) -> Option<Self> {
        let lease = guard.leases().first()?.clone();
        Some(Self { lease, clock, since: clock.now() })
    }

    /// Larger than that of every earlier term of any process: give it to what the leader writes, so that
    /// a write that comes late can be told apart. See [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.lease.fencing_token()
    }

    /// Whether this process still leads: false from the moment on at which another may, whatever it has
    /// heard of the store by then.
    pub fn is_current(&self) -> bool {
        self.lease.is_held()
    }

    /// How long ago it began, on this process's own clock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let campaign = locks.leader("scheduler").run(async |term: distlock::Term| {
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// assert!(term.age() >= Duration::from_secs(60));
    /// # std::future::pending::<()>().await
    /// # });
    /// # let _ = tokio::time::timeout(Duration::from_secs(61), campaign).await;
    /// # }
    /// ```
    pub fn age(&self) -> Duration {
        self.clock.now().since(self.since)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("fencing_token", &self.fencing_token())
            .field("current", &self.is_current())
            .finish_non_exhaustive()
    }
}
