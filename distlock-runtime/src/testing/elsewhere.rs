//! Locks that are held by processes that are no part of the test.

use std::sync::atomic::Ordering;

use super::{Condition, Locks};
use crate::key::LockKey;
use crate::limit::Limit;

/// However many permits others have: the call that asks for one more says how many there may be.
const ANY_PERMITS: Limit = match Limit::permits(u32::MAX) {
    Some(limit) => limit,
    None => Limit::READ,
};

impl Locks {
    /// Another process holds the lock, until this is dropped: calls find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
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
        self.elsewhere("held_elsewhere", &key.into(), Limit::ALONE, 1)
    }

    /// Another process reads under the lock, until this is dropped: calls with `mode = read` hold it
    /// together with that, and writers find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::LockMode;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let _read = locks.read_elsewhere("k");
    /// let lock = || locks.manager().lock("k");
    /// assert!(lock().mode(LockMode::Write).acquire().await.unwrap_err().is_busy());
    /// lock().mode(LockMode::Read).acquire().await?.release().await?;
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held alone, or the key cannot be used.
    #[track_caller]
    pub fn read_elsewhere(&self, key: impl Into<LockKey>) -> Condition {
        self.elsewhere("read_elsewhere", &key.into(), Limit::READ, 1)
    }

    /// So many permits are out elsewhere, until this is dropped: calls with more `permits` have the lock
    /// beside them, and others find it busy, or wait.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    /// # runtime.unwrap().block_on(async {
    /// # use distlock_runtime as distlock;
    /// use distlock::testing::Locks;
    ///
    /// let locks = Locks::new();
    /// let _out = locks.permits_elsewhere("k", 4);
    /// let lock = || locks.manager().lock("k").permits(5);
    /// let _fifth = lock().acquire().await?;
    /// assert!(lock().acquire().await.unwrap_err().is_busy());
    /// # Ok::<_, distlock_runtime::LockError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the lock is held alone, or the key cannot be used.
    #[track_caller]
    pub fn permits_elsewhere(&self, key: impl Into<LockKey>, count: u32) -> Condition {
        self.elsewhere("permits_elsewhere", &key.into(), ANY_PERMITS, count)
    }

    #[track_caller]
    fn elsewhere(&self, what: &str, key: &LockKey, limit: Limit, count: u32) -> Condition {
        let locks = self.named(key);
        let mut held = Vec::new();
        for _ in 0..count {
            let token = format!("elsewhere.{}", self.shared.issued.fetch_add(1, Ordering::Relaxed));
            for lock in &locks {
                let Some(let_go) = self.shared.backing.hold(lock, &token, limit) else {
                    panic!("{what}: {:?} is held already", key.as_str());
                };
                held.push(let_go);
            }
        }
        Condition::until(move || held.into_iter().for_each(|let_go| let_go()))
    }
}
