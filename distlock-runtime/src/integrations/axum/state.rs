//! Where [`Locked`](crate::integrations::http::Locked) has its manager from.

use std::sync::Arc;

use ::axum::extract::FromRef;

use crate::error::LockError;
use crate::global;
use crate::manager::LockManager;

/// A state with a `LockManager`: one from which `LockManager: FromRef<S>` takes it, an `Arc` of such a
/// one, or `()`, which stands for the process-wide manager.
#[diagnostic::on_unimplemented(
    message = "the router's state `{Self}` has no `LockManager` for `Locked`",
    label = "`LockManager: FromRef<{Self}>` is missing",
    note = "derive `FromRef` for the state, with a field of type `LockManager`, or write `impl FromRef<{Self}> for LockManager`",
    note = "with the state `()` it is the process-wide manager"
)]
pub trait HasLockManager {
    /// The manager.
    ///
    /// # Errors
    ///
    /// Those of [`manager`](crate::manager) where the process-wide one is meant and there is none.
    fn lock_manager(&self) -> Result<LockManager, LockError>;
}

#[diagnostic::do_not_recommend]
impl<S> HasLockManager for S
where
    LockManager: FromRef<S>,
{
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        Ok(LockManager::from_ref(self))
    }
}

/// Only this crate could write `FromRef<Arc<App>>` for a manager.
#[diagnostic::do_not_recommend]
impl<S> HasLockManager for Arc<S>
where
    LockManager: FromRef<S>,
{
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        Ok(LockManager::from_ref(self))
    }
}

impl HasLockManager for () {
    fn lock_manager(&self) -> Result<LockManager, LockError> {
        global::manager()
    }
}
