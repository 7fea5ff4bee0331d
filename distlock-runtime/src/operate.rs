//! Looking at a manager, and taking a lock away: for health checks and operators.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{IntoLockError, LockError};
use crate::home::RefuseFork;
use crate::key::LockKey;
use crate::lock::core::{Freeing, Loss};
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::LockName;
use crate::status::ManagerStatus;
use crate::store::StoreStatus;
use crate::store::owner::Owner;
use crate::store::status::{DrivenBy, WakeUps};

impl LockManager {
    /// Sends the store a command that changes nothing, and returns the time until its answer: for health
    /// checks and dashboards. In memory that is zero.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let health = match locks.ping().await {
    ///     Ok(round_trip) => format!("up, {round_trip:?}"),
    ///     Err(error) => format!("down: {error}"),
    /// };
    /// assert_eq!(health, "up, 0ns");
    /// # }
    /// ```
    ///
    /// It uses the connection that locks are taken over (the first of several), and answers within the
    /// manager's `command_timeout`. A store that answers may still refuse to give locks: a replica does.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store cannot be reached, does not answer in time or refuses;
    /// [`Closed`](LockError::Closed) once the manager was closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let Locks { table, store, settings, .. } = self.locks();
        table.home().check()?;
        if table.is_closed() {
            return Err(LockError::Closed);
        }
        let limit = table.clock().now().after(settings.command_timeout);
        store.clone().ping(limit).await.map_err(|fault| fault.into_error(None))
    }

    /// Whether the manager is connected, and how many locks it holds and waits for. It does no I/O; see
    /// [`ManagerStatus`].
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _guard = locks.lock("report").acquire().await?;
    /// let status = locks.status();
    /// assert!(status.connected);
    /// assert_eq!(status.held, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> ManagerStatus {
        let Locks { table, store, .. } = self.locks();
        if !table.home().is_here() {
            return ManagerStatus {
                connected: false,
                closed: table.is_closed(),
                held: 0,
                waiting: 0,
                wake_ups: WakeUps::Polling,
                driven_by: DrivenBy::Manager,
            };
        }
        let StoreStatus { connected, wake_ups, driven_by } = store.status();
        ManagerStatus {
            connected,
            closed: table.is_closed(),
            held: table.held(),
            waiting: table.waiting(),
            wake_ups,
            driven_by,
        }
    }

    /// Releases a lock that another process holds: a tool for operators. Returns whether it was held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let stuck = locks.lock("import").acquire().await?;
    /// assert!(locks.force_release("import").await?);
    /// assert!(!stuck.is_held());
    /// assert!(locks.lock("import").acquire().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Of a lock that several hold, all of them lose it; one that takes it meanwhile does not.
    ///
    /// The first waiter gets the lock at once. The former holder is notified and finds its lease lost, at
    /// its next renewal at the latest. What it does until then is not undone, and it may hand the lock over
    /// to another task of its process, whose fencing token is smaller than that of the new holder. So make
    /// sure that the process is gone, or that the resource checks fencing tokens.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or refused;
    /// [`InvalidKey`](LockError::InvalidKey) for a key that cannot be stored.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lock may or may not have been released.
    pub async fn force_release(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        self.locks().table.home().check()?;
        let lock = self.named(key.into(), "force_release")?;
        let Some(held) = self.held(&lock).await? else {
            return Ok(false);
        };
        let (mut released, mut failed) = (false, None);
        for holder in held.holders {
            match self.take_away(&lock, holder.token).await {
                Ok(was_held) => released |= was_held,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(released), Err)
    }

    /// Releases one token, of this process or another. Returns whether it had the lock.
    async fn take_away(&self, lock: &Arc<LockName>, token: String) -> Result<bool, LockError> {
        let Locks { table, store, .. } = self.locks();
        // Its holder may give the lock back before we do.
        let held_here = table.owner_of(lock.stored(), &token);
        let lost_here = held_here.is_some_and(|owner| table.taken_away(&owner, Loss::Forced));
        let owner = Arc::new(Owner::stray(lock.clone(), token));
        let freeing = Freeing { token: owner.clone(), keep: None, deadline: Moment::NEVER };
        match table.release(freeing).await {
            Ok(freed) => {
                // Only now: a holder that is notified gives the lock up, and it would not have been held.
                store.clone().tell_taken(lock.clone(), owner.token.clone());
                Ok(freed.was_ours || lost_here)
            }
            Err(fault) => Err(fault.into_error(Some(lock))),
        }
    }
}
