//! A condition that a test has set for a while.
//!
//! A file of its own, because both [`Locks`](super::Locks) and [`Replica`](super::Replica) return one.

use std::fmt;

/// A condition that a test has set, until this value is dropped. [`Locks::down`](super::Locks::down) and similar methods
/// return it.
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

    /// Ends the condition, as dropping it does.
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
