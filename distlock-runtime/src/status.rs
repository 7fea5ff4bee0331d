//! What a manager says about itself and about a lock.

use std::time::Duration;

use distlock_core::process_info::Process;
use distlock_core::store::{DrivenBy, WakeUps};

/// What [`LockManager::status`](crate::LockManager::status) saw: for health checks, dashboards and
/// tests that wait until a manager is ready. No I/O; it may be stale by the time it is read.
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let _guard = locks.lock("order:42").acquire().await?;
/// let status = locks.status();
/// assert!(status.connected && !status.closed);
/// assert_eq!((status.held, status.waiting), (1, 0));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagerStatus {
    /// Whether a connection for commands is up. In memory: always.
    pub connected: bool,
    /// Whether the manager was closed; then it gives no more locks.
    pub closed: bool,
    /// The number of locks held by this manager. One that was granted to a waiter which has not been
    /// polled since counts too.
    pub held: usize,
    /// The number of calls of this manager that wait for a lock. A call for several locks counts once for
    /// each lock that it waits for.
    pub waiting: usize,
    /// How waiters learn that a lock is free.
    pub wake_ups: WakeUps,
    /// Where the connections for commands are driven at present.
    pub driven_by: DrivenBy,
}

/// What [`LockManager::inspect`](crate::LockManager::inspect) saw.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, LockStatus};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = LockManager::in_memory();
/// let _guard = locks.lock("order:42").acquire().await?;
/// match locks.inspect("order:42").await? {
///     LockStatus::Held { waiting, .. } => assert_eq!(waiting, 0),
///     other => panic!("it is held, not {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockStatus {
    /// No process holds the lock.
    Free,
    /// A process holds the lock.
    #[non_exhaustive]
    Held {
        /// How long the lease still runs if it is not renewed; `None` if the key in the store never
        /// expires, and so is no lock of distlock.
        remaining: Option<Duration>,
        /// The number of processes that wait for the lock.
        waiting: usize,
        /// Its holders.
        holders: Vec<Holder>,
        /// Its waiters, the next one first.
        waiters: Vec<Waiter>,
        /// Whether the holder has the lock alone: no reader and no other permit beside it.
        alone: bool,
    },
}

/// A holder of a lock, as [`LockManager::inspect`](crate::LockManager::inspect) sees it. What only the holder's
/// process knows is `None` where that does not answer.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::LockStatus;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").name("checkout").acquire().await?;
/// if let LockStatus::Held { holders, .. } = locks.inspect("order:42").await? {
///     assert_eq!(holders[0].name.as_deref(), Some("checkout"));
///     assert_eq!(holders[0].fencing_token, Some(guard.fencing_token()));
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Which process it is; `None` if that is not known.
    pub process: Option<Process>,
    /// The lock's name there: see [`LockName::name`](crate::LockName::name).
    pub name: Option<String>,
    /// The template of its key there, if it has one.
    pub template: Option<String>,
    /// How long ago it was taken.
    pub since: Option<Duration>,
    /// The holder's fencing token.
    pub fencing_token: Option<u64>,
    /// How long the lease still runs if it is not renewed; `None` if the key in the store never expires.
    pub remaining: Option<Duration>,
}

/// Calls of one process that wait for a lock together: they have one place in its queue. What only their
/// process knows is `None` where that does not answer.
///
/// ```
/// # use distlock_runtime as distlock;
/// # use std::time::Duration;
/// use distlock::LockStatus;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let _guard = locks.lock("order:42").acquire().await?;
/// let waits = locks.lock("order:42").name("refund").wait(Duration::from_secs(60)).acquire();
/// let inspects = async {
///     # while locks.status().waiting == 0 {
///     #     tokio::task::yield_now().await;
///     # }
///     locks.inspect("order:42").await
/// };
/// tokio::select! {
///     _ = waits => unreachable!("it is held"),
///     status = inspects => if let LockStatus::Held { waiters, .. } = status? {
///         assert_eq!(waiters[0].name.as_deref(), Some("refund"));
///         assert_eq!(waiters[0].calls, Some(1));
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Which process it is; `None` if that is not known.
    pub process: Option<Process>,
    /// The name of the lock for the first of them: see [`LockName::name`](crate::LockName::name).
    pub name: Option<String>,
    /// The template of its key there, if it has one.
    pub template: Option<String>,
    /// How long ago the first of them came.
    pub since: Option<Duration>,
    /// How many calls they are.
    pub calls: Option<usize>,
}

impl LockStatus {
    /// Whether no process holds the lock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// assert!(locks.inspect("order:42").await?.is_free());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

/// What [`LockManager::close`](crate::LockManager::close) achieved.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let _guard = locks.lock("order:42").acquire().await?;
/// let report = locks.close(Duration::from_secs(5)).await;
/// assert_eq!((report.freed, report.unconfirmed), (1, 0));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseReport {
    /// Locks that were held and are free now.
    pub freed: usize,
    /// Locks that may still be stored: the store did not confirm their release, or their body did not come
    /// to an await in time. They are free after their `ttl` at the latest.
    pub unconfirmed: usize,
}

impl CloseReport {
    /// Whether nothing is left behind.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let report = locks.close(std::time::Duration::from_secs(5)).await;
    /// assert!(report.is_complete(), "{report:?}");
    /// # }
    /// ```
    pub fn is_complete(&self) -> bool {
        self.unconfirmed == 0
    }
}
