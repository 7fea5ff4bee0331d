//! Locks that are held by somebody who is no part of the test.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Condition, Locks};
use crate::key::LockKey;
use crate::store::Limit;

/// What calls are told of a lock that is held elsewhere for ever.
const ELSEWHERE: Duration = Duration::from_secs(30);

impl Locks {
    /// Somebody else holds the lock, until this is dropped: calls find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// use distlock_runtime::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let held = locks.held_elsewhere("k");
    /// assert!(locks.manager().lock("k").acquire().await.unwrap_err().is_busy());
    /// held.end();
    /// locks.manager().lock("k").acquire().await?.release().await?;
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held already, or the key cannot be used.
    #[track_caller]
    pub fn held_elsewhere(&self, key: impl Into<LockKey>) -> Condition {
        let key = key.into();
        let token = format!("elsewhere.{}", self.shared.issued.fetch_add(1, Ordering::Relaxed));
        let stored = self.stored(&key);
        for stored in &stored {
            let held = self.shared.server.hold(stored, &token, Limit::ALONE, ELSEWHERE);
            assert!(held, "held_elsewhere: {:?} is held already", key.as_str());
        }
        let server = self.shared.server.clone();
        Condition::until(move || {
            for stored in &stored {
                server.free(stored, Some(&token));
            }
        })
    }
}
