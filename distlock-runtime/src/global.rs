//! The process-wide manager, and the manager that one task uses in its place.

use std::future::Future;

use once_cell::sync::OnceCell;

use crate::error::LockError;
use crate::manager::LockManager;

static PROCESS_WIDE: OnceCell<LockManager> = OnceCell::new();

tokio::task_local! {
    static OF_TASK: LockManager;
}

/// Sets the process-wide manager, which the attribute uses if no `manager` is named.
///
/// Call it once, at the start of the program. A library should not: it takes a [`LockManager`] from
/// its caller, or uses [`manager`].
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::LockManager;
///
/// // In a program: `LockManager::connect("redis://…").await?`.
/// distlock::init(LockManager::in_memory())?;
///
/// assert!(distlock::init(LockManager::in_memory()).is_err(), "it is set already");
/// # Ok::<_, distlock::LockError>(())
/// ```
///
/// # Errors
///
/// [`InvalidOption`](LockError::InvalidOption) if there is a process-wide manager already, set by an earlier call
/// or made from `DISTLOCK_URL` on first use, because it may hold locks.
pub fn init(manager: LockManager) -> Result<(), LockError> {
    PROCESS_WIDE.set(manager).map_err(|_| {
        LockError::invalid_option(
            "init: the process-wide manager is already set; call init once, before the first lock",
        )
    })
}

/// Returns the manager that the attribute uses if none is named: the one of the present task
/// ([`with_manager`]), or else the process-wide one ([`init`]). If that was never set, it is made from the
/// environment on first use, without I/O; see [`LockManager::from_env`].
///
/// It is for code that takes locks by hand with the manager of the program:
///
/// ```
/// # use distlock_runtime as distlock;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # distlock::with_manager(distlock::LockManager::in_memory(), async {
/// let guard = distlock::manager()?.lock("nightly-report").acquire().await?;
/// assert_eq!(guard.key(), "nightly-report");
/// # Ok(()) }).await
/// # }
/// ```
///
/// # Errors
///
/// [`NotConfigured`](LockError::NotConfigured) if none was set and `DISTLOCK_URL` is not either, and
/// the errors of [`LockManager::from_env`].
pub fn manager() -> Result<LockManager, LockError> {
    match OF_TASK.try_with(LockManager::clone) {
        Ok(manager) => Ok(manager),
        Err(_) => PROCESS_WIDE.get_or_try_init(LockManager::from_env).cloned(),
    }
}

/// Runs `f` with `manager` in place of the process-wide one, for the present task only. Tasks that `f`
/// spawns use the process-wide one.
///
/// It gives a manager to each of several tests that run in parallel:
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockManager, with_manager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// with_manager(LockManager::in_memory(), async {
///     // Functions with the attribute take their locks from here.
///     let guard = distlock::manager()?.lock("report").acquire().await?;
///     assert!(guard.is_held());
///     Ok(())
/// })
/// .await
/// # }
/// ```
///
/// # Cancel safety
///
/// As cancel safe as `f`: dropping the future drops `f`.
pub async fn with_manager<F: Future>(manager: LockManager, f: F) -> F::Output {
    OF_TASK.scope(manager, f).await
}
