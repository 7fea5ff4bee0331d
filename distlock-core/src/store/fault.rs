//! Why a store could not say yes or no, and the error that comes of it.

use std::fmt;
use std::sync::Arc;

/// Why a store could not say yes or no.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fault {
    pub kind: BackendKind,
    /// The store's words; never keys or passwords.
    detail: Option<Arc<str>>,
    /// Another try may go better.
    pub passing: bool,
}

impl Fault {
    pub fn passing(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: true }
    }

    pub fn lasting(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: false }
    }

    pub fn timed_out() -> Self {
        Self { kind: BackendKind::TimedOut, detail: None, passing: true }
    }

    /// The answer is not needed any more.
    pub fn given_up() -> Self {
        Self::passing(BackendKind::Other, "it was given up")
    }

    /// The manager gives no more locks.
    pub fn closed() -> Self {
        Self::lasting(BackendKind::Other, "the lock manager was closed")
    }

    /// Adds the node that the failure is about: `host:port`, or several of them.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        let detail = match self.detail.as_deref() {
            Some(said) if said.contains(node) => return self,
            Some(said) => format!("{node}: {said}"),
            None => node.to_owned(),
        };
        Self { detail: Some(detail.into()), ..self }
    }

    /// The same, with more to say about it.
    pub fn and(self, words: &str) -> Self {
        let said = self.detail.as_deref().unwrap_or_default();
        Self { detail: Some([said, words].concat().into()), ..self }
    }

    /// The store's words, or a text for the kind if there are none.
    pub fn reason(&self) -> String {
        self.detail.as_deref().map_or_else(|| self.kind.to_string(), str::to_owned)
    }

    /// The store's words, if there are any.
    pub fn into_detail(self) -> Option<Arc<str>> {
        self.detail
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{}: {detail}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

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
