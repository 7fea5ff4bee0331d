//! Failures of commands.

use std::fmt;

use crate::wire::ZooKeeperError;

/// A kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no connection, or the server has no quorum.
    Unreachable,
    /// There was no answer in time.
    TimedOut,
    /// Authentication failed, or the nodes belong to another user.
    Refused,
    /// The servers cannot do this, however often it is tried.
    Unsupported,
    /// Another failure.
    Other,
}

/// The failure of a command. Its words never contain keys or passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub kind: Kind,
    /// A description.
    pub words: String,
    /// Another attempt may succeed.
    pub passing: bool,
}

impl Fault {
    /// Returns a passing fault: there is no connection.
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        Self { kind: Kind::Unreachable, words: words.into(), passing: true }
    }

    /// Adds the servers that the failure is about.
    pub(crate) fn at(mut self, node: &str) -> Self {
        if !self.words.contains(node) {
            self.words = format!("{node}: {}", self.words);
        }
        self
    }

    /// Returns a passing fault: there was no connection in time.
    pub(crate) fn timed_out() -> Self {
        Self { kind: Kind::TimedOut, words: "no connection in time".to_owned(), passing: true }
    }

    /// Returns a lasting fault: the servers cannot do this.
    pub(crate) fn unsupported(words: impl Into<String>) -> Self {
        Self { kind: Kind::Unsupported, words: words.into(), passing: false }
    }

    /// Returns a passing fault of no other kind.
    pub(crate) fn other(words: impl Into<String>) -> Self {
        Self { kind: Kind::Other, words: words.into(), passing: true }
    }
}

impl From<ZooKeeperError> for Fault {
    fn from(error: ZooKeeperError) -> Self {
        let (kind, passing) = match error {
            ZooKeeperError::NoAuth | ZooKeeperError::AuthFailed | ZooKeeperError::QuotaExceeded => {
                (Kind::Refused, false)
            }
            ZooKeeperError::ConnectionLoss
            | ZooKeeperError::SessionExpired
            | ZooKeeperError::SessionMoved
            | ZooKeeperError::SpeaksTls
            | ZooKeeperError::Silent
            | ZooKeeperError::ReadOnly => (Kind::Unreachable, true),
            _ => (Kind::Other, true),
        };
        Self { kind, words: error.to_string(), passing }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Fault {}
