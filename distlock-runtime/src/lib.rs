//! The lock engine of `distlock`. Use the `distlock` crate; this one has no stability of its own.
//!
//! The life of a lock: a [`LockRequest`] names a key (`key`, `namespace`, `name`) and how to hold it
//! (`options`). `lock` looks for a holder or waiters of this process, and asks the `store` if there are
//! none, else the call waits in line and the line in the store's queue. What is granted is a lease in
//! the user's [`LockGuard`], renewed while it is held; a body under it is polled before its deadline
//! only. Then the lease is handed to the next waiter of this process, or released. The `engine` is the
//! thread that keeps the time and finishes what callers leave unfinished. `PROTOCOL.md` says what goes
//! over the wire, the module docs of `lock` name the file of each step.

mod accounts;
mod builder;
mod close;
#[doc(hidden)]
pub mod console;
mod encode;
mod engine;
mod error;
mod float;
mod global;
mod home;
mod inspect;
mod itself;
mod json;
mod leader;
mod limits;
mod lock;
mod manager;
mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "model")]
#[doc(hidden)]
pub mod model;
mod namespace;
pub mod observe;
mod operate;
mod options;
mod outcome;
mod park;
#[doc(hidden)]
pub mod private;
mod request;
mod settings;
mod status;
#[doc(hidden)]
pub mod store;
mod stores;
#[cfg(feature = "test-util")]
pub mod testing;
#[cfg(feature = "tonic")]
mod tonic;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(any(feature = "axum", feature = "actix"))]
mod web;
mod who;

use distlock_core::{
    capacity as limit, catch_panic as shield, clock, jitter, key, name, one_or_many,
    process_info as process, runtime_probe, select, shrink, token, witness,
};

pub use builder::LockManagerBuilder;
pub use distlock_core::store::status::{DrivenBy, WakeUps};
#[cfg(feature = "tls")]
pub use distlock_core::tls::TlsOptions;
#[cfg(feature = "redis")]
#[doc(hidden)]
pub use distlock_redis::scripts;
pub use error::{BackendKind, LockError, LostReason};
pub use global::{init, manager, with_manager};
pub use key::LockKey;
pub use leader::{Leader, LeaderRequest, Leadership, Term, TermOutcome};
pub use lock::guard::LockGuard;
pub use manager::LockManager;
pub use name::LockName;
pub use options::{LockMode, OnLost, Release};
pub use process::Process;
pub use request::LockRequest;
pub use status::{CloseReport, Holder, LockStatus, ManagerStatus, Waiter};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use testing::faults;
#[cfg(feature = "actix")]
pub use web::actix;
#[cfg(feature = "axum")]
pub use web::axum;
#[cfg(any(feature = "axum", feature = "actix"))]
pub use web::{FencingToken, Locked, LockedOptions, RouteKey};
