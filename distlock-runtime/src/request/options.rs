//! The options of a request, a method each. What they may be is checked when the lock is taken.

use std::borrow::Cow;
use std::time::Duration;

use super::LockRequest;
use crate::name::Label;
use crate::options::{LockMode, OnLost, Release};

impl LockRequest {
    /// The length of the lease: how long the lock stays taken if its holder dies. 10 ms to 365 days.
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

    /// How long to wait while others hold the lock; zero is not to wait. Default: the manager's, zero.
    ///
    /// Waiters are served first come, first served, over all processes, and are notified when it is their
    /// turn. Clients that retry in step without jitter can starve a process: let the pause between two
    /// tries vary.
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

    /// Whether the lease is renewed for as long as the lock is held. Default: true.
    ///
    /// With false the holder has the `ttl` and no more: then the lease is lost, and others may have the
    /// lock.
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

    /// The longest time for which the lease is renewed, counted from when the lock was taken; then it
    /// counts as lost. At least 10 ms. Default: the manager's, no limit.
    ///
    /// A guard against work that hangs:
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

    /// The shortest time for which the lock stays taken, counted from when it was taken, however the call
    /// ends. At most `max_hold` and 365 days. Default: none.
    ///
    /// For a scheduled job that is shorter than the difference between the clocks of its replicas: it runs
    /// once although they start it at slightly different times. The caller does not wait for it.
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

    /// What becomes of the body of [`run`](Self::run) when the lease is lost. Default:
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

    /// What a nested call does, that is, a call from inside a body that runs under the same lock: join the
    /// lock (true), or fail with [`WouldDeadlock`](crate::LockError::WouldDeadlock) (false). Default: false.
    ///
    /// A call that joins has the fencing token of the outer call; its durations are ignored, and the
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

    /// Which calls may hold the lock at the same time. Default: [`LockMode::Exclusive`], one alone.
    ///
    /// Readers hold it together, in any number of processes, and a writer alone. They are served in the
    /// order in which they came: a writer that waits keeps later readers out, so it waits only for
    /// the readers that came before it. A write inside a read of the same lock is always
    /// [`WouldDeadlock`](crate::LockError::WouldDeadlock); the other way round there is
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
    /// Of several locks ([`lock_all`](crate::LockManager::lock_all)) all are held in the same mode. Not
    /// together with [`permits`](Self::permits).
    pub fn mode(mut self, mode: LockMode) -> Self {
        self.options.mode = Some(mode);
        self
    }

    /// How many may hold the lock at once, over all processes: a counting semaphore. At least 1, which is
    /// an exclusive lock. Default: exclusive.
    ///
    /// Each permit is a lease of its own, with its `ttl`: those of a process that died come free after
    /// that. The number is not stored. Each call is let in if fewer than its own number hold the lock,
    /// so callers with different numbers never make more than the largest of them, and a number that
    /// was lowered takes effect as permits come back.
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
    /// For one lock: with [`lock_all`](crate::LockManager::lock_all), and together with
    /// [`mode`](Self::mode), it is refused as [`InvalidOption`](crate::LockError::InvalidOption).
    pub fn permits(mut self, permits: u32) -> Self {
        self.options.permits = Some(permits);
        self
    }

    /// When [`run`](Self::run) returns its result: after the store confirmed the release, or as soon as
    /// the release is sent. Default: [`Release::Wait`].
    ///
    /// It has no effect on a guard: [`LockGuard::release`](crate::LockGuard::release) always waits, dropping a guard never does.
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

    /// A label for errors and events. Default: the place where the request was made.
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

    /// The namespace in the store instead of the manager's; empty for none. Locks under different prefixes
    /// are different locks. Default: the manager's, `distlock`.
    ///
    /// Each prefix that was ever used leaves one small key in the store for good; see
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

    /// How many calls of this process may wait for one lock at a time; 0 is not to wait. Default: the
    /// manager's, no limit.
    ///
    /// A call that finds so many waiters fails with [`Busy`](crate::LockError::Busy) at once, without asking the
    /// store: better than a crowd that waits in vain. Each key is counted by itself, over all calls of this
    /// manager that wait for it, and only when a call arrives: the first call that finds no holder and no
    /// waiter in this process asks the store, and counts once it waits.
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
}
