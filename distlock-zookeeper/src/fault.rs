//! Why the ensemble could not say yes or no.

use std::fmt;

use crate::wire::ZooKeeperError;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection, or no quorum behind it.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// Authentication failed, or the nodes belong to another user.
    Refused,
    /// What is asked for cannot be had here, however often it is tried.
    Unsupported,
    /// Anything else.
    Other,
}

/// A failure, in the client's words: never keys or passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is.
    pub kind: Kind,
    /// What to say of it.
    pub words: String,
    /// Another try may go better.
    pub passing: bool,
}

impl Fault {
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

    pub(crate) fn timed_out() -> Self {
        Self { kind: Kind::TimedOut, words: "no connection in time".to_owned(), passing: true }
    }

    pub(crate) fn unsupported(words: impl Into<String>) -> Self {
        Self { kind: Kind::Unsupported, words: words.into(), passing: false }
    }

    pub(crate) fn other(words: impl Into<String>) -> Self {
        Self { kind: Kind::Other, words: words.into(), passing: true }
    }

    pub(crate) fn of(error: ZooKeeperError) -> Self {
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
