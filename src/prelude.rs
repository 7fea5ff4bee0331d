//! What most files want, for `use distlock::prelude::*`.
//!
//! Import this and not `distlock::*`: that would also bring the modules `axum` and `actix`, which have the
//! names of crates, so that `axum::Router` would no longer be found.

pub use crate::{
    LockError, LockGuard, LockKey, LockManager, LockMode, LockRequest, OnLost, key, redis_lock,
    with_manager,
};

#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use crate::LockLayer;

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub use crate::LockMiddleware;

#[cfg(any(feature = "axum", feature = "actix"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "actix"))))]
pub use crate::{Locked, route_key};
