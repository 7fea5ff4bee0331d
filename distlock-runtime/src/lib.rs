//! The lock engine of `distlock`. Use the `distlock` crate; this one has no stability of its own.
//!
//! The life of a lock: a [`LockRequest`] names a key (`key`, `namespace`, `name`) and how to hold it
//! (`options`). `lock` looks for a holder or waiters of this process, and asks the `store` if there are
//! none, else the call waits in line and the line in the store's queue. What is granted is a lease in
//! the user's [`LockGuard`], renewed while it is held; a body under it is polled before its deadline
//! only. Then the lease is handed to the next waiter of this process, or released. The `engine` is the
//! thread that keeps the time and finishes what callers leave unfinished. `PROTOCOL.md` says what goes
//! over the wire, the module docs of `lock` name the file of each step.

#[doc(hidden)]
pub mod admin;
mod block_on;
mod builder;
mod engine;
mod error;
mod global;
mod integrations;
mod key_encoding;
mod leader;
mod lock;
#[doc(hidden)]
pub mod macro_support;
mod manager;
mod memory;
mod namespace;
pub mod observe;
mod options;
mod peers;
mod ranges;
mod request;
mod return_type;
mod settings;
mod status;
mod stores;
#[cfg(feature = "test-util")]
pub mod testing;

pub use builder::LockManagerBuilder;
pub use distlock_core::authentication::TlsOptions;
pub use distlock_core::key::LockKey;
pub use distlock_core::name::LockName;
pub use distlock_core::process_info::Process;
#[doc(hidden)]
pub use distlock_core::store;
pub use distlock_core::store::{DrivenBy, WakeUps};
pub use error::{BackendKind, LockError, LostReason};
pub use global::{init, manager, with_manager};
// Empty without the features of the frameworks.
#[allow(unreachable_pub, unused_imports)]
pub use integrations::*;
pub use leader::{Leader, LeaderRequest, Leadership, Term, TermOutcome};
pub use lock::guard::LockGuard;
pub use manager::LockManager;
pub use options::{LockMode, OnLost, Release};
pub use request::LockRequest;
pub use status::{CloseReport, Holder, LockStatus, ManagerStatus, Waiter};

/// The feature `metrics`: what happens to locks, as metrics of the facade
/// [`metrics`](https://docs.rs/metrics). With the feature and a recorder, every manager records. The guide
/// lists the names, on its page on observability.
///
/// The label `lock` is the lock's name and never its key. One manager has labels for 500 names; further
/// ones share the label `other`.
///
/// A recorder may be installed at any time, and a thread may have one of its own, which records the events of the calls
/// on this thread. Events of the background go to the recorder of the process. The end of a hold goes to the recorder
/// that has recorded its beginning.
#[cfg(feature = "metrics")]
pub mod metrics {
    pub use crate::observe::metrics::{BUCKETS, register};
    #[doc(hidden)]
    pub use crate::observe::metrics::{Kind, METRICS, Metric};
}
