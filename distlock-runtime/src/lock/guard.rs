//! The guard: a lock that is held, as its user sees it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::core::Loss;
use super::lease::Lease;
use super::locks::Locks;
use crate::error::{IntoLockError, LockError};
use crate::home::Home;
use crate::home::RefuseFork;
use crate::limits::check_ttl;
use crate::observe::Verb;
use crate::one_or_many::OneOrMany;
use crate::options::{OnLost, Release};
use crate::store::{Owned, Renewed};

/// A lock that is held, or several. It is renewed in the background until it is released or dropped.
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::in_memory();
/// let guard = locks.lock("order:42").acquire().await?;
/// assert!(guard.is_held());
///
/// // … work, in steps that each check whether the lock is still held …
///
/// guard.release().await?;
/// assert!(locks.inspect("order:42").await?.is_free());
/// # Ok(())
/// # }
/// ```
///
/// A guard does not stop the work when its lease is lost, as [`LockRequest::run`](crate::LockRequest::run)
/// does: check [`is_held`](Self::is_held) before each step, race the work against [`lost`](Self::lost), or
/// give the [`fencing_token`](Self::fencing_token) to each write.
///
/// It is `Send` and may be moved to another task, which then holds the lock.
///
/// # `let _ = …` frees the lock at once
///
/// `let _ = locks.lock("order:42").acquire().await?;` drops the guard in the same statement, although
/// the compiler proposes it for a value that is not used. Bind the guard to a name: `let _guard = …`
/// holds the lock until the end of the block.
///
/// # Dropping a guard does not wait
///
/// `Drop` sends the release and returns. The manager's thread waits for the answer and retries, also
/// outside a runtime and while a runtime shuts down. A program that ends right after the drop may end
/// before the command is sent; then the lock is free after its `ttl`. Use [`release`](Self::release) to
/// wait for the answer, and [`LockManager::close`](crate::LockManager::close) at the end of a program.
#[must_use = "if unused the lock is freed at once: bind it to a name, `let _guard = …`; with `let _ = …` it is freed at once, too"]
pub struct LockGuard {
    pub(super) locks: Arc<Locks>,
    pub(super) on_lost: OnLost,
    /// Of the lock of a body.
    pub(super) release: Release,
    /// In stored order, those this guard frees before those it joined.
    pub(super) leases: OneOrMany<Arc<Lease>>,
    /// How many of them this guard frees; the others are an outer call's.
    pub(super) owned: usize,
}

