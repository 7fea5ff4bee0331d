//! How a manager is made: the builder.

mod environment;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::observe::{Observer, Observers};
use crate::settings::Settings;
use crate::store::Store;
use crate::store::memory::MemoryStore;
#[cfg(feature = "redis")]
use crate::store::redis::{RedisConfig, RedisStore};
use crate::url::StoreUrl;

/// Makes a [`LockManager`] with settings of its own.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// use distlock::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = LockManager::builder()
///     .url("memory://") // or redis://user:password@host:6379/0
///     .prefix("shop")
///     .ttl(Duration::from_secs(10))
///     .wait(Duration::from_secs(2))
///     .connect()
///     .await?;
///
/// let guard = locks.lock("order:42").acquire().await?;
/// assert!(guard.remaining() <= Duration::from_secs(10));
/// # Ok(())
/// # }
/// ```
///
/// `ttl`, `wait`, `max_hold` and `max_waiters` are defaults: a [`LockRequest`](crate::LockRequest) or the
/// attribute may say otherwise. Every setter takes any value; [`build`](Self::build) and
/// [`connect`](Self::connect) answer with an error that says what is wrong with it.
///
/// `Debug` does not show the URL, which may contain a password.
#[derive(Clone, Default)]
#[must_use = "a builder does nothing before `build` or `connect`"]
pub struct LockManagerBuilder {
    url: Option<String>,
    settings: Settings,
    observers: Observers,
}

