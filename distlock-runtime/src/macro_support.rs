//! What generated code calls, and nothing else. No stability: the crates are pinned to each other.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::pin::{Pin, pin};

use crate::key::LockKey;
use crate::lock::hold;
use crate::manager::LockManager;
use crate::one_or_many::OneOrMany;
use crate::request::{LockRequest, hold_and_release};

pub use crate::error::LockError;
pub use crate::global::manager as global;
pub use crate::key_encoding::{Accepted, Float, KeyPart, KeyText, Part, Stands};
pub use crate::lock::guard::LockGuard;
pub use crate::options::{LockMode, OnLost, Release};
pub use crate::return_type::{
    FromLockError, IsResult, LockFailure, OrLog, OrReturn, Skip, Skipping, skipping,
};

#[cfg(any(feature = "axum", feature = "actix"))]
pub use crate::integrations::RouteKey;

/// What `manager = …` may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock manager",
    label = "expected a `LockManager`, or a reference, `Arc`, `State` or `web::Data` of one",
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

/// References, `Arc`, and what the frameworks hand their state to handlers in: axum's `State` and
/// `Extension`, actix-web's `web::Data`.
#[diagnostic::do_not_recommend]
impl<M: Deref<Target: AsLockManager>> AsLockManager for M {
    fn lock_manager(&self) -> &LockManager {
        (**self).lock_manager()
    }
}

/// What a key that is not written as a template may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    label = "expected a text or a `LockKey`",
    note = "write a template, `key = \"order:{{order_id}}\"`, or make a `String` or a `LockKey`"
)]
pub trait AsKey {
    /// The key.
    fn into_key(self) -> LockKey;
}

#[diagnostic::do_not_recommend]
impl<K: Into<LockKey>> AsKey for K {
    fn into_key(self) -> LockKey {
        self.into()
    }
}

/// `key = expr`.
pub fn key<K: AsKey>(key: K) -> LockKey {
    key.into_key()
}

/// What `keys = expr` may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not iterate over lock keys",
    label = "expected something that iterates over texts or `LockKey`s",
    note = "for example a list of `String`s, or `ids.iter().map(|id| key!(\"order:{{id}}\"))`"
)]
pub trait AsKeys {
    /// The keys.
    fn into_keys(self) -> Vec<LockKey>;
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: Into<LockKey>>> AsKeys for I {
    fn into_keys(self) -> Vec<LockKey> {
        self.into_iter().map(Into::into).collect()
    }
}

/// `keys = expr`.
pub fn keys<K: AsKeys>(keys: K) -> Vec<LockKey> {
    keys.into_keys()
}

/// The request of an annotated function.
#[track_caller]
pub fn request(manager: &LockManager, key: LockKey, name: &'static str) -> LockRequest {
    LockRequest::new(manager.clone(), OneOrMany::One(key), Location::caller()).name(name)
}

/// The request of an annotated function with several keys.
#[track_caller]
pub fn request_all(
    manager: &LockManager,
    keys: impl IntoIterator<Item = LockKey>,
    name: &'static str,
) -> LockRequest {
    manager.lock_all(keys).name(name)
}

/// What `prefix = expr` may be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prefix",
    label = "expected a text",
    note = "for example `prefix = \"shop\"`, or `prefix = none` for no prefix"
)]
pub trait AsPrefix {
    /// The prefix.
    fn as_prefix(&self) -> &str;
}

#[diagnostic::do_not_recommend]
impl<T: AsRef<str> + ?Sized> AsPrefix for T {
    fn as_prefix(&self) -> &str {
        self.as_ref()
    }
}

/// `prefix = expr`.
pub fn prefixed<P: AsPrefix + ?Sized>(request: LockRequest, prefix: &P) -> LockRequest {
    request.prefix(prefix.as_prefix())
}

/// Whether `assert_held!` looks.
pub const CHECKS_HELD: bool = cfg!(any(debug_assertions, feature = "test-util"));

/// `assert_held!`: panics unless the body that is being polled runs under this lock.
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

/// Frees the lock of a body that has returned.
pub async fn release(mut guard: LockGuard) {
    guard.release_quietly().await;
}

/// Polls the body while the lock is held, and frees it. The guard stays where it is: it has to
/// outlive the body if the call is dropped.
///
/// While the release is awaited, the body's value is part of the future. Of a future that is to be
/// `Send` a value that is not can be no part; so there this one is inherent where the value is known
/// to be `Send`, and [`LetGo::hold`] elsewhere.
impl<R: Send> Output<R> {
    /// Awaits the release.
    pub fn hold<F: Future<Output = R>>(
        guard: &mut LockGuard,
        body: Pin<&mut F>,
    ) -> impl Future<Output = Result<R, LockError>> {
        hold_and_release(guard, body)
    }
}

/// See `Output::hold`.
pub trait LetGo<R> {
    /// Leaves the release to the engine.
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

/// The same for a value whose type has no name.
pub fn hold<F: Future>(
    guard: &mut LockGuard,
    body: Pin<&mut F>,
) -> impl Future<Output = Result<F::Output, LockError>> {
    hold_and_release(guard, body)
}

/// What the body comes to. Calls through it fix the types of closures and futures, so that rustc points to
/// where a mistake in one was made.
pub struct Output<R>(PhantomData<R>);

impl<R> Output<R> {
    /// `on_fail = function`.
    pub fn apply<F: FnOnce(LockError) -> R>(function: F, error: LockError) -> R {
        function(error)
    }

    /// The future that a function returns.
    pub fn future<F: Future<Output = R>>(future: F) -> F {
        future
    }

    /// The same from code with `return` in it.
    pub fn made<F: Future<Output = R>>(code: impl FnOnce() -> F) -> F {
        code()
    }
}

/// Code in which `return` leaves that code only.
pub fn call<R>(code: impl FnOnce() -> R) -> R {
    code()
}
