//! The history of one lock in a test: who held it, in order.

use std::time::Duration;

/// The way in which a hold ended; see [`Held::ended`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::testing::{Ended, Locks};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let guard = locks.manager().lock("order:7").acquire().await?;
/// locks.lose("order:7");
/// assert!(!guard.is_held());
/// assert_eq!(locks.history("order:7")[0].ended, Some(Ended::Lost));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its holder released it, or handed it over.
    Released,
    /// Its lease was lost, or its replica was killed.
    Lost,
}

/// One hold of a lock; see [`Locks::history`](super::Locks::history).
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::testing::{Ended, Locks};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// let guard = locks.manager().lock("order:7").acquire().await?;
/// assert_eq!(locks.history("order:7")[0].until, None);
/// guard.release().await?;
/// assert_eq!(locks.history("order:7")[0].ended, Some(Ended::Released));
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The replica that held it.
    pub replica: String,
    /// The lock's name: `module::function` of an annotated function, the `name` of a request, or the file of the
    /// request.
    pub name: String,
    /// The fencing token. That of an exclusive lock is larger than that of every earlier holder. Readers that share a
    /// lease have the same token.
    pub fencing_token: u64,
    /// The time when the lock was taken, since the [`Locks`](super::Locks) were made.
    pub from: Duration,
    /// The time when the hold ended; `None` while it lasts.
    pub until: Option<Duration>,
    /// The way in which the hold ended; `None` while it lasts.
    pub ended: Option<Ended>,
}

/// The holders of one lock, in order; see [`Locks::history`](super::Locks::history). A slice of [`Held`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::testing::Locks;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let locks = Locks::new();
/// for (replica, work) in [("a", "import"), ("b", "export")] {
///     let lock = locks.replica(replica).manager().lock("books").name(work);
///     lock.run(tokio::time::sleep(Duration::from_secs(60))).await?;
/// }
/// let history = locks.history("books");
/// assert_eq!(history.names(), ["import", "export"]);
/// assert_eq!(history.replicas(), ["a", "b"]);
/// // Handed over without a pause, and with a larger token.
/// assert_eq!(history[0].until, Some(history[1].from));
/// assert!(history[0].fencing_token < history[1].fencing_token);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History(pub(super) Vec<Held>);

impl History {
    /// Returns the names of the locks, without their modules: of annotated functions, the functions' names. One
    /// for each hold, in order.
    pub fn names(&self) -> Vec<&str> {
        let last = |held: &'_ Held| held.name.rfind("::").map_or(0, |at| at + 2);
        self.0.iter().map(|held| &held.name[last(held)..]).collect()
    }

    /// Returns the replicas that held it, one for each hold, in order.
    pub fn replicas(&self) -> Vec<&str> {
        self.0.iter().map(|held| held.replica.as_str()).collect()
    }
}

impl std::ops::Deref for History {
    type Target = [Held];

    fn deref(&self) -> &[Held] {
        &self.0
    }
}