impl LockManagerBuilder {
    /// Where the locks are kept. Required.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | a Redis server, over TCP; port 6379 and database 0 unless given |
    /// | `redis+unix:///path` | a Redis server, over a Unix socket |
    /// | `memory://` | this manager's own memory: for tests and examples |
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The namespace of the keys in the store, so that applications may share one: the lock `order:42` is
    /// stored under `shop:lock:{order:42}` if the prefix is `shop`. Empty for none. Default: `distlock`.
    ///
    /// Each prefix that was ever used leaves one small key of about 100 bytes in the store for good: the
    /// counter of its fencing tokens.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockManager::builder().url("memory://").prefix("shop").build()?;
    /// assert!(locks.lock("order:42").acquire().await?.is_held()); // on a server, `shop:lock:{order:42}`
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.options.prefix = Some(prefix.into().into());
        self
    }

    /// The length of a lease: how long a lock stays taken if its holder dies. 10 ms to 365 days.
    /// Default: 30 s.
    ///
    /// A live holder's lease is renewed, so the `ttl` may be much shorter than the work. It is the longest
    /// outage of the store, or pause of the process, that a holder survives. The default for requests that
    /// do not say; see [`LockRequest::ttl`](crate::LockRequest::ttl).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.options.ttl = Some(ttl);
        self
    }

    /// How long to wait while others hold a lock; zero is not to wait. Default: zero.
    ///
    /// The default for requests that do not say; see [`LockRequest::wait`](crate::LockRequest::wait).
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.options.wait = Some(wait);
        self
    }

    /// The longest time for which a lease is renewed, counted from when its lock was taken. At least
    /// 10 ms. Default: no limit.
    ///
    /// The default for requests that do not say; see
    /// [`LockRequest::max_hold`](crate::LockRequest::max_hold).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::builder().url("memory://").max_hold(Duration::from_secs(60)).build()?;
    /// let hangs = std::future::pending::<()>();
    /// let stopped = locks.lock("import").run(hangs).await;
    /// assert!(stopped.is_err_and(|error| error.is_lost()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.options.max_hold = Some(max_hold);
        self
    }

    /// How many calls of this process may wait for one lock at a time; each key is counted by itself.
    /// Default: no limit.
    ///
    /// The default for requests that do not say; see
    /// [`LockRequest::max_waiters`](crate::LockRequest::max_waiters).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockManager::builder().url("memory://").max_waiters(1).build()?;
    /// let call = || locks.lock("report").wait(Duration::from_secs(10)).acquire();
    /// let held = call().await?;
    /// let (waits, too_many, _) = tokio::join!(call(), call(), held.release());
    /// assert!(waits?.is_held());
    /// assert!(too_many.unwrap_err().is_busy());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.settings.options.max_waiters = Some(waiters);
        self
    }

    /// How long one command may take before it counts as failed. At least 1 ms. Default: 1 s.
    ///
    /// A call that does not wait for a lock is answered within this time, whatever the store does.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.settings.command_timeout = timeout;
        self
    }

    /// How long it may take to open a connection, authentication included. At least 1 ms. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// How long an outage may last before new calls stop waiting for its end. Default: 5 s.
    ///
    /// A call whose `wait` is longer than `command_timeout` keeps trying while the store is unreachable.
    /// Once the outage has lasted for this time, new calls fail with [`Backend`](LockError::Backend) after
    /// `command_timeout`, unless the store is back by then. Calls that were waiting before go on until
    /// their `wait` is over. With zero, no call that arrives during an outage waits for its end.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// // A web service that would rather answer with an error than wait:
    /// let locks = LockManager::builder()
    ///     .url("redis://127.0.0.1:6379")
    ///     .command_timeout(Duration::from_millis(300))
    ///     .outage_grace(Duration::ZERO)
    ///     .build()?;
    /// # Ok::<_, distlock::LockError>(())
    /// ```
    pub fn outage_grace(mut self, grace: Duration) -> Self {
        self.settings.outage_grace = grace;
        self
    }

    /// The number of connections for commands, 1 to 64; one more is used for renewals. Default: 1.
    ///
    /// One is usually fastest: commands of concurrent calls are sent together. All commands of one key use
    /// the same connection.
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.connections = connections;
        self
    }

    /// Whether a connection that is used often may be read and written on the runtime of its callers.
    /// That makes locks on a near server cheaper: on loopback a lock of a lone task takes two thirds of
    /// the time and half the CPU; over a network it saves CPU alone. If such a runtime is blocked or ends, the
    /// manager's own thread takes the connection back within some 30 ms. A runtime without an I/O driver
    /// (`enable_io`) is found out by a panic inside of tokio, once, which is caught; a panic hook runs.
    ///
    /// `false`: the manager's thread reads and writes, and callers only write what they send.
    /// [`ManagerStatus::driven_by`](crate::ManagerStatus::driven_by) tells how it is at present.
    /// Without effect on `memory://`. Default: `true`.
    pub fn io_on_caller_runtime(mut self, allowed: bool) -> Self {
        self.settings.io_on_caller_runtime = allowed;
        self
    }

    /// Whether other processes may learn which process this is, and what its locks are called: the answers to
    /// "who has my lock?" in [`LockManager::inspect`] and [`LockManager::processes`].
    ///
    /// Then the store has, for as long as the manager takes or renews locks and a minute more, a small record
    /// with the name of the application (`DISTLOCK_APP`, or the executable's), the host, the process
    /// number and the version; and any client that may publish and subscribe to the wake-up channels can ask the
    /// process which locks it holds and waits for: their names in the store, which contain their keys.
    /// Nothing is stored for a lock, and nothing is sent for one.
    ///
    /// `false`: no record, and no answer. Locks work as well, and others see that they are held and not by
    /// whom. Default: `true`.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockManager::builder().url("memory://").identify(false).build()?;
    /// assert!(locks.processes().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn identify(mut self, identify: bool) -> Self {
        self.settings.identify = identify;
        self
    }

    /// The HTTP status of [`LockError::Busy`]: 423 (Locked), 409 (Conflict), 429 (Too Many Requests)
    /// or 503 (Service Unavailable). Default: 423.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = distlock::LockManager::builder().url("memory://").busy_status(409).build()?;
    /// let _first = locks.lock("report").acquire().await?;
    /// let refused = locks.lock("report").acquire().await.unwrap_err();
    /// assert_eq!(refused.http_status(), 409);
    /// # Ok(())
    /// # }
    /// ```
    pub fn busy_status(mut self, status: u16) -> Self {
        self.settings.busy_status = status;
        self
    }

    /// How long clients are advised to wait before they try again: the `Retry-After` of a lock that is held
    /// and of a store that cannot be used, with jitter; see [`LockError::http_retry_after`]. Choose about
    /// the time that the work under a lock takes. Default: 1 s.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::builder().url("memory://").retry_after(Duration::from_secs(3)).build()?;
    /// let _first = locks.lock("report").acquire().await?;
    /// let refused = locks.lock("report").acquire().await.unwrap_err();
    /// // With jitter: between half and one and a half of it.
    /// assert!((2..=5).contains(&refused.http_retry_after().unwrap()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.settings.retry_after = retry_after;
        self
    }

    /// Registers an observer, which is called on everything that happens to the manager's locks. There may
    /// be several: they are called in the order in which they were registered. See [`Observer`] for an example.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }

    /// Makes the manager without I/O: the first use connects. Right where a program is to start while its
    /// store is down; otherwise [`connect`](Self::connect) reports a bad address at once.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockError, LockManager};
    ///
    /// let mistake = LockManager::builder().url("http://localhost").build().unwrap_err();
    /// assert!(matches!(mistake, LockError::InvalidOption { .. }));
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](LockError::InvalidOption) names the setting, and how to fix it.
    pub fn build(self) -> Result<LockManager, LockError> {
        self.build_over(RunsOn::Thread, |store, _, _| store)
    }

    /// [`build`](Self::build) with another store around, or instead of, the one the URL names, and
    /// an engine that `runs_on` this.
    pub(crate) fn build_over(
        self,
        runs_on: RunsOn,
        over: impl FnOnce(Arc<dyn Store>, &Handle, &Arc<Alarms>) -> Arc<dyn Store>,
    ) -> Result<LockManager, LockError> {
        let Self { url, settings, observers } = self;
        let url = url.ok_or_else(|| {
            LockError::invalid_option("url: missing; call `.url(\"redis://…\")` on the builder")
        })?;
        settings.check()?;
        let namespace = settings.namespace()?;
        let locks = match StoreUrl::parse(&url)? {
            StoreUrl::Memory => {
                let observers = observers.of_manager("memory");
                Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                    over(Arc::new(MemoryStore::new()), handle, alarms)
                })?
            }
            #[cfg(feature = "redis")]
            StoreUrl::Redis(info) => {
                let observers = observers.of_manager("redis");
                let config = RedisConfig {
                    info,
                    command_timeout: settings.command_timeout,
                    connect_timeout: settings.connect_timeout,
                    connections: settings.connections,
                    io_on_caller_runtime: settings.io_on_caller_runtime,
                    fence: namespace.fence(),
                    prefix: namespace.prefix().to_owned(),
                    observers: observers.clone(),
                };
                Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                    let store = Arc::new(RedisStore::start(config, handle, alarms));
                    over(store, handle, alarms)
                })?
            }
        };
        Ok(LockManager::new(locks))
    }

    /// Makes the manager and returns once the store has answered.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and [`Backend`](LockError::Backend) if the store cannot be reached,
    /// does not answer within `connect_timeout`, or refuses (a wrong password, for example).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future drops the manager with its connections.
    pub async fn connect(self) -> Result<LockManager, LockError> {
        let manager = self.build()?;
        manager.ready().await?;
        Ok(manager)
    }
}

impl fmt::Debug for LockManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may contain a password.
        f.debug_struct("LockManagerBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
