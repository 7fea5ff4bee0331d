//! What a test has arranged for a while.

use std::fmt;
use std::time::Duration;

use super::Locks;
use crate::error::BackendKind;

impl Locks {
    /// The store cannot be reached by any process, until this is dropped. Leases that last for longer than
    /// their `ttl` without it are lost, as they are when a server is away.
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
    /// let guard = locks.manager().lock("k").ttl(Duration::from_secs(10)).acquire().await?;
    /// let _down = locks.down();
    /// guard.lost().await;
    /// assert!(!guard.is_held());
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    pub fn down(&self) -> Condition {
        self.shared.state.goes_down();
        let (state, backing) = (self.shared.state.clone(), self.shared.backing.clone());
        Condition::until(move || {
            state.comes_up();
            backing.interrupt();
        })
    }

    /// Every answer of the store comes this much later, until this is dropped. What it was asked is
    /// carried out at once: an answer that is later than `command_timeout` is a `Backend` error,
    /// and the caller does not know that it was carried out.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::testing::Locks;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let _slow = locks.slow(Duration::from_secs(2)); // the `command_timeout` is one
    /// let error = locks.manager().lock("order:7").acquire().await.unwrap_err();
    /// assert_eq!(error.code(), "lock-store-unavailable");
    /// # Ok(())
    /// # }
    /// ```
    pub fn slow(&self, by: Duration) -> Condition {
        let before = self.shared.state.slow_down(by);
        let state = self.shared.state.clone();
        Condition::until(move || {
            state.slow_down(before);
        })
    }

    /// The store refuses everything with this kind of failure, until this is dropped.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    /// use distlock::{BackendKind, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// let locks = Locks::new();
    /// let _full = locks.refuse(BackendKind::OutOfMemory);
    /// let error = locks.manager().lock("order:7").acquire().await.unwrap_err();
    /// assert!(matches!(error, LockError::Backend { kind: BackendKind::OutOfMemory, .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse(&self, kind: BackendKind) -> Condition {
        let before = self.shared.state.refuse(Some(kind));
        let state = self.shared.state.clone();
        Condition::until(move || {
            state.refuse(before);
        })
    }
}

/// What a test has arranged, until this is dropped: what [`Locks::down`] and the others return.
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let locks = distlock::testing::Locks::new();
/// {
///     let _held = locks.held_elsewhere("order:7");
///     assert!(locks.manager().lock("order:7").acquire().await.unwrap_err().is_busy());
/// }
/// assert!(locks.manager().lock("order:7").acquire().await.is_ok());
/// # }
/// ```
#[must_use = "it ends when this is dropped: bind it, `let _down = locks.down();`"]
pub struct Condition {
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Condition {
    pub(super) fn until(end: impl FnOnce() + Send + 'static) -> Self {
        Self { end: Some(Box::new(end)) }
    }

    /// It is over: what dropping does, for code that wants to say so.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let locks = distlock::testing::Locks::new();
    /// let down = locks.down();
    /// assert!(locks.manager().lock("order:7").acquire().await.is_err());
    /// down.end();
    /// assert!(locks.manager().lock("order:7").acquire().await.is_ok());
    /// # }
    /// ```
    pub fn end(self) {}
}

impl Drop for Condition {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condition")
    }
}
