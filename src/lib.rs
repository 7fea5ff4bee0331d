//! A distributed lock around an async function with one line.

pub use distlock_runtime::*;
#[doc(hidden)]
pub use distlock_runtime::private as __private;
