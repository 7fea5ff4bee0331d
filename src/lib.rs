#![doc = include_str!("crate.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assert_held;
#[cfg(doc)]
pub mod guide;
pub mod prelude;

// The macros.
#[doc = include_str!("redis_lock.md")]
// `tests/web` tests these, because it has both frameworks.
#[cfg_attr(not(doctest), doc = include_str!("redis_lock_web.md"))]
pub use distlock_macros::redis_lock;

#[doc = include_str!("key.md")]
pub use distlock_macros::key;

#[cfg(any(feature = "axum", feature = "actix"))]
// `tests/web` tests it.
#[cfg_attr(not(doctest), doc = include_str!("route_key.md"))]
pub use distlock_macros::route_key;

// Managers, and the process-wide one.
pub use distlock_runtime::{LockManager, LockManagerBuilder, init, manager, with_manager};

// Requests, guards and errors.
pub use distlock_runtime::{
    BackendKind, LockError, LockGuard, LockKey, LockMode, LockName, LockRequest, OnLost, Release,
};

// Leader election.
pub use distlock_runtime::{Leader, LeaderRequest, Leadership, Term, TermOutcome};

// The state of a manager and of its locks.
pub use distlock_runtime::observe::{self, LostReason, Observer};
pub use distlock_runtime::{
    CloseReport, DrivenBy, Holder, LockStatus, ManagerStatus, Process, Waiter, WakeUps,
};

#[cfg(feature = "tls")]
pub use distlock_runtime::TlsOptions;

#[cfg(feature = "metrics")]
pub use distlock_runtime::metrics;

#[cfg(feature = "axum")]
pub use distlock_runtime::axum::{self, LockLayer};

#[cfg(feature = "actix")]
pub use distlock_runtime::actix::{self, LockMiddleware};

#[cfg(feature = "tower")]
pub use distlock_runtime::tower;

#[cfg(any(feature = "axum", feature = "actix"))]
pub use distlock_runtime::{FencingToken, Locked, LockedOptions, RouteKey};

#[cfg(feature = "test-util")]
pub use distlock_runtime::testing;

// Hidden interfaces, for generated code and for the program `distlock`.
#[doc(hidden)]
pub use distlock_runtime::admin as __admin;
#[doc(hidden)]
pub use distlock_runtime::macro_support as __private;
