//! [`Locked`] as an extractor of axum.

use std::fmt;

use ::axum::extract::{FromRequestParts, OptionalFromRequestParts};
use ::axum::http::request::Parts;
use ::axum::response::{IntoResponse, Response};

use super::state::HasLockManager;
use crate::error::LockError;
use crate::integrations::http::locked::{Locked, LockedOptions};
use crate::key::LockKey;

/// The manager is the one of the router's state: `LockManager: FromRef<S>`, as with everything that a
/// handler takes from a state. With the state `()` it is the process-wide one. A state without a
/// manager does not compile.
///
/// Arguments are extracted from left to right: put this after what may reject the request without a
/// lock. The request's body, which is extracted last, is read under the lock.
///
/// ```ignore
/// use axum::extract::{FromRef, FromRequestParts, Path};
/// use distlock::{LockKey, LockManager, Locked, key};
///
/// #[derive(Clone, FromRef)]
/// struct App {
///     locks: LockManager,
/// }
///
/// /// The order of the path.
/// #[derive(FromRequestParts)]
/// struct OrderId(#[from_request(via(Path))] u64);
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         key!("order:{id}")
///     }
/// }
///
/// async fn pay(Path(order_id): Path<u64>, lock: Locked<OrderId>) -> String {
///     format!("order {order_id} is paid, fencing token {}", lock.fencing_token())
/// }
/// ```
impl<S, K, O> FromRequestParts<S> for Locked<K, O>
where
    S: HasLockManager + Send + Sync,
    K: FromRequestParts<S> + Into<LockKey>,
    O: LockedOptions,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let key = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let manager = state.lock_manager();
        Self::take(manager, key.into()).await.map_err(LockedRejection::Lock)
    }
}

/// `Option<Locked<K>>`: `None` if others hold the lock (for all of `wait`, if there is one), for handlers
/// that answer this themselves. Any other failure is answered as without the `Option`: where the store
/// cannot be used, the handler does not run.
impl<S, K, O> OptionalFromRequestParts<S> for Locked<K, O>
where
    S: HasLockManager + Send + Sync,
    K: FromRequestParts<S> + Into<LockKey>,
    O: LockedOptions,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &S,
    ) -> Result<Option<Self>, Self::Rejection> {
        let key = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let manager = state.lock_manager();
        Self::try_take(manager, key.into()).await.map_err(LockedRejection::Lock)
    }
}

/// Why there is no [`Locked`]: the rejection of the extractor. As a response it is that of its cause.
///
/// `R` is the rejection of the key's extractor: [`Locked<OrderId>`](Locked) has
/// `<OrderId as FromRequestParts<S>>::Rejection`. A handler that wants to answer either of them itself takes
/// `Result<Locked<OrderId>, LockedRejection<…>>`.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<R> {
    /// The key could not be extracted: the client's mistake, as a rule.
    Key(R),
    /// The lock was not taken: others hold it, or the store cannot be used.
    Lock(LockError),
}

impl<R: IntoResponse> IntoResponse for LockedRejection<R> {
    fn into_response(self) -> Response {
        match self {
            Self::Key(rejection) => rejection.into_response(),
            Self::Lock(error) => error.into_response(),
        }
    }
}

impl<R: fmt::Display> fmt::Display for LockedRejection<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(rejection) => rejection.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl<R: std::error::Error + 'static> std::error::Error for LockedRejection<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Key(rejection) => rejection.source(),
            Self::Lock(error) => error.source(),
        }
    }
}
