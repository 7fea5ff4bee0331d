//! The manager of locks in one store, over connections that the whole process shares.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use distlock_core::line::Closing;
use distlock_core::select::until;

use crate::builder::LockManagerBuilder;
use crate::error::{IntoLockError, LockError};
use crate::lock::locks::Locks;
use crate::request::LockRequest;
use crate::status::CloseReport;

/// A manager of locks in one store, over connections that the whole process shares.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// use distlock::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// // In a program: `LockManager::connect("redis://127.0.0.1:6379").await?`.
/// let locks = LockManager::in_memory();
///
/// let paid = locks.lock("order:42").wait(Duration::from_secs(2)).run(async {
///     // At most one of all processes is here for this order.
///     true
/// });
/// assert!(paid.await?);
///
/// // At the end of the program.
/// assert!(locks.close(Duration::from_secs(5)).await.is_complete());
/// # Ok(())
/// # }
/// ```
///
/// A program makes one manager at its start and gives it to [`init`](crate::init), or passes it to the code
/// that needs it. It is cheap to clone, and all clones are one manager. It may be used from any number of
/// tokio runtimes at the same time, and outlives them: the manager has a thread of its own, which owns the
/// connections, renews leases and retries releases.
///
/// When the last clone and the last guard are dropped, the thread ends after the store has confirmed all releases. A
/// program that is about to exit calls [`close`](Self::close) to wait for that.
///
/// A child that was forked without `exec` must make a manager of its own: in the child, every call fails
/// with [`InvalidOption`](LockError::InvalidOption).
///
/// `Debug` shows the settings, without the password of the URL.
#[derive(Clone)]
pub struct LockManager {
    locks: Arc<Locks>,
}

impl LockManager {
    pub(crate) fn new(locks: Locks) -> Self {
        Self { locks: Arc::new(locks) }
    }

    /// Resolves once the store has answered.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        let Locks { table, store, settings, .. } = &*self.locks;
        let limit = table.clock().now().after(settings.connect_timeout);
        store.clone().ready(limit).await.map_err(|fault| fault.into_error(None))
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn into_locks(self) -> Arc<Locks> {
        self.locks
    }

