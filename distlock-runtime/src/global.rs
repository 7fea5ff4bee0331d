//! The process-wide manager, and the one a task uses instead.

use std::future::Future;

use once_cell::sync::OnceCell;

use crate::error::LockError;
use crate::manager::LockManager;

static PROCESS_WIDE: OnceCell<LockManager> = OnceCell::new();

tokio::task_local! {
    static OF_TASK: LockManager;
}

/// Sets the process-wide manager, which the attribute uses where none is named.
///
/// # Errors
///
/// [`InvalidOption`](LockError::InvalidOption) if there is one already, set or made from
/// `DISTLOCK_URL` on first use: locks may already be held there.
pub fn init(manager: LockManager) -> Result<(), LockError> {
    PROCESS_WIDE.set(manager).map_err(|_| {
        LockError::invalid_option(
            "init: the process-wide manager is already set; call init once, before the first lock",
        )
    })
}

/// The manager of this task ([`with_manager`]), else the process-wide one. If that was never set
/// it is made from `DISTLOCK_URL` on first use, without I/O.
///
/// # Errors
///
/// [`NotConfigured`](LockError::NotConfigured) if there is none, and the errors of
/// [`LockManager::from_env`].
pub fn manager() -> Result<LockManager, LockError> {
    match OF_TASK.try_with(LockManager::clone) {
        Ok(manager) => Ok(manager),
        Err(_) => PROCESS_WIDE.get_or_try_init(LockManager::from_env).cloned(),
    }
}

/// Runs `f` with `manager` in place of the process-wide one, for this task only (tasks it spawns
/// use the process-wide one). Parallel tests need not share a global.
///
/// # Cancel safety
///
/// As cancel safe as `f`.
pub async fn with_manager<F: Future>(manager: LockManager, f: F) -> F::Output {
    OF_TASK.scope(manager, f).await
}
