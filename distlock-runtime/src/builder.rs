//! How a manager is made: the builder.

mod defaults;
mod reach;

use std::fmt;
use std::sync::Arc;

use distlock_core::store::Store;
use tokio::runtime::Handle;

use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::stores::{self, Offers};

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
    store: StoreAt,
    settings: Settings,
    observers: Observers,
}

/// Where the locks are to be kept.
#[derive(Clone, Default)]
enum StoreAt {
    #[default]
    Unsaid,
    Url(String),
    /// A server each, of which a majority decides.
    Quorum(Vec<String>),
}

impl LockManagerBuilder {
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
        let Self { store, mut settings, observers } = self;
        settings.check()?;
        let namespace = settings.namespace()?;
        let kind = match &store {
            StoreAt::Url(url) => stores::parse(url)?,
            StoreAt::Quorum(urls) => stores::quorum(urls)?,
            StoreAt::Unsaid => {
                return Err(LockError::invalid_option(
                    "url: missing; call `.url(\"redis://…\")` on the builder",
                ));
            }
        };
        kind.offers().check(&settings)?;
        let observers = observers.of_manager(kind.name());
        let start = kind.prepare(&mut settings, &namespace, observers.events())?;
        let locks = Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
            over(start(handle, alarms), handle, alarms)
        })?;
        Ok(LockManager::new(locks))
    }

    /// Makes the manager of locks in a store of another crate, called `kind` in metrics, without I/O. `start` makes
    /// the store; it gets the runtime of the manager's own thread, where the store's tasks belong: it has timers and
    /// I/O, and lives as long as the manager.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); and where there is a `url` as well.
    #[doc(hidden)]
    pub fn store<S: Store + 'static>(
        self,
        kind: &'static str,
        start: impl FnOnce(&Handle) -> S,
    ) -> Result<LockManager, LockError> {
        let Self { store: StoreAt::Unsaid, settings, observers } = self else {
            return Err(LockError::invalid_option(
                "url: there is a store already; give one of them",
            ));
        };
        settings.check()?;
        Offers::FOREIGN.check(&settings)?;
        let namespace = settings.namespace()?;
        let observers = observers.of_manager(kind);
        let locks = Locks::start(RunsOn::Thread, settings, namespace, observers, |handle, _| {
            Arc::new(start(handle))
        })?;
        Ok(LockManager::new(locks))
    }

    /// Makes the manager and returns once the store has answered.
    ///
    /// ```no_run
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let builder = distlock::LockManager::builder().url("redis://127.0.0.1:6379").prefix("shop");
    /// distlock::init(builder.connect().await?)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and [`Backend`](LockError::Backend) if the store cannot be reached,
    /// does not answer within `connect_timeout`, or refuses (a wrong password, for example). Servers of a quorum
    /// that answer are waited for until they count, see [`restart_guard`](Self::restart_guard).
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

/// Settings that only the test kit has.
#[cfg(feature = "test-util")]
impl LockManagerBuilder {
    /// Puts what it has as its prefix behind another one.
    pub(crate) fn inside(self, outer: &str) -> Self {
        let inner = self.settings.options.prefix.as_deref().filter(|inner| !inner.is_empty());
        let prefix = inner.map_or(outer.to_owned(), |inner| format!("{outer}:{inner}"));
        self.prefix(prefix)
    }

    /// Shows the probe what happens to every lease of the manager.
    pub(crate) fn probed_by(mut self, probe: Arc<dyn crate::observe::probe::Probe>) -> Self {
        self.observers.set_probe(probe);
        self
    }

    /// Returns the prefix of the manager's locks in the store.
    pub(crate) fn stored_prefix(&self) -> Result<String, LockError> {
        Ok(self.settings.namespace()?.prefix().to_owned())
    }

    /// Has the manager's tokens begin with this, if it is given.
    pub(crate) fn identity(mut self, identity: Option<String>) -> Self {
        self.settings.identity = identity;
        self
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
