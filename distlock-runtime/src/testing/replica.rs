//! A process of a test.

use std::fmt;
use std::sync::Arc;

use distlock_core::line::Loss;
use distlock_core::name::StoredName;

use super::backing::Backing;
use super::condition::Condition;
use super::faults::FaultState;
use crate::manager::LockManager;

/// A process that uses the locks of a test. Clones are the same process.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::testing::Locks;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let (a, b) = (locks.replica("a"), locks.replica("b"));
/// let lost = a.manager().lock("order:7").acquire().await?;
/// a.kill();
/// assert!(!lost.is_held());
/// let wait = Duration::from_secs(60);
/// b.manager().lock("order:7").wait(wait).acquire().await?; // after the ttl of 30 s
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Replica {
    pub(super) name: Arc<str>,
    pub(super) manager: LockManager,
    pub(super) state: Arc<FaultState>,
    pub(super) backing: Arc<Backing>,
}

impl Replica {
    /// Returns its name in the [history](super::Locks::history).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let locks = distlock::testing::Locks::new();
    /// assert_eq!(locks.replica("a").name(), "a");
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its manager. Pass it to the code under test, or use it with
    /// [`with_manager`](crate::with_manager).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let a = Locks::new().replica("a");
    /// // Code that looks for the present manager finds that of the replica.
    /// let manager = distlock::with_manager(a.manager(), async { distlock::manager() }).await?;
    /// assert!(manager.lock("order:7").acquire().await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn manager(&self) -> LockManager {
        self.manager.clone()
    }

    /// Cuts this replica alone off from the store, until the returned value is dropped.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let (a, b) = (locks.replica("a"), locks.replica("b"));
    /// let _alone = a.cut_off();
    /// assert!(a.manager().lock("order:7").acquire().await.is_err());
    /// assert!(b.manager().lock("order:7").acquire().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cut_off(&self) -> Condition {
        self.state.goes_down();
        let (state, backing) = (self.state.clone(), self.backing.clone());
        Condition::until(move || {
            state.comes_up();
            backing.interrupt();
        })
    }

    /// Lets it notice that it has lost the lock, if it held the lock under this token.
    pub(super) fn loses(&self, stored: &StoredName, token: &str) {
        let table = &self.manager.locks().table;
        if let Some(owner) = table.owner_of(stored, token) {
            table.taken_away(&owner, Loss::Taken);
        }
    }

    /// Kills it, as SIGKILL does: it renews and releases nothing, and its bodies are not polled again. Each lock that it
    /// held is free exactly one `ttl` later, and at most that on a [server](super::Locks::from_env). Calls of it that the
    /// test still awaits end with an error, `Lost` or `Backend`.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let (a, b) = (locks.replica("a"), locks.replica("b"));
    /// let ttl = Duration::from_secs(10);
    /// let _held = a.manager().lock("k").ttl(ttl).acquire().await?;
    /// a.kill();
    /// let start = tokio::time::Instant::now();
    /// let _next = b.manager().lock("k").wait(6 * ttl).acquire().await?;
    /// assert_eq!(start.elapsed(), ttl);
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn kill(&self) {
        self.state.goes_down();
        let process = self.manager.locks().table.process();
        self.backing.bury(process);
        let table = &self.manager.locks().table;
        for lock in table.locks() {
            let held = table.read(lock.stored(), |line| {
                line.held().map(|(owner, _)| owner.clone()).collect::<Vec<_>>()
            });
            for owner in held.unwrap_or_default() {
                table.taken_away(&owner, Loss::Expired);
            }
        }
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("name", &self.name).finish_non_exhaustive()
    }
}
