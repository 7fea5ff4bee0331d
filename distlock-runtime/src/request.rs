//! A request for a lock: its keys, its options, and the ways to take it.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::time::Duration;

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use distlock_core::name::{Label, LockName};

use crate::block_on::block_on;
use crate::error::LockError;
use crate::lock::acquire::{Ask, Call};
use crate::lock::guard::LockGuard;
use crate::lock::hold::{hold, polling};
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::options::{LockMode, LockOptions, OnLost, Release};

const PERMITS_OF_SEVERAL: &str = "permits: not with several locks, where calls that hold a permit of one while they \
                                  wait for another could use up both; take a permit of each with a request of its own";

/// A request for a lock, with its options. [`LockManager::lock`] and [`LockManager::lock_all`] make one.
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
/// [`try_acquire`](Self::try_acquire). These also check the options: a setter takes any value.
#[must_use = "a request takes no lock before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    manager: LockManager,
    keys: OneOrMany<LockKey>,
    label: Label,
    options: LockOptions,
}

impl LockRequest {
    pub(crate) fn new(
        manager: LockManager,
        keys: OneOrMany<LockKey>,
        caller: &'static Location<'static>,
    ) -> Self {
        Self::of(manager, keys, Label::Caller(caller), LockOptions::default())
    }

    /// Makes a request with options that were set elsewhere.
    pub(crate) fn of(
        manager: LockManager,
        keys: OneOrMany<LockKey>,
        label: Label,
        options: LockOptions,
    ) -> Self {
        Self { manager, keys, label, options }
    }

    /// Sets the length of the lease: how long the lock stays taken if its holder dies. 10 ms to 365 days.
    /// Default: the manager's, 30 s.
    ///
    /// A live holder's lease is renewed, so the `ttl` may be much shorter than the work. It is the longest
    /// outage of the store, or pause of the process, that the holder survives.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("order:42").ttl(Duration::from_secs(5)).acquire().await?;
    /// assert!(guard.remaining() <= Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Sets how long to wait while others hold the lock; with zero the call does not wait. Default: the manager's, zero.
    ///
    /// Waiters are served first come, first served, over all processes, and are notified when it is their
    /// turn. Clients that retry in step without jitter can starve a process: let the pause between two
    /// attempts vary.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let first = locks.lock("report").acquire().await?;
    /// let second = locks.lock("report").wait(Duration::from_secs(2)).acquire();
    ///
    /// let (released, second) = tokio::join!(first.release(), second);
    /// assert!(released.is_ok() && second?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Sets whether the lease is renewed for as long as the lock is held. Default: true.
    ///
    /// With false the holder has the `ttl` and no more. Then the lease is lost, and others may take the lock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("report").ttl(Duration::from_secs(5)).renew(false).acquire().await?;
    /// guard.lost().await; // in five seconds
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew(mut self, renew: bool) -> Self {
        self.options.renew = Some(renew);
        self
    }

