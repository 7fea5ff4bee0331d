//! The lock engine of `distlock`. Use the `distlock` crate; this one has no stability of its own.

mod error;
mod key;
mod outcome;
#[doc(hidden)]
pub mod private;

pub use error::{BackendKind, LockError, LockName};
pub use key::LockKey;
