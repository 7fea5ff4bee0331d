//! A distributed lock around an async function with one line.

#[doc(hidden)]
pub use distlock_runtime::private as __private;
pub use distlock_runtime::*;
