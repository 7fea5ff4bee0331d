//! What the locks of a manager are like, and what observes them.

use std::time::Duration;

use super::LockManagerBuilder;
use crate::error::LockError;
use crate::observe::Observer;

impl LockManagerBuilder {
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
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::builder().url("memory://").ttl(Duration::from_secs(10)).build()?;
    /// let guard = locks.lock("report").acquire().await?;
    /// // A minute of work: the lease is renewed, and ends 10 s after a crash.
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// assert!(guard.is_held());
    /// assert!(guard.remaining() <= Duration::from_secs(10));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.options.ttl = Some(ttl);
        self
    }

    /// How long to wait while others hold a lock; zero is not to wait. Default: zero.
    ///
    /// The default for requests that do not say; see [`LockRequest::wait`](crate::LockRequest::wait).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # use distlock::LockManager;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = LockManager::builder().url("memory://").wait(Duration::from_secs(2)).build()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(locks.lock("report").acquire().await.unwrap_err().is_busy());
    /// assert!(start.elapsed() >= Duration::from_secs(2));
    /// // Of this call alone: not at all.
    /// assert!(locks.lock("report").wait(Duration::ZERO).acquire().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
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

    /// Whether other processes may learn which process this is, and what its locks are called: the answers to
    /// "who has my lock?" in [`LockManager::inspect`](crate::LockManager::inspect) and
    /// [`LockManager::processes`](crate::LockManager::processes).
    ///
    /// Then the store has, for as long as the manager takes or renews locks and a minute more, a small record
    /// with the name of the application (`DISTLOCK_APP`, or the executable's), the host, the process
    /// number and the version; and any client that may publish and subscribe to the wake-up channels can ask the
    /// process which locks it holds and waits for: their names in the store, which contain their keys.
    /// Nothing is stored for a lock, and nothing is sent for one.
    ///
    /// `false`: no record, and no answer. Locks work as well, and others see that they are held, but not by
    /// which process. Default: `true`.
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

    /// The HTTP status of [`LockError::Busy`](crate::LockError::Busy): 423 (Locked), 409 (Conflict), 429 (Too Many Requests)
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
        self.settings.advice.busy_status = status;
        self
    }

    /// How long clients are advised to wait before they try again: the `Retry-After` of a lock that is held
    /// and of a store that cannot be used, with jitter; see [`http_retry_after`](crate::LockError::http_retry_after). Choose about
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
        self.settings.advice.retry_after = retry_after;
        self
    }

    /// Registers an observer, which is called on everything that happens to the manager's locks. There may
    /// be several: they are called in the order in which they were registered. See [`Observer`] for an example.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// use distlock::observe::{Observer, Refused};
    /// use distlock::{LockManager, LockName};
    ///
    /// #[derive(Clone, Default)]
    /// struct Refusals(Arc<AtomicU32>);
    ///
    /// impl Observer for Refusals {
    ///     fn refused(&self, _: &LockName, _: &Refused<'_>) {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let refusals = Refusals::default();
    /// let locks = LockManager::builder().url("memory://").observer(refusals.clone()).build()?;
    /// let _held = locks.lock("report").acquire().await?;
    /// assert!(locks.lock("report").acquire().await.is_err());
    /// assert_eq!(refusals.0.load(Ordering::Relaxed), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.add(observer);
        self
    }
}

impl LockManagerBuilder {
    /// The settings that the environment names, see [`LockManager::from_env`](crate::LockManager::from_env).
    pub(crate) fn from_env() -> Result<Self, LockError> {
        let mut builder =
            Self::default().url(variable("DISTLOCK_URL")?.ok_or(LockError::NotConfigured)?);
        if let Some(prefix) = variable("DISTLOCK_PREFIX")? {
            builder = builder.prefix(prefix);
        }
        if let Some(ttl) = variable("DISTLOCK_TTL")? {
            builder = builder.ttl(duration("DISTLOCK_TTL", &ttl)?);
        }
        if let Some(wait) = variable("DISTLOCK_WAIT")? {
            let none = wait.trim() == "none";
            builder =
                builder.wait(if none { Duration::ZERO } else { duration("DISTLOCK_WAIT", &wait)? });
        }
        Ok(builder)
    }
}

fn variable(name: &str) -> Result<Option<String>, LockError> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(LockError::invalid_option(format!("{name}: is not valid UTF-8")))
        }
    }
}

fn duration(name: &str, text: &str) -> Result<Duration, LockError> {
    humantime::parse_duration(text).map_err(|error| {
        LockError::invalid_option(format!(
            "{name}: {error}; write a duration such as `5s` or `1m 30s`"
        ))
    })
}
