//! A guard that has its lock alone goes on as one that reads.

use super::guard::LockGuard;
use crate::error::LockError;
use crate::home::RefuseFork;

impl LockGuard {
    /// Goes on as a reader: others may read as well from here on, and no writer has come in between.
    ///
    /// For work that changes something and goes on to read what it has written. Readers that waited in
    /// front come in at once; a writer that waits keeps later readers out, and comes when this guard and
    /// theirs are released. A guard that reads is returned as it is. There is no way back: two readers that
    /// both want to write would wait for each other for ever. Release the guard, take
    /// [`LockMode::Write`](crate::LockMode::Write) and look again at what was read.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let read = || locks.lock("report").mode(LockMode::Read).try_acquire();
    ///
    /// let guard = locks.lock("report").mode(LockMode::Write).acquire().await?;
    /// assert!(read().await?.is_none(), "it is being written");
    /// let guard = guard.downgrade().await?;
    /// assert!(read().await?.is_some() && guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The guard gets a new, larger [`fencing_token`](Self::fencing_token), and its lease begins anew, within
    /// `max_hold`. Of several locks each is exchanged by itself.
    ///
    /// # Errors
    ///
    /// The lock is released with each of them:
    ///
    /// - [`Lost`](LockError::Lost) if the lease was lost before;
    /// - [`Backend`](LockError::Backend) if the store did not confirm within `command_timeout`;
    /// - [`InvalidOption`](LockError::InvalidOption) for a guard of `permits`, and for one that takes part in
    ///   the lock of an outer call (`reentrant`).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lock is released.
    pub async fn downgrade(self) -> Result<Self, LockError> {
        self.home().check()?;
        if self.owned < self.leases.len() {
            let text =
                "downgrade: the lock is an outer call's, which has it alone; downgrade that one";
            return Err(LockError::invalid_option(text));
        }
        if self.leases.iter().any(|lease| lease.limit().as_permits().is_some()) {
            let text = "downgrade: of permits there is nothing to downgrade; release the guard";
            return Err(LockError::invalid_option(text));
        }
        for lease in self.leases.iter().filter(|lease| lease.limit().is_alone()) {
            self.locks.table.downgrade(lease).await?;
        }
        Ok(self)
    }
}
