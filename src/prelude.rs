//! The names that most files need, for `use distlock::prelude::*`.
//!
//! Import this and not `distlock::*`, which also imports the modules `axum` and `actix`. They have the names of crates,
//! so `axum::Router` would no longer be found.
//!
//! ```
//! use distlock::prelude::*;
//!
//! #[redis_lock(key = "order:{order_id}", wait = "2s")]
//! async fn pay(order_id: u64) -> Result<u64, LockError> {
//!     Ok(order_id)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::in_memory();
//! assert_eq!(with_manager(locks.clone(), pay(7)).await?, 7);
//! let guard = locks.lock(key!("order:{}", 7)).acquire().await?;
//! assert!(guard.is_held());
//! # Ok(())
//! # }
//! ```

pub use crate::{
    LockError, LockGuard, LockKey, LockManager, LockMode, LockRequest, OnLost, key, redis_lock,
    with_manager,
};

#[cfg(feature = "axum")]
pub use crate::LockLayer;

#[cfg(feature = "actix")]
pub use crate::LockMiddleware;

#[cfg(any(feature = "axum", feature = "actix"))]
pub use crate::{Locked, route_key};
