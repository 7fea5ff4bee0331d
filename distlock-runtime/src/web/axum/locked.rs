//! [`Locked`] as an extractor of axum.

use std::fmt;

use ::axum::extract::FromRequestParts;
use ::axum::http::request::Parts;
use ::axum::response::{IntoResponse, Response};

use crate::error::LockError;
use crate::global;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::web::Locked;

/// The manager is the one that `Router::layer(Extension(manager))` gave the request, else the
/// process-wide one.
///
/// Arguments are extracted from left to right: put this after what may reject the request without a
/// lock. The request's body, which is extracted last, is read under the lock.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// use axum::extract::{FromRequestParts, Path};
/// use distlock::LockKey;
/// use distlock::axum::Locked;
/// # use axum::http::request::Parts;
///
/// /// The order of the path.
/// struct OrderId(u64);
///
/// impl From<OrderId> for LockKey {
///     fn from(OrderId(id): OrderId) -> Self {
///         format!("order:{id}").into()
///     }
/// }
/// # impl<S: Send + Sync> FromRequestParts<S> for OrderId {
/// #     type Rejection = axum::extract::rejection::PathRejection;
/// #     async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
/// #         Path::from_request_parts(parts, state).await.map(|Path(id)| Self(id))
/// #     }
/// # }
///
/// async fn pay(Path(order_id): Path<u64>, lock: Locked<OrderId>) -> String {
///     format!("order {order_id} is paid, fencing token {}", lock.fencing_token())
/// }
/// # let _: axum::Router = axum::Router::new().route("/{id}", axum::routing::post(pay));
/// ```
impl<S, K> FromRequestParts<S> for Locked<K>
where
    S: Send + Sync,
    K: FromRequestParts<S> + Into<LockKey>,
{
    type Rejection = LockedRejection<K::Rejection>;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let key = K::from_request_parts(parts, state).await.map_err(LockedRejection::Key)?;
        let manager = match parts.extensions.get::<LockManager>() {
            Some(manager) => Ok(manager.clone()),
            None => global::manager(),
        };
        Self::take(manager, key.into()).await.map_err(LockedRejection::Lock)
    }
}

/// Why there is no [`Locked`]. As a response it is that of its cause.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockedRejection<R> {
    /// The key could not be extracted.
    Key(R),
    /// The lock was not taken.
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