    /// Makes a manager with the default settings, and returns once the store has answered.
    ///
    /// [`LockManagerBuilder::url`] lists the kinds of URLs.
    ///
    /// ```no_run
    /// # use distlock_runtime as distlock;
    /// use distlock::LockManager;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::connect("redis://127.0.0.1:6379").await?;
    /// distlock::init(locks)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store cannot be reached, does not answer within 5 s or
    /// refuses; [`InvalidOption`](LockError::InvalidOption) for a URL that cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future drops the manager with its connections.
    pub async fn connect(url: impl Into<String>) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// Makes a manager with the default settings and without I/O: the first use connects. It is for programs
    /// that must start even if their store is down.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockManager;
    ///
    /// let locks = LockManager::connect_lazy("redis://127.0.0.1:6379")?;
    /// assert!(!locks.status().connected);
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](LockError::InvalidOption) for a URL that cannot be used.
    pub fn connect_lazy(url: impl Into<String>) -> Result<Self, LockError> {
        Self::builder().url(url).build()
    }

    /// Starts a manager with settings of its own: see [`LockManagerBuilder`].
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::builder().url("memory://").wait(Duration::from_secs(2)).build()?;
    /// assert!(locks.lock("order:42").acquire().await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }

    /// Makes a manager from environment variables, without I/O: the first use connects.
    ///
    /// | variable | setting | default |
    /// |---|---|---|
    /// | `DISTLOCK_URL` | [`url`](LockManagerBuilder::url) | required |
    /// | `DISTLOCK_PREFIX` | [`prefix`](LockManagerBuilder::prefix) | `distlock` |
    /// | `DISTLOCK_TTL` | [`ttl`](LockManagerBuilder::ttl), such as `5s` or `1m 30s` | `30s` |
    /// | `DISTLOCK_WAIT` | [`wait`](LockManagerBuilder::wait), such as `500ms`, or `none` | `none` |
    ///
    /// The process-wide manager is made like this if [`init`](crate::init) was not called.
    ///
    /// ```no_run
    /// # use distlock_runtime as distlock;
    /// # use distlock::LockManager;
    /// // DISTLOCK_URL=redis://127.0.0.1:6379 DISTLOCK_PREFIX=shop DISTLOCK_WAIT=2s
    /// let locks = LockManager::from_env()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](LockError::NotConfigured) if `DISTLOCK_URL` is not set;
    /// [`InvalidOption`](LockError::InvalidOption) names the variable whose value cannot be used.
    pub fn from_env() -> Result<Self, LockError> {
        LockManagerBuilder::from_env()?.build()
    }

    /// Makes a manager that keeps its locks in the memory of this process: the same behaviour without a
    /// server, for tests and examples. Every call makes a store of its own.
    ///
    /// Time is the time of the caller's tokio runtime, so a test with `start_paused = true` does not wait:
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// use distlock::LockManager;
    ///
    /// #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// async fn main() -> Result<(), distlock::LockError> {
    ///     let locks = LockManager::in_memory();
    ///     let _held = locks.lock("report").acquire().await?;
    ///
    ///     let refused = locks.lock("report").wait(Duration::from_secs(3600)).acquire().await;
    ///     assert!(refused.is_err_and(|error| error.is_busy()));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// On a runtime without `enable_time`, and in the context of one that has ended, a wait causes a panic
    /// inside tokio, once for each runtime. It is caught, but the panic hook runs and may print it.
    ///
    /// # Panics
    ///
    /// If the system cannot start a thread.
    pub fn in_memory() -> Self {
        match Self::connect_lazy("memory://") {
            Ok(manager) => manager,
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes a request for the lock of `key`, with the manager's defaults. Nothing is sent yet: see
    /// [`LockRequest`] for the options, and for the methods that take the lock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let (one, other) = (locks.lock("order:1"), locks.lock("order:2"));
    /// let (one, other) = (one.acquire().await?, other.acquire().await?);
    /// assert!(one.is_held() && other.is_held(), "different keys are different locks");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn lock(&self, key: impl Into<LockKey>) -> LockRequest {
        LockRequest::new(self.clone(), OneOrMany::One(key.into()), Location::caller())
    }

    /// Makes a request for several locks, all or none: the guard exists, or the body runs, once all of them are
    /// held. One `wait` bounds the time for all, and if one of them is lost, all count as lost.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let accounts = locks.lock_all(["account:7", "account:3"]).acquire().await?;
    /// assert!(accounts.keys().eq(["account:3", "account:7"]), "in one order everywhere");
    /// assert!(locks.lock("account:7").try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// They are taken in the order of their text, each once, and released in reverse order, so that no two
    /// calls wait for each other. While the call waits for one of them, it holds those that sort before: let the key
    /// that is most in demand sort first. `max_hold`, and the `ttl` without renewal, count from when all of
    /// them are held.
    ///
    /// A [`mode`](LockRequest::mode) holds for all of them; [`permits`](LockRequest::permits) are for one
    /// lock.
    #[track_caller]
    pub fn lock_all<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        // A list even for one key: options that are refused for several keys must not depend on their number.
        let keys = OneOrMany::Many(keys.into_iter().map(Into::into).collect());
        LockRequest::new(self.clone(), keys, Location::caller())
    }

    /// Gives no new locks, ends every lease, releases the held locks, and waits at most `timeout` until the
    /// store has confirmed that. For the end of a program, after its servers have stopped.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// use distlock::LockError;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let report = locks.close(Duration::from_secs(5)).await;
    /// assert!(report.is_complete(), "{report:?}");
    /// assert!(matches!(locks.lock("order:42").acquire().await, Err(LockError::Closed)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Holders find their lease lost: a body under it is not polled again, and its caller gets
    /// [`Lost`](crate::LockError::Lost). A lock whose body is in the middle of a poll is released when that poll
    /// ends; if that is after `timeout`, it counts as unconfirmed.
    ///
    /// A clone of a closed manager is closed, too. Calls that wait are refused with
    /// [`Closed`](crate::LockError::Closed). A second call waits for releases that are still unconfirmed.
    ///
    /// In a child that was forked without `exec` it does nothing: the locks are its parent's.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the releases continue in the background.
    pub async fn close(&self, timeout: Duration) -> CloseReport {
        let locks = self.locks();
        let Locks { table, engine, .. } = locks;
        if !table.home().is_here() {
            return CloseReport { freed: 0, unconfirmed: 0 };
        }
        let closing = table.close();
        table.retries.hurry();
        let (mut ending, mut in_use) = (Vec::new(), Vec::new());
        for closing in closing {
            match closing {
                Closing::Free { release, was_held } => {
                    let mut release = table.release(release);
                    release.send();
                    ending.push((release, was_held));
                }
                Closing::InUse(lease) => in_use.push(lease),
            }
        }
        let limit = table.clock().now().after(timeout);
        let mut report = CloseReport { freed: 0, unconfirmed: 0 };
        for (release, was_held) in ending {
            let confirmed = matches!(until(release, locks.alarm(limit)).await, Some(Ok(_)));
            report.freed += usize::from(confirmed && was_held);
            report.unconfirmed += usize::from(!confirmed);
        }
        for lease in in_use {
            match until(lease.returned(), locks.alarm(limit)).await {
                Some(()) => report.freed += 1,
                None => report.unconfirmed += 1,
            }
        }
        // Releases of earlier holders, and of holders that have just let go, are confirmed in the background.
        if until(engine.all_finished(), locks.alarm(limit)).await.is_none() {
            let open = engine.unfinished();
            report.freed = report.freed.saturating_sub(open);
            report.unconfirmed = report.unconfirmed.max(open);
        }
        // Other processes see at once that this one is gone. Its record would end by itself within a minute.
        if table.itself().is_some() {
            let gone = locks.store.clone().take_leave(table.process().to_owned(), limit);
            let _ = until(gone, locks.alarm(limit)).await;
        }
        report
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("store", &self.locks.store)
            .field("prefix", &self.locks.namespace.prefix())
            .field("settings", &self.locks.settings)
            .field("closed", &self.locks.table.is_closed())
            .finish()
    }
}
