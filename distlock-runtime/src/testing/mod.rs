//! A kit for tests of code that uses locks: several processes in one test, in virtual time, and every failure of a lock
//! at the exact moment that the test chooses.
//!
//! ```toml
//! [dev-dependencies]
//! distlock = { version = "0.1", features = ["test-util"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! [`Locks`] is a store in memory that behaves as one on a server. A [`Replica`] is a process that
//! uses it, with a manager of its own. Under `#[tokio::test(start_paused = true)]` all time is tokio's, so leases,
//! renewals and waits take no real time.
//!
//! ```
//! # use distlock_runtime as distlock;
//! use distlock::testing::Locks;
//! use distlock::{LockError, LockManager};
//!
//! async fn pay(locks: LockManager) -> Result<(), LockError> {
//!     let lock = locks.lock("order:7").name("pay");
//!     lock.run(tokio::time::sleep(std::time::Duration::from_secs(60))).await
//! }
//!
//! # fn main() {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
//! # runtime.unwrap().block_on(async {
//! // In a test: #[tokio::test(start_paused = true)]
//! let locks = Locks::new();
//! let paid = tokio::spawn(pay(locks.replica("a").manager()));
//! locks.until_held("order:7").await;
//! assert!(locks.lose("order:7"));
//! assert!(paid.await.unwrap().unwrap_err().is_lost());
//!
//! pay(locks.replica("b").manager()).await.unwrap();
//! locks.assert_never_together("order:7");
//! assert_eq!(locks.history("order:7").names(), ["pay", "pay"]);
//! # });
//! # }
//! ```
//!
//! | error | how a test causes it |
//! |---|---|
//! | `Busy` | [`Locks::held_elsewhere`], [`Locks::read_elsewhere`], [`Locks::permits_elsewhere`] |
//! | `Lost` | [`Locks::lose`], [`Replica::kill`], or [`Locks::down`] for longer than the `ttl` |
//! | `Backend` | [`Locks::down`], [`Locks::slow`], [`Locks::refuse`], [`Replica::cut_off`] |
//! | `WouldDeadlock` | a call inside the body of the same lock |
//! | `InvalidKey`, `InvalidOption` | an empty key, a `ttl` of zero |
//! | `Closed` | [`LockManager::close`](crate::LockManager::close) |
//! | `NotConfigured` | a call without a manager, and without `DISTLOCK_URL` |
//!
//! [`Locks::from_env`] runs the same tests on a real server.
//!
//! With the runtime of `#[tokio::test]`, which has one thread, the engine runs on it as well, in its time. With a
//! `multi_thread` runtime, whose clock cannot be paused, the engine has a thread of its own and time is real.

mod backing;
mod condition;
#[doc(hidden)]
pub mod faults;
mod history;
mod locks;
mod record;
mod replica;
mod server;

pub use condition::Condition;
pub use history::{Ended, Held, History};
pub use locks::Locks;
pub use replica::Replica;