impl LockGuard {
    /// The key that is locked, without the prefix; of several, the first in the order of their text.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// assert_eq!(locks.lock("order:42").acquire().await?.key(), "order:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// The keys that are locked, each once, in the order of their text.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock_all(["account:9", "account:10"]).acquire().await?;
    /// assert_eq!(guard.keys().collect::<Vec<_>>(), ["account:10", "account:9"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.in_order().map(|lease| lease.name().key())
    }

    /// A number that is larger than that of every earlier holder of the lock; of several locks, the largest
    /// of theirs.
    ///
    /// Give it to the resource that the lock protects, and let that refuse a token smaller than one it has
    /// seen. This stops the late write of a former holder: one that was paused between its last check and
    /// its write, or whose lock was lost with the store's data.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let former = locks.lock("order:42").acquire().await?.fencing_token();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// assert!(guard.fencing_token() > former);
    /// // UPDATE orders SET …, fence = $token WHERE id = 42 AND fence <= $token
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// After the store has lost its data, a lease may be handed over within a process until the loss is
    /// noticed, at the next renewal or within a second. The token of such a holder is smaller than that of a
    /// newer holder in another process.
    pub fn fencing_token(&self) -> u64 {
        self.leases.iter().map(|lease| lease.fencing_token()).max().unwrap_or_default()
    }

    /// The fencing token of each key, in the order of [`keys`](Self::keys): for a resource behind each.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock_all(["account:3", "account:7"]).acquire().await?;
    /// for (account, token) in guard.keys().zip(guard.fencing_tokens()) {
    ///     assert!(account.starts_with("account:") && token <= guard.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn fencing_tokens(&self) -> impl Iterator<Item = u64> {
        self.in_order().map(|lease| lease.fencing_token())
    }

    fn in_order(&self) -> impl Iterator<Item = &Lease> {
        let mut leases: Vec<&Lease> = self.leases.iter().map(|lease| &**lease).collect();
        leases.sort_by(|a, b| a.name().stored().cmp(b.name().stored()));
        leases.into_iter()
    }

    /// How long the lease still runs if it is not renewed; of several, the shortest. Zero once it is lost.
    ///
    /// With renewal it goes up again, so it says how long the holder survives an outage that begins now.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let ttl = Duration::from_secs(30);
    /// let guard = locks.lock("import").ttl(ttl).renew(false).acquire().await?;
    /// tokio::time::sleep(Duration::from_secs(10)).await;
    /// assert!(guard.remaining() <= Duration::from_secs(20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.leases.iter().map(|lease| lease.remaining()).min().unwrap_or_default()
    }

    /// Whether the lock is held at this moment; of several, every one. It may be lost the moment after: for
    /// a write that must not be late, use the [`fencing_token`](Self::fencing_token).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("import").acquire().await?;
    /// let mut imported = 0;
    /// while guard.is_held() && imported < 3 {
    ///     imported += 1;
    /// }
    /// assert_eq!(imported, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_held(&self) -> bool {
        self.leases.iter().all(|lease| lease.is_held())
    }

    /// Extends the lease to at least `ttl` from now; it is never shortened, nor extended past `max_hold`.
    ///
    /// With renewal, which is the default, it is rarely needed: before a step that must survive a longer
    /// outage than the others. With `renew(false)` it is how a holder gets more time.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let second = Duration::from_secs(1);
    /// let guard = locks.lock("import").ttl(second).renew(false).acquire().await?;
    /// guard.extend(60 * second).await?;
    /// tokio::time::sleep(2 * second).await;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock is no longer held; [`Backend`](LockError::Backend) if the store
    /// did not confirm (the lease ends when it would have); [`InvalidOption`](LockError::InvalidOption) if
    /// `ttl` is not within 10 ms and 365 days.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lease may or may not have been extended.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        check_ttl(ttl)?;
        self.home().check()?;
        if !self.is_held() {
            return Err(self.lost_error(false));
        }
        let table = &self.locks.table;
        let renewals: Option<Vec<_>> =
            self.leases.iter().map(|lease| table.extension(lease, ttl)).collect();
        let Some(renewals) = renewals else { return Err(self.lost_error(false)) };
        let op = self.locks.store.clone().renew(renewals.clone());
        let renewed =
            table.observers().timed(Verb::Renew, (table.clock(), table.clock().now()), op).await;
        let Renewed { sent, answers } =
            renewed.map_err(|fault| fault.into_error(Some(self.leases[0].name())))?;
        let mut doubt = None;
        for ((lease, renewal), answer) in self.leases.iter().zip(&renewals).zip(answers) {
            match answer {
                Ok(Owned::Yes { .. }) => table.extended(lease, sent, renewal.ttl),
                Ok(Owned::No) => drop(table.taken_away(&renewal.owner, Loss::Taken)),
                Err(fault) => doubt = Some(fault.into_error(Some(lease.name()))),
            }
        }
        match doubt {
            _ if !self.is_held() => Err(self.lost_error(false)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Resolves when the lease is lost; of several, when the first one is. It does not resolve while the
    /// lock is held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let work = std::future::pending::<()>();
    /// let guard = locks.lock("import").acquire().await?;
    /// locks.force_release("import").await?;
    /// let outcome = tokio::select! {
    ///     () = guard.lost() => "stopped",
    ///     () = work => "done",
    /// };
    /// assert_eq!(outcome, "stopped");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Once the deadline has passed, it is ready at its next poll even if the loss was not noticed before,
    /// because the machine was suspended, for example.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it may be polled, dropped and called again.
    pub async fn lost(&self) {
        if !self.home().is_here() {
            return;
        }
        let mut noticed = pin!(self.lost_noticed());
        poll_fn(|cx| {
            if self.leases.iter().any(|lease| lease.is_lost(&self.locks.table)) {
                return Poll::Ready(());
            }
            noticed.as_mut().poll(cx)
        })
        .await;
    }

    /// Releases the lock and waits for the store's answer; several locks in reverse order. With `min_hold`
    /// the store keeps the lock until that time is over.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("order:42").acquire().await?;
    /// guard.release().await?;
    /// assert!(locks.inspect("order:42").await?.is_free());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lease was lost before, so that others may have had the lock
    /// meanwhile; [`Backend`](LockError::Backend) if the store did not confirm within `command_timeout`: the
    /// release is retried in the background until the lock has expired by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the release goes on in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        self.release_all().await
    }

    pub(super) fn home(&self) -> Home {
        self.locks.table.home()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("leases", &self.leases).finish_non_exhaustive()
    }
}
