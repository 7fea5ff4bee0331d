#![doc = include_str!("crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assert_held;
#[cfg(doc)]
pub mod guide;
pub mod prelude;

// The macros.
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

// The manager of a program, and how it is made.
pub use distlock_runtime::{LockManager, LockManagerBuilder, init, manager, with_manager};

// A lock: asked for, held, refused.
pub use distlock_runtime::{
    BackendKind, LockError, LockGuard, LockKey, LockMode, LockName, LockRequest, OnLost, Release,
};

// Leader election.
pub use distlock_runtime::{Leader, LeaderRequest, Leadership, Term, TermOutcome};

// What a manager reports.
pub use distlock_runtime::observe::{self, LostReason, Observer};
pub use distlock_runtime::{
    CloseReport, DrivenBy, Holder, LockStatus, ManagerStatus, Process, Waiter, WakeUps,
};

#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use distlock_runtime::TlsOptions;

#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use distlock_runtime::metrics;

#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use distlock_runtime::axum::{self, LockLayer};

#[cfg(feature = "actix")]
#[cfg_attr(docsrs, doc(cfg(feature = "actix")))]
pub use distlock_runtime::actix::{self, LockMiddleware};

#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub use distlock_runtime::tower;

#[cfg(any(feature = "axum", feature = "actix"))]
#[cfg_attr(docsrs, doc(cfg(any(feature = "axum", feature = "actix"))))]
pub use distlock_runtime::{FencingToken, Locked, LockedOptions, RouteKey};

#[cfg(feature = "test-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
pub use distlock_runtime::testing;

// Not public: for generated code, and for the program `distlock`.
#[doc(hidden)]
pub use distlock_runtime::admin as __console;
#[doc(hidden)]
pub use distlock_runtime::macro_support as __private;
