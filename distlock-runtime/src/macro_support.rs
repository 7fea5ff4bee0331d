//! The functions and types that generated code uses, and nothing else. They have no stability: the crates are pinned to
//! each other.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::pin::{Pin, pin};

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;

pub use crate::error::LockError;
pub use crate::global::manager as global;
#[cfg(any(feature = "axum", feature = "actix"))]
pub use crate::integrations::RouteKey;
pub use crate::key_encoding::{Accepted, Float, KeyPart, KeyText, Part, Stands};
pub use crate::lock::guard::LockGuard;
use crate::lock::hold;
use crate::manager::LockManager;
pub use crate::options::{LockMode, OnLost, Release};
use crate::request::{LockRequest, hold_and_release};
pub use crate::return_type::{
    FromLockError, IsResult, LockFailure, OrLog, OrReturn, Skip, Skipping, skipping,
};

/// Implemented by the values that `manager = …` accepts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock manager",
    label = "expected a `LockManager`, or a reference, `Arc`, `State` or `web::Data` of one",
    note = "name the manager itself: `manager = self.locks`"
)]
pub trait AsLockManager {
    /// Returns the manager.
    fn lock_manager(&self) -> &LockManager;
}

impl AsLockManager for LockManager {
    fn lock_manager(&self) -> &LockManager {
        self
    }
}

/// For references, `Arc`, and the types in which frameworks pass a state to handlers: axum's `State` and
/// `Extension`, actix-web's `web::Data`.
#[diagnostic::do_not_recommend]
impl<M: Deref<Target: AsLockManager>> AsLockManager for M {
    fn lock_manager(&self) -> &LockManager {
        (**self).lock_manager()
    }
}

/// Implemented by the values that `key = …` accepts if it is no template.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    label = "expected a text or a `LockKey`",
    note = "write a template, `key = \"order:{{order_id}}\"`, or make a `String` or a `LockKey`"
)]
pub trait AsKey {
    /// Returns the key.
    fn into_key(self) -> LockKey;
}

#[diagnostic::do_not_recommend]
impl<K: Into<LockKey>> AsKey for K {
    fn into_key(self) -> LockKey {
        self.into()
    }
}

/// Makes the key of `key = expr`.
pub fn key<K: AsKey>(key: K) -> LockKey {
    key.into_key()
}

/// Implemented by the values that `keys = expr` accepts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not iterate over lock keys",
    label = "expected something that iterates over texts or `LockKey`s",
    note = "for example a list of `String`s, or `ids.iter().map(|id| key!(\"order:{{id}}\"))`"
)]
pub trait AsKeys {
    /// Returns the keys.
    fn into_keys(self) -> Vec<LockKey>;
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: Into<LockKey>>> AsKeys for I {
    fn into_keys(self) -> Vec<LockKey> {
        self.into_iter().map(Into::into).collect()
    }
}

/// Makes the keys of `keys = expr`.
pub fn keys<K: AsKeys>(keys: K) -> Vec<LockKey> {
    keys.into_keys()
}

/// Makes the request of an annotated function.
#[track_caller]
pub fn request(manager: &LockManager, key: LockKey, name: &'static str) -> LockRequest {
    LockRequest::new(manager.clone(), OneOrMany::One(key), Location::caller()).name(name)
}

/// Makes the request of an annotated function with several keys.
#[track_caller]
pub fn request_all(
    manager: &LockManager,
    keys: impl IntoIterator<Item = LockKey>,
    name: &'static str,
) -> LockRequest {
    manager.lock_all(keys).name(name)
}

/// Implemented by the values that `prefix = expr` accepts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prefix",
    label = "expected a text",
    note = "for example `prefix = \"shop\"`, or `prefix = none` for no prefix"
)]
pub trait AsPrefix {
    /// Returns the prefix.
    fn as_prefix(&self) -> &str;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<str> + ?Sized> AsPrefix for T {
    fn as_prefix(&self) -> &str {
        self.as_ref()
    }
}

/// Sets the prefix of `prefix = expr`.
pub fn prefixed<P: AsPrefix + ?Sized>(request: LockRequest, prefix: &P) -> LockRequest {
    request.prefix(prefix.as_prefix())
}

/// Whether `assert_held!` checks anything.
pub const CHECKS_HELD: bool = cfg!(any(debug_assertions, feature = "test-util"));

/// Panics unless the body that is being polled runs under this lock, for `assert_held!`.
#[track_caller]
pub fn assert_held(key: &LockKey) {
    let held = hold::holder(|lease| lease.name().key() == key.as_str() && lease.is_held());
    let template = key.template().unwrap_or("a key");
    assert!(held.is_some(), "the lock {template:?} is not held by the body that this is called in");
}

/// Polls a body that borrows its guard while the lock is held.
pub async fn run<F: Future>(guard: &LockGuard, body: F) -> Result<F::Output, LockError> {
    hold::hold(guard, pin!(body)).await
}

/// Runs the body of a function that is not `async`.
pub fn run_blocking<R>(
    request: LockRequest,
    body: impl FnOnce(&LockGuard) -> R,
) -> Result<R, LockError> {
    request.run_blocking(body)
}

/// Releases the lock of a body that has returned.
pub async fn release(mut guard: LockGuard) {
    guard.release_quietly().await;
}

/// Polls the body while the lock is held, and releases it. The guard is borrowed, because it has to outlive the body if
/// the call is dropped.
///
/// While the release is awaited, the body's value is a part of the future, and a value that is not `Send` would make the
/// future not `Send`. So this function is inherent for values that are `Send`; for others, method resolution finds
/// [`LetGo::hold`].
impl<R: Send> Output<R> {
    /// Polls the body, and awaits the release.
    pub fn hold<F: Future<Output = R>>(
        guard: &mut LockGuard,
        body: Pin<&mut F>,
    ) -> impl Future<Output = Result<R, LockError>> {
        hold_and_release(guard, body)
    }
}

/// The counterpart of `Output::hold` for values that need not be `Send`.
pub trait LetGo<R> {
    /// Polls the body, and leaves the release to the engine.
    fn hold<F: Future<Output = R>>(
        guard: &mut LockGuard,
        body: Pin<&mut F>,
    ) -> impl Future<Output = Result<R, LockError>>;
}

impl<R> LetGo<R> for Output<R> {
    async fn hold<F: Future<Output = R>>(
        guard: &mut LockGuard,
        body: Pin<&mut F>,
    ) -> Result<R, LockError> {
        let out = hold::hold(guard, body).await?;
        guard.end_in_background();
        Ok(out)
    }
}

/// Polls the body, and awaits the release, for a value whose type has no name.
pub fn hold<F: Future>(
    guard: &mut LockGuard,
    body: Pin<&mut F>,
) -> impl Future<Output = Result<F::Output, LockError>> {
    hold_and_release(guard, body)
}

/// The value of a body. Calls through it fix the types of closures and futures, so that rustc points to the mistake in
/// one of them.
pub struct Output<R>(PhantomData<R>);

impl<R> Output<R> {
    /// Calls the function of `on_fail = function`.
    pub fn apply<F: FnOnce(LockError) -> R>(function: F, error: LockError) -> R {
        function(error)
    }

    /// Fixes the type of the future that a function returns.
    pub fn future<F: Future<Output = R>>(future: F) -> F {
        future
    }

    /// Makes the future, from code that may contain `return`.
    pub fn made<F: Future<Output = R>>(code: impl FnOnce() -> F) -> F {
        code()
    }
}

/// Runs code in which `return` leaves only that code.
pub fn call<R>(code: impl FnOnce() -> R) -> R {
    code()
}
