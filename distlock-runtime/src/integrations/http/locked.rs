//! The lock as an argument of a handler, and its fencing token.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use distlock_core::name::Label;

use crate::error::LockError;
use crate::lock::guard::LockGuard;
use crate::manager::LockManager;
use crate::options::{LockMode, LockOptions};
use crate::request::LockRequest;

/// The lock that `K` names, as an argument of a handler. It is taken before the handler runs, and held for as long as
/// this value lives.
///
/// It is an extractor of axum and of actix-web, with their features. `K` is an extractor of the framework that
/// converts into a [`LockKey`]; if `K` fails, the framework answers with that failure. `O` sets the lock's own `ttl`,
/// `wait`, `mode` and so on ([`LockedOptions`]). Without it the lock is exclusive and has the options of its manager.
///
/// It dereferences to the [`LockGuard`], for the fencing token, `extend` and `lost`. Unlike the
/// attribute it does not stop a handler whose lease is lost. Before a step that must not happen without the
/// lock, ask [`is_held`](LockGuard::is_held), or race the step against [`lost`](LockGuard::lost).
///
/// An argument that reads the request's body reads it under the lock, for as long as the client takes to send it. Give
/// such a lock a [`MAX_HOLD`](LockedOptions::MAX_HOLD), or use the attribute, whose handler has its arguments before
/// it asks for the lock.
///
/// When it is dropped, at the latest with the handler's future, the lock is freed in the background. So the answer may
/// arrive a moment before the lock is free. To free it before the answer, release the
/// [`into_guard`](Self::into_guard). If it is moved into a body that streams, it holds the lock until the
/// body has ended or the client is gone.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use distlock::{LockKey, Locked};
///
/// /// An extractor of the framework: from the path, a header, a session.
/// struct OrderId(u64);
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         // For a text, `key!("order:{id}")`: it escapes what a client might put into it.
///         format!("order:{id}").into()
///     }
/// }
///
/// async fn pay(lock: Locked<OrderId>) -> String {
///     format!("paid under token {}", lock.fencing_token())
/// }
/// ```
///
/// # Cancel safety
///
/// A request that is dropped while it waits for the lock or holds it leaves no lock in the store.
#[must_use = "if unused the lock is freed at once: bind it to a name, `_lock`; with `_` it is freed at once, too"]
pub struct Locked<K, O = Defaults> {
    guard: LockGuard,
    of: PhantomData<fn() -> (K, O)>,
}

/// The options of a [`Locked<K, O>`](Locked). An option that is `None` is the manager's, or the default.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use std::time::Duration;
///
/// /// For people who wait at a screen.
/// struct Patient;
///
/// impl distlock::LockedOptions for Patient {
///     const WAIT: Option<Duration> = Some(Duration::from_secs(2));
///     const MAX_HOLD: Option<Duration> = Some(Duration::from_secs(30));
/// }
/// // lock: Locked<OrderId, Patient>
///
/// /// Any number at once, while none writes.
/// struct Reading;
///
/// impl distlock::LockedOptions for Reading {
///     const MODE: Option<distlock::LockMode> = Some(distlock::LockMode::Read);
/// }
/// // lock: Locked<OrderId, Reading>
/// ```
pub trait LockedOptions {
    /// The length of the lease: how long the lock stays taken if this process dies.
    const TTL: Option<Duration> = None;
    /// How long to wait while others hold the lock; with zero the call does not wait.
    const WAIT: Option<Duration> = None;
    /// The longest time for which the lease is renewed, counted from when the lock was taken. Then it
    /// counts as lost, and others may take the lock.
    const MAX_HOLD: Option<Duration> = None;
    /// The mode of the lock, which decides who may hold it at the same time. Default: exclusive.
    const MODE: Option<LockMode> = None;
    /// How many may hold the lock at once, over all processes; at least 1, and not together with `MODE`.
    const PERMITS: Option<u32> = None;
    /// How many requests of this process may wait for one lock at a time. A request that finds that many
    /// waiters is refused at once.
    const MAX_WAITERS: Option<u32> = None;
    /// A label for errors and events. Default: the name of the type of the key.
    const NAME: Option<&'static str> = None;
}

/// The manager's own options, for [`Locked<K>`](Locked).
#[derive(Debug, Clone, Copy, Default)]
pub struct Defaults;

impl LockedOptions for Defaults {}

impl<K, O> Locked<K, O> {
    /// Returns the guard, to release the lock before the response is sent and to learn whether that worked.
    ///
    /// ```
    /// # extern crate distlock_runtime as distlock;
    /// use distlock::{LockError, Locked};
    ///
    /// async fn pay<OrderId>(lock: Locked<OrderId>) -> Result<&'static str, LockError> {
    ///     // … what is to be done under the lock …
    ///     lock.into_guard().release().await?;
    ///     Ok("paid, and the next one may come")
    /// }
    /// ```
    pub fn into_guard(self) -> LockGuard {
        self.guard
    }

    fn of(guard: LockGuard) -> Self {
        Self { guard, of: PhantomData }
    }
}

impl<K, O: LockedOptions> Locked<K, O> {
    /// Takes the lock of a key.
    pub(crate) async fn take(
        manager: Result<LockManager, LockError>,
        key: LockKey,
    ) -> Result<Self, LockError> {
        Self::request(&manager?, key).acquire().await.map(Self::of)
    }

    fn request(manager: &LockManager, key: LockKey) -> LockRequest {
        let options = LockOptions {
            ttl: O::TTL,
            wait: O::WAIT,
            max_hold: O::MAX_HOLD,
            mode: O::MODE,
            permits: O::PERMITS,
            max_waiters: O::MAX_WAITERS,
            ..LockOptions::default()
        };
        let name = O::NAME.unwrap_or(type_name::<K>());
        LockRequest::of(manager.clone(), OneOrMany::One(key), Label::Given(name.into()), options)
    }
}

impl<K, O> Deref for Locked<K, O> {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl<K, O> fmt::Debug for Locked<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locked").field(&self.guard).finish()
    }
}

/// The fencing token under which a layer or a middleware runs a handler. It is in the request's extensions: take
/// `Extension(FencingToken(token))` as an argument in axum, `ReqData<FencingToken>` in actix-web. With several locks at
/// once it is the token of the guard.
///
/// It is larger than the token of every earlier holder. Send it along with each write, and let the resource
/// refuse a token smaller than one that it has seen; see
/// [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use distlock::FencingToken;
///
/// let (former, current) = (FencingToken(41), FencingToken(42));
/// assert!(former < current);
/// assert_eq!(u64::from(current), 42);
/// assert_eq!(format!("fence <= {current}"), "fence <= 42");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(
    /// The token as a number.
    pub u64,
);

impl From<FencingToken> for u64 {
    fn from(FencingToken(token): FencingToken) -> Self {
        token
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
