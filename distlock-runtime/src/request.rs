//! A request for a lock: the key and how it is to be held.

mod blocking;
mod options;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::time::Duration;

use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::call::{Ask, Call};
use crate::lock::guard::LockGuard;
use crate::lock::hold::hold;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::{Label, LockName};
use crate::one_or_many::OneOrMany;
use crate::options::Options;

const PERMITS_OF_SEVERAL: &str = "permits: not with several locks, where calls that hold a permit of one while they \
                                  wait for another could use up both; take a permit of each with a request of its own";

/// A lock that is about to be taken: what to lock, and how to hold it. Made by
/// [`LockManager::lock`] and [`LockManager::lock_all`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// use distlock::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = LockManager::in_memory();
///
/// // Like the attribute: runs the block under the lock, and releases it however the block ends.
/// let receipt = locks
///     .lock("order:42")
///     .ttl(Duration::from_secs(5))
///     .wait(Duration::from_secs(2))
///     .run(async { "paid" })
///     .await?;
/// assert_eq!(receipt, "paid");
///
/// // Or a guard, for what is not one block.
/// let guard = locks.lock("order:42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Nothing is sent before [`run`](Self::run), [`acquire`](Self::acquire) or
/// [`try_acquire`](Self::try_acquire), which also check the options: a setter takes any value.
#[must_use = "a request takes no lock before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    manager: LockManager,
    keys: OneOrMany<LockKey>,
    label: Label,
    options: Options,
}

impl LockRequest {
    pub(crate) fn new(
        manager: LockManager,
        keys: OneOrMany<LockKey>,
        caller: &'static Location<'static>,
    ) -> Self {
        Self::of(manager, keys, Label::Caller(caller), Options::default())
    }

    /// A request with options that were given elsewhere.
    pub(crate) fn of(
        manager: LockManager,
        keys: OneOrMany<LockKey>,
        label: Label,
        options: Options,
    ) -> Self {
        Self { manager, keys, label, options }
    }

    /// Takes the lock and returns its guard, which holds it until it is released or dropped.
    ///
    /// Returns within max(`wait`, the manager's `command_timeout`) + 50 ms, whatever the store does; within
    /// `command_timeout` + 50 ms where the store has been unreachable for longer than the manager's
    /// [`outage_grace`](crate::LockManagerBuilder::outage_grace).
    ///
    /// For work that is one block prefer [`run`](Self::run): it stops the work when the lease is lost.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// assert!(locks.lock("order:42").acquire().await.is_err_and(|error| error.is_busy()));
    /// guard.release().await?;
    /// assert!(locks.lock("order:42").acquire().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`Busy`](LockError::Busy) if others held the lock for all of `wait`;
    /// - [`Backend`](LockError::Backend) if the store could not be asked, or refused;
    /// - [`WouldDeadlock`](LockError::WouldDeadlock) inside a body under the same lock, without
    ///   [`reentrant`](Self::reentrant);
    /// - [`InvalidKey`](LockError::InvalidKey) and [`InvalidOption`](LockError::InvalidOption) for values
    ///   that cannot work, and [`Closed`](LockError::Closed) once the manager was closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await: a dropped call leaves the queue, and a lock that was granted to it is
    /// released at once.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        // In two steps: what `?` looks at would be part of the future.
        let call = self.begin()?;
        call.acquire().await
    }

    /// The call as it begins now, in a poll of its caller's; or what is wrong with it.
    #[inline(never)] // It would be a part of every function that runs a body under a lock.
    fn begin(self) -> Result<Call, LockError> {
        let (manager, ask) = self.resolve().map_err(|unusable| unusable.refused())?;
        let locks = manager.into_locks();
        let table = &locks.table;
        let asked = table.clock().now();
        // Before anything that takes a mutex: see `home`.
        table.home().check_at(table.clock(), asked)?;
        Call::new(locks, ask, asked)
    }

    /// The request with the manager's defaults, or what is wrong with it.
    #[inline(always)]
    pub(crate) fn resolve(self) -> Result<(LockManager, Ask), Box<Unusable>> {
        let Self { manager, keys, label, options } = self;
        match ask(manager.locks(), keys, &label, &options) {
            Ok(ask) => Ok((manager, ask)),
            Err(error) => Err(Box::new(Unusable { manager, label, error })),
        }
    }

    /// Acquires the lock if it is free, or returns `None` if others hold it. It never waits for them:
    /// [`wait`](Self::wait) and the manager's are ignored. To wait, call [`acquire`](Self::acquire) and ask
    /// its error whether it [`is_busy`](LockError::is_busy).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let first = locks.lock("report").try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(locks.lock("report").try_acquire().await?.is_none(), "it is being written");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without `Busy`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, like [`acquire`](Self::acquire).
    pub async fn try_acquire(mut self) -> Result<Option<LockGuard>, LockError> {
        self.options.wait = Some(Duration::ZERO);
        let call = self.begin()?;
        match call.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock, runs `body` under it, and releases it: what the attribute does, by hand.
    ///
    /// The body is polled only while the lock is held. If the lease is lost, the body is dropped at its next
    /// await, unless [`on_lost`](Self::on_lost) says otherwise. A body that has returned keeps its result,
    /// whatever becomes of the release: a failure is logged, and the release is retried in the background.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let written = locks.lock("report").run(async {
    ///     // At most one process is here.
    ///     "42 pages"
    /// });
    /// assert_eq!(written.await?, "42 pages");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); and [`Lost`](LockError::Lost) if the lease was lost before the body
    /// was done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the body is dropped where it is, then the lock is released.
    #[allow(clippy::needless_late_init)] // The late initialisation is what orders the drops.
    pub async fn run<F: Future>(self, body: F) -> Result<F::Output, LockError> {
        // Declared before the body, so that it is dropped after it: no other call may have the lock
        // while the body's destructors run.
        let mut guard;
        let body = pin!(body);
        let call = self.begin()?;
        guard = call.acquire().await?;
        hold_and_release(&mut guard, body).await
    }
}

