//! Locks for code without a runtime: threads, `rayon`, database clients that block.

use super::LockRequest;
use crate::block_on::block_on;
use crate::error::LockError;
use crate::lock::guard::LockGuard;
use crate::lock::nested;
use crate::options::OnLost;

impl LockRequest {
    /// [`acquire`](Self::acquire) for code that is not `async`: this thread does nothing until the lock is
    /// held or refused, within the same time. No runtime is needed; the manager has a thread of its own.
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
    /// On a thread of a runtime it works as well, and keeps every other task of that thread waiting: use
    /// `acquire().await` there, or `tokio::task::spawn_blocking` around it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_blocking(self) -> Result<LockGuard, LockError> {
        // Here, where it is known in which body this thread is.
        let call = self.begin()?;
        block_on(call.acquire())
    }

    /// Takes the lock, runs `body` under it on this thread, and frees it: [`run`](Self::run) for code that is
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
    /// **A closure cannot be stopped.** If the lease is lost it runs on to its end, perhaps beside another
    /// holder, and then the result is [`Lost`](LockError::Lost); with
    /// [`OnLost::Continue`](crate::OnLost::Continue) it is what the closure returned. So ask
    /// [`is_held`](LockGuard::is_held) between steps, and give the
    /// [fencing token](LockGuard::fencing_token) to what is written.
    ///
    /// If the closure panics, the lock is freed, and the panic goes on.
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
        let out = nested::polling(guard.leases(), || body(&guard));
        if guard.on_lost() == OnLost::Cancel && !guard.is_held() {
            return Err(guard.lost_error(false));
        }
        block_on(guard.release_quietly());
        Ok(out)
    }
}
