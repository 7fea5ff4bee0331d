//! What kinds of failure a store has.

use std::fmt;

/// What kind of failure a [`LockError::Backend`](crate::LockError::Backend) is. `Display` says it in a sentence.
///
/// ```
/// # use distlock_runtime::BackendKind;
/// assert_eq!(BackendKind::TimedOut.to_string(), "the lock store did not answer in time");
/// ```
///
/// A program that wants to tell an outage, which passes, from a mistake in its settings, which does not:
///
/// ```
/// # use distlock_runtime::{BackendKind, LockError};
/// fn is_passing(error: &LockError) -> bool {
///     match error {
///         LockError::Backend { kind, .. } => {
///             matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut | BackendKind::ReadOnly)
///         }
///         _ => false,
///     }
/// }
/// # assert!(!is_passing(&LockError::NotConfigured));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// No connection: refused, reset, or the name did not resolve.
    Unreachable,
    /// No answer within the manager's `command_timeout` or `connect_timeout`.
    TimedOut,
    /// Authentication failed, a certificate was not accepted, or an ACL forbids a command, a key or a channel.
    Refused,
    /// The store is out of memory and takes no new keys.
    OutOfMemory,
    /// The node takes no writes: it is a replica now.
    ReadOnly,
    /// Anything else; the source says what.
    Other,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the lock store cannot be reached",
            Self::TimedOut => "the lock store did not answer in time",
            Self::Refused => {
                "the lock store refused access (check user, password, ACL and certificates)"
            }
            Self::OutOfMemory => "the lock store is out of memory and takes no new keys",
            Self::ReadOnly => "the lock store is read-only (a replica?)",
            Self::Other => "the lock store answered with an error",
        })
    }
}
