//! Locks that tests take, and what became of a call.

use std::error::Error as _;

use distlock_runtime::{BackendKind, LockError, LockGuard, LockManager};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::LONG;

/// Takes a lock that is free.
pub async fn held(manager: &LockManager, key: &str) -> LockGuard {
    manager.lock(key).ttl(LONG).acquire().await.expect("it is free")
}

/// A task that waits for a lock.
pub type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// Waits for `key` in a task of its own.
pub fn waits(manager: &LockManager, key: &str) -> Waiting {
    tokio::spawn(manager.lock(key).ttl(LONG).wait(LONG).acquire())
}

/// The lock of a task that has waited for it.
pub async fn served(waiting: Waiting) -> LockGuard {
    let waiting = timeout(LONG, waiting).await.expect("its turn comes");
    waiting.expect("no panic").expect("granted")
}

/// Has everything that `manager` sent so far answered, releases of dropped futures included.
pub async fn settle(manager: &LockManager) {
    let probe = manager.lock("settle").acquire().await.expect("the probe");
    probe.release().await.expect("the probe's release");
}

/// The lock is held elsewhere.
#[track_caller]
pub fn assert_busy<T>(result: Result<T, LockError>) {
    match result {
        Err(error) => assert!(error.is_busy(), "{error}"),
        Ok(_) => panic!("it is held elsewhere"),
    }
}

/// The lock was held, and its lease was lost.
#[track_caller]
pub fn assert_lost<T>(result: Result<T, LockError>) {
    match result {
        Err(error) => assert!(error.is_lost(), "{error}"),
        Ok(_) => panic!("its lease was not lost"),
    }
}

/// The store could not say, and this is how.
#[track_caller]
pub fn backend<T>(result: Result<T, LockError>) -> BackendKind {
    match result {
        Err(LockError::Backend { kind, .. }) => kind,
        Err(error) => panic!("not a failure of the store: {error}"),
        Ok(_) => panic!("a lock without a store that could give it"),
    }
}

/// Everything that can be printed of an error and its causes.
pub fn whole_text(error: &LockError) -> String {
    let mut text = format!("{error} {error:#} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(" {error} {error:?}");
        cause = error.source();
    }
    text
}
