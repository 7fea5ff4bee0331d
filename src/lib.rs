#![doc = include_str!("crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assert_held;
pub mod prelude;

#[doc(hidden)]
pub use distlock_runtime::console as __console;
#[doc(hidden)]
pub use distlock_runtime::private as __private;
pub use distlock_runtime::{
    BackendKind, CloseReport, DrivenBy, LockError, LockGuard, LockKey, LockManager,
    LockManagerBuilder, LockName, LockRequest, LockStatus, ManagerStatus, OnLost, Release, WakeUps,
    init, manager, with_manager,
};

#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub use distlock_runtime::testing;

#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use distlock_runtime::axum::{self, LockLayer};

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub use distlock_runtime::actix::{self, LockMiddleware};

#[cfg(any(feature = "axum", feature = "actix"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "actix"))))]
pub use distlock_runtime::{FencingToken, LockOptions, Locked, RouteKey};

#[doc = include_str!("redis_lock.md")]
// These are tested in `tests/web`, which has both frameworks.
#[cfg_attr(not(doctest), doc = include_str!("redis_lock_web.md"))]
pub use distlock_macros::redis_lock;

#[doc = include_str!("key.md")]
pub use distlock_macros::key;

#[cfg(any(feature = "axum", feature = "actix"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "actix"))))]
// Tested in `tests/web`.
#[cfg_attr(not(doctest), doc = include_str!("route_key.md"))]
pub use distlock_macros::route_key;

#[cfg(doc)]
pub mod guide;
