//! The failure of an operation: [`Fault`], and its kind, which errors show to users ([`BackendKind`]).

use std::fmt;
use std::sync::Arc;

/// The reason why an operation has no answer. It is unknown whether the command took effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The kind of failure.
    pub kind: BackendKind,
    /// The store's own text. It never contains keys or passwords.
    detail: Option<Arc<str>>,
    /// Whether the same operation may succeed later without anybody changing a setting.
    pub passing: bool,
}

impl Fault {
    /// Makes a fault after which a retry may succeed.
    pub fn passing(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: true }
    }

    /// Makes a fault after which a retry fails as well, until somebody changes a setting.
    pub fn lasting(kind: BackendKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: Some(detail.into()), passing: false }
    }

    /// Makes the fault of an answer that did not come in time.
    pub fn timed_out() -> Self {
        Self { kind: BackendKind::TimedOut, detail: None, passing: true }
    }

    /// Makes the fault of an operation whose answer is not needed any more.
    pub fn given_up() -> Self {
        Self::passing(BackendKind::Other, "it was given up")
    }

    /// Makes the fault of a manager that was closed.
    pub fn closed() -> Self {
        Self::lasting(BackendKind::Other, "the lock manager was closed")
    }

    /// Adds the node that has failed, as `host:port`, or several nodes.
    #[must_use]
    pub fn at(self, node: &str) -> Self {
        let detail = match self.detail.as_deref() {
            Some(said) if said.contains(node) => return self,
            Some(said) => format!("{node}: {said}"),
            None => node.to_owned(),
        };
        Self { detail: Some(detail.into()), ..self }
    }

    /// Appends words to the store's text.
    #[must_use]
    pub fn and(self, words: &str) -> Self {
        let said = self.detail.as_deref().unwrap_or_default();
        Self { detail: Some([said, words].concat().into()), ..self }
    }

    /// Returns the store's text, or the text of the kind if there is none.
    pub fn reason(&self) -> String {
        self.detail.as_deref().map_or_else(|| self.kind.to_string(), str::to_owned)
    }

    /// Returns the store's text, if there is one.
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

/// The kind of failure of a `LockError::Backend`. `Display` writes it as a sentence.
///
/// ```
/// # use distlock_core::store as distlock;
/// use distlock::BackendKind;
///
/// assert_eq!(BackendKind::TimedOut.to_string(), "the lock store did not answer in time");
/// ```
///
/// An outage passes, and a mistake in the settings does not. This function tells them apart:
///
/// ```
/// # use distlock_core::store as distlock;
/// use distlock::BackendKind;
///
/// fn is_passing(kind: BackendKind) -> bool {
///     matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut | BackendKind::ReadOnly)
/// }
/// # assert!(!is_passing(BackendKind::Refused));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// There is no connection: it was refused or reset, or the name did not resolve.
    Unreachable,
    /// There was no answer within the manager's `command_timeout` or `connect_timeout`.
    TimedOut,
    /// Authentication failed, a certificate was not accepted, or an ACL forbids a command, a key or a channel.
    Refused,
    /// The store is out of memory and accepts no new keys.
    OutOfMemory,
    /// The node accepts no writes, because it is a replica now.
    ReadOnly,
    /// Any other failure. The error's source describes it.
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