#[inline(always)]
fn ask(
    locks: &Locks,
    keys: OneOrMany<LockKey>,
    label: &Label,
    options: &Options,
) -> Result<Ask, LockError> {
    let Locks { settings, usual, namespace, .. } = locks;
    let resolved = options.resolve_over(&settings.options, usual)?;
    settings.lacks.check(&resolved)?;
    if let (Some(_), OneOrMany::Many(_)) = (options.permits, &keys) {
        return Err(LockError::invalid_option(PERMITS_OF_SEVERAL));
    }
    let other = match &options.prefix {
        Some(prefix) => Some(namespace.of_request(prefix)?),
        None => None,
    };
    let namespace = other.as_ref().unwrap_or(namespace);
    let mut wanted = keys.try_map(|key| namespace.name(label.clone(), key))?;
    if wanted.is_empty() {
        return Err(LockError::invalid_option("keys: none; name at least one"));
    }
    if let OneOrMany::Many(wanted) = &mut wanted {
        wanted.sort_by(|a, b| a.stored().cmp(b.stored()));
        wanted.dedup_by(|a, b| a.stored() == b.stored());
    }
    Ok(Ask { wanted, options: resolved })
}

/// A request that nothing can be asked for.
pub(crate) struct Unusable {
    manager: LockManager,
    label: Label,
    pub(crate) error: LockError,
}

impl Unusable {
    /// Reports it to observers.
    fn refused(self) -> LockError {
        let table = &self.manager.locks().table;
        if table.home().is_here() {
            let unnamed = || LockName::unstored(self.label.clone());
            let lock = self.error.lock().map_or_else(unnamed, LockName::clone);
            table.observers().refused(&lock, Duration::ZERO, Some(&self.error), false);
        }
        self.error
    }
}

/// Runs a body under the lock of `guard` and frees it.
pub(crate) async fn hold_and_release<F: Future>(
    guard: &mut LockGuard,
    body: Pin<&mut F>,
) -> Result<F::Output, LockError> {
    let out = hold(guard, body).await?;
    guard.release_quietly().await;
    Ok(out)
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &self.keys)
            .field("name", &format_args!("{}", self.label))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
