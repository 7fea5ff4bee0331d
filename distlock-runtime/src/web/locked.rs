//! The lock as an argument of a handler.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::guard::LockGuard;
use crate::manager::LockManager;

/// The lock that `K` names, as an argument of a handler: taken before the handler runs, and held
/// for as long as this value lives.
///
/// It is an extractor of axum and of actix-web, with their features. `K` is an extractor of the
/// framework that can be made into a [`LockKey`]; a failure of its own is answered as it is without
/// this. The lock has the defaults of its manager, `ttl` and `wait` among them.
///
/// It dereferences to the [`LockGuard`], for the fencing token, `extend` and `lost`. Unlike the
/// attribute it does not stop a handler whose lease is lost: ask [`is_held`](LockGuard::is_held), or
/// wait for [`lost`](LockGuard::lost), before what must not be done without the lock.
///
/// Dropped, at the latest with the handler's future, it frees the lock in the background; so the
/// answer may arrive a moment before the lock is free. To have it free before that, release
/// [`into_guard`](Self::into_guard). Moved into a body that streams, it holds the lock until the
/// body has ended or the client is gone.
///
/// # Cancel safety
///
/// A request that is dropped while it waits for the lock, or while it holds it, leaves no lock behind.
#[must_use = "dropping it frees the lock"]
pub struct Locked<K> {
    guard: LockGuard,
    key: PhantomData<fn() -> K>,
}

impl<K> Locked<K> {
    /// The guard itself, for example to release it and hear whether that worked.
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    pub(super) async fn take(
        manager: Result<LockManager, LockError>,
        key: LockKey,
    ) -> Result<Self, LockError> {
        let guard = manager?.lock(key).name(type_name::<K>()).acquire().await?;
        Ok(Self { guard, key: PhantomData })
    }
}

impl<K> Deref for Locked<K> {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl<K> fmt::Debug for Locked<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locked").field(&self.guard).finish()
    }
}
