//! What generated code calls, and nothing else. No stability: the crates are pinned to each other.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::LockError;
use crate::few::Few;
use crate::lock::guard::LockGuard;
use crate::lock::hold;
use crate::manager::LockManager;
use crate::request::{LockRequest, release_quietly};

pub use crate::global::manager as global;
pub use crate::key::{KeyPart, KeyText, Part};
pub use crate::outcome::{FromLockError, LockFailure};

/// What `manager = …` may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock manager",
    label = "expected a `LockManager`, or a reference or `Arc` of one",
    note = "name the manager itself: `manager = self.locks`"
)]
pub trait AsLockManager {
    /// The manager.
    fn lock_manager(&self) -> &LockManager;
}

impl AsLockManager for LockManager {
    fn lock_manager(&self) -> &LockManager {
        self
    }
}

impl<M: AsLockManager + ?Sized> AsLockManager for &M {
    fn lock_manager(&self) -> &LockManager {
        (**self).lock_manager()
    }
}

impl<M: AsLockManager + ?Sized> AsLockManager for Arc<M> {
    fn lock_manager(&self) -> &LockManager {
        (**self).lock_manager()
    }
}

/// The request of an annotated function.
#[track_caller]
pub fn request(manager: &LockManager, key: crate::LockKey, name: &'static str) -> LockRequest {
    LockRequest::new(manager.clone(), Few::One(key), Location::caller()).name(name)
}

/// Polls the body while the lock is held.
pub async fn hold<F: Future>(guard: &LockGuard, body: Pin<&mut F>) -> Result<F::Output, LockError> {
    hold::hold(guard, body).await
}

/// Frees the lock of a body that has returned.
pub async fn release(guard: LockGuard) {
    release_quietly(guard).await;
}
