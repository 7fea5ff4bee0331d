//! The lock engine of `distlock`. Use the `distlock` crate; this one has no stability of its own.
//!
//! The life of a lock: a [`LockRequest`] names a key (`key`, `namespace`) and how to hold it
//! (`options`); `lock::acquire` finds nobody of this process before it (`lock::table`) and asks the
//! `store`, or stands in line, which `lock::usher` takes to the store's queue; what is granted is a
//! lease (`lock::lease`) in the user's hand ([`LockGuard`]), renewed and watched by the `engine`;
//! `lock::hold` polls the body while the lease lasts; then `lock::table` hands it to the next in
//! line, or `lock::release` gives it back and the engine's janitor sees it through. `PROTOCOL.md`
//! says what goes over the wire.

mod builder;
mod clock;
mod close;
#[doc(hidden)]
pub mod console;
mod encode;
mod engine;
mod error;
mod few;
mod float;
mod global;
mod home;
mod jitter;
mod key;
mod limits;
mod lock;
mod manager;
mod name;
mod namespace;
mod observe;
mod operate;
mod options;
mod outcome;
#[doc(hidden)]
pub mod private;
mod race;
mod reporter;
mod request;
mod runtime;
mod settings;
mod shards;
mod shield;
mod shrink;
mod status;
mod store;
#[cfg(feature = "test-util")]
pub mod testing;
mod token;
mod url;
#[cfg(any(feature = "axum", feature = "actix"))]
mod web;
mod witness;

pub use builder::LockManagerBuilder;
pub use error::{BackendKind, LockError};
pub use global::{init, manager, with_manager};
pub use key::LockKey;
pub use lock::guard::LockGuard;
pub use manager::LockManager;
pub use name::LockName;
pub use options::{OnLost, Release};
pub use request::LockRequest;
pub use status::{CloseReport, DrivenBy, LockStatus, ManagerStatus, WakeUps};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use testing::faults;
#[cfg(feature = "actix")]
pub use web::actix;
#[cfg(feature = "axum")]
pub use web::axum;
#[cfg(any(feature = "axum", feature = "actix"))]
pub use web::{FencingToken, LockOptions, Locked, RouteKey};
