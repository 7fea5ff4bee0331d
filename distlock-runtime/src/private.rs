//! What generated code calls, and nothing else. No stability: the crates are pinned to each other.

pub use crate::key::{KeyPart, KeyText, Part};
pub use crate::outcome::{FromLockError, LockFailure};