    /// Sets the longest time for which the lease is renewed, counted from when the lock was taken. Then it
    /// counts as lost. At least 10 ms. Default: the manager's, no limit.
    ///
    /// It protects against work that hangs:
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let hangs = std::future::pending::<()>();
    /// let stopped = locks.lock("import").max_hold(Duration::from_secs(60)).run(hangs).await;
    /// assert!(stopped.is_err_and(|error| error.is_lost()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// Sets the shortest time for which the lock stays taken, counted from when it was taken, however the call
    /// ends. At most `max_hold` and 365 days. Default: none.
    ///
    /// It is for a scheduled job that is shorter than the difference between the clocks of its replicas. The job runs
    /// once although they start it at slightly different times. The caller does not wait for this time.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let job = || locks.lock("report").min_hold(Duration::from_secs(60));
    /// job().run(async { /* done in no time */ }).await?;
    /// // A replica whose clock is a little late:
    /// assert!(job().run(async {}).await.is_err_and(|error| error.is_busy()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.options.min_hold = Some(min_hold);
        self
    }

    /// Sets whether the body of [`run`](Self::run) is stopped when the lease is lost. Default:
    /// [`OnLost::Cancel`].
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::OnLost;
    /// # use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let long = tokio::time::sleep(Duration::from_secs(60));
    /// let lock = locks.lock("report").max_hold(Duration::from_secs(10)).on_lost(OnLost::Continue);
    /// lock.run(long).await?; // runs to its end, fifty seconds without the lock
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.options.on_lost = Some(on_lost);
        self
    }

    /// Sets the behaviour of a nested call, that is, of a call from inside a body that runs under the same lock. With true
    /// it joins the lock; with false it fails with [`WouldDeadlock`](crate::LockError::WouldDeadlock). Default: false.
    ///
    /// A call that joins has the fencing token of the outer call. Its durations are ignored, and the
    /// outermost call releases the lock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockError;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let nested = async {
    ///     let joined = locks.lock("order:42").reentrant(true).acquire().await;
    ///     let refused = locks.lock("order:42").acquire().await;
    ///     (joined.is_ok(), matches!(refused, Err(LockError::WouldDeadlock { .. })))
    /// };
    /// assert_eq!(locks.lock("order:42").run(nested).await?, (true, true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.options.reentrant = Some(reentrant);
        self
    }

    /// Sets which calls may hold the lock at the same time. Default: [`LockMode::Exclusive`], one alone.
    ///
    /// Readers hold it together, in any number of processes, and a writer alone. They are served in the
    /// order of their arrival: a waiting writer keeps later readers out, so it waits only for
    /// the readers that came before it. A write inside a read of the same lock is always
    /// [`WouldDeadlock`](crate::LockError::WouldDeadlock). A writer becomes a reader with
    /// [`downgrade`](crate::LockGuard::downgrade).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let read = || locks.lock("prices").mode(LockMode::Read);
    /// let readers = (read().acquire().await?, read().acquire().await?);
    /// assert!(locks.lock("prices").mode(LockMode::Write).try_acquire().await?.is_none());
    /// # drop(readers);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Several locks ([`lock_all`](crate::LockManager::lock_all)) are all held in the same mode. Not together with [`permits`](Self::permits).
    pub fn mode(mut self, mode: LockMode) -> Self {
        self.options.mode = Some(mode);
        self
    }

    /// Sets how many calls may hold the lock at once, over all processes: a counting semaphore. At least 1, which is
    /// an exclusive lock. Default: exclusive.
    ///
    /// Each permit is a lease of its own. If a process dies, its permits are free again after their `ttl`. The number is
    /// not stored: a call is let in if fewer calls than its own number hold the lock. So callers with different numbers
    /// never exceed the largest of these, and a lowered number takes effect as permits are returned.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let call = || locks.lock("partner").permits(2);
    /// let calls = (call().acquire().await?, call().acquire().await?);
    /// assert!(call().try_acquire().await?.is_none(), "two are under way");
    /// # drop(calls);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is for one lock: with [`lock_all`](crate::LockManager::lock_all), and together with
    /// [`mode`](Self::mode), it is refused with [`InvalidOption`](crate::LockError::InvalidOption).
    pub fn permits(mut self, permits: u32) -> Self {
        self.options.permits = Some(permits);
        self
    }

    /// Sets when [`run`](Self::run) returns its result: after the store has confirmed the release, or as soon as
    /// the release is sent. Default: [`Release::Wait`].
    ///
    /// It has no effect on a guard: [`LockGuard::release`](crate::LockGuard::release) always waits, and dropping a guard
    /// never does.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::Release;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let lock = locks.lock("order:42").release(Release::Background);
    /// assert_eq!(lock.run(async { "paid" }).await?, "paid");
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self, release: Release) -> Self {
        self.options.release = Some(release);
        self
    }

    /// Sets a label for errors and events. Default: the file and line of the request.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _first = locks.lock("order:42").acquire().await?;
    /// let refused = locks.lock("order:42").name("checkout").acquire().await.unwrap_err();
    /// assert!(refused.to_string().starts_with("lock checkout is held elsewhere"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.label = Label::Given(name.into());
        self
    }

    /// Sets the namespace in the store; empty for none. Locks under different prefixes are different locks. Default: the manager's, `distlock`.
    ///
    /// Each prefix that was ever used leaves one small key in the store permanently; see
    /// [`LockManagerBuilder::prefix`](crate::LockManagerBuilder::prefix).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let shop = locks.lock("order:42").prefix("shop").acquire().await?;
    /// let billing = locks.lock("order:42").prefix("billing").acquire().await?;
    /// assert!(shop.is_held() && billing.is_held(), "different prefixes are different locks");
    /// # Ok(())
    /// # }
    /// ```
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.options.prefix = Some(prefix.as_ref().into());
        self
    }

    /// Sets how many calls of this process may wait for one lock at a time; with 0 none waits. Default: the
    /// manager's, no limit.
    ///
    /// A call that finds that many waiters fails with [`Busy`](crate::LockError::Busy) at once, without asking the
    /// store. This avoids a stampede whose waits would all time out. Waiters are counted for each key, over all calls of
    /// this manager, and only when a call arrives. A call that finds no holder and no waiter in this process asks the
    /// store, and counts once it waits.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let call = || locks.lock("report").wait(Duration::from_secs(10)).max_waiters(1).acquire();
    /// let held = call().await?;
    /// let (waits, too_many, _) = tokio::join!(call(), call(), held.release());
    /// assert!(waits?.is_held());
    /// assert!(too_many.unwrap_err().is_busy());
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.options.max_waiters = Some(waiters);
        self
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
    /// Cancel safe at every await: a dropped call leaves the queue, and a lock that was just granted to it is
    /// released at once.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        // In two steps: otherwise the operand of `?` would be a part of the future.
        let call = self.begin()?;
        call.acquire().await
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

    /// Takes the lock, runs `body` under it, and releases it, as the attribute does.
    ///
    /// The body is polled only while the lock is held. If the lease is lost, the body is dropped at its next
    /// await, unless [`on_lost`](Self::on_lost) says otherwise. A body that has returned keeps its result, even if the
    /// release fails: the failure is logged, and the release is retried in the background.
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
        // Declared before the body, so dropped after it: no other call may have the lock while the body's
        // destructors run.
        let mut guard;
        let body = pin!(body);
        let call = self.begin()?;
        guard = call.acquire().await?;
        hold_and_release(&mut guard, body).await
    }

    /// Acquires the lock for code that is not `async`, as [`acquire`](Self::acquire) does. The thread blocks until the
    /// lock is held or refused, within the same time. No runtime is needed; the manager has a thread of its own.
    ///
    /// The guard is freed when it is dropped, in the background.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire_blocking()?;
    /// assert!(guard.is_held());
    /// assert!(locks.lock("order:42").acquire_blocking().unwrap_err().is_busy());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It works on a thread of a runtime as well, but blocks every other task of that thread: use
    /// `acquire().await` there, or `tokio::task::spawn_blocking` around this call.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        // Begins on this thread, which knows in which body it is.
        let call = self.begin()?;
        block_on(call.acquire())
    }

    /// Takes the lock, runs `body` under it on this thread, and releases it: [`run`](Self::run) for code that is
    /// not `async`.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let written = locks.lock("report").run_blocking(|guard| {
    ///     for _page in 0..3 {
    ///         if !guard.is_held() {
    ///             return 0; // others may write it now
    ///         }
    ///         // … write a page …
    ///     }
    ///     3
    /// });
    /// assert_eq!(written?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **A closure cannot be stopped.** If the lease is lost, the closure still runs to its end, perhaps beside another
    /// holder. The result is [`Lost`](LockError::Lost) then; with [`OnLost::Continue`] it is the closure's own. So ask
    /// [`is_held`](LockGuard::is_held) between steps, and pass the
    /// [fencing token](LockGuard::fencing_token) to each write.
    ///
    /// If the closure panics, the lock is freed, and the panic continues.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_blocking<T>(self, body: impl FnOnce(&LockGuard) -> T) -> Result<T, LockError> {
        let mut guard = self.acquire_blocking()?;
        guard.leases().iter().for_each(|lease| lease.begin_body());
        if !guard.is_held() {
            return Err(guard.not_begun_error());
        }
        let out = polling(&guard, || body(&guard));
        if guard.on_lost() == OnLost::Cancel && !guard.is_held() {
            return Err(guard.lost_error(false));
        }
        block_on(guard.release_quietly());
        Ok(out)
    }

    /// Begins the call, in a poll of its caller's, unless the request cannot be used.
    #[inline(never)] // Inlined, it would be a part of every function that runs a body under a lock.
    fn begin(self) -> Result<Call, LockError> {
        let (manager, ask) = self.resolve().map_err(|unusable| unusable.refused())?;
        Call::new(manager.into_locks(), ask)
    }

    /// Fills in the manager's defaults, and checks the result.
    #[inline(always)]
    pub(crate) fn resolve(self) -> Result<(LockManager, Ask), Box<Unusable>> {
        let Self { manager, keys, label, options } = self;
        match ask(manager.locks(), keys, &label, &options) {
            Ok(ask) => Ok((manager, ask)),
            Err(error) => Err(Box::new(Unusable { manager, label, error })),
        }
    }
}

/// Resolves the options and the names of the locks. Several locks are sorted, and taken once each.
#[inline(always)]
fn ask(
    locks: &Locks,
    keys: OneOrMany<LockKey>,
    label: &Label,
    options: &LockOptions,
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

/// A request that cannot be used, and the reason.
pub(crate) struct Unusable {
    manager: LockManager,
    label: Label,
    pub(crate) error: LockError,
}

impl Unusable {
    /// Reports the refusal to observers, and returns the error.
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

/// Runs a body under the lock of `guard`, and releases the lock.
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
