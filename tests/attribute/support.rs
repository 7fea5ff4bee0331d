//! What these tests have in common: a manager of the test's own, in memory.

use distlock::{LockManager, with_manager};

/// Runs a test with a manager of its own.
pub(crate) async fn alone<F: Future>(test: impl FnOnce(LockManager) -> F) -> F::Output {
    let manager = LockManager::in_memory();
    with_manager(manager.clone(), test(manager)).await
}

pub(crate) async fn is_free(manager: &LockManager, key: &str) -> bool {
    manager.inspect(key).await.expect("a memory store answers").is_free()
}
