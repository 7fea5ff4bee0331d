//! Failures of commands and connections.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::Error;

/// Explains SQLSTATE 55P03: Postgres did not grant a lock of its own in time.
const BLOCKED: &str = "another session has locked a table or a row of distlock, as LOCK TABLE, VACUUM FULL and ALTER TABLE do";

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresErrorKind {
    /// There is no connection, or the server ends it.
    Unreachable,
    /// There was no answer in time.
    TimedOut,
    /// Authentication failed, or the role lacks a privilege.
    Refused,
    /// The server is out of memory or disk.
    Full,
    /// The server is a standby.
    ReadOnly,
    /// Anything else.
    Other,
}

/// A failure, in the server's words. They never contain keys or passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresError {
    /// The kind of the failure.
    pub kind: PostgresErrorKind,
    /// The server's words.
    pub words: String,
    /// Another attempt may succeed.
    pub passing: bool,
    /// The server has answered. The command has done nothing, and the server will not execute it later.
    pub answered: bool,
}

impl PostgresError {
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        Self {
            kind: PostgresErrorKind::Unreachable,
            words: words.into(),
            passing: true,
            answered: false,
        }
    }

    /// Adds the servers that the failure is about.
    pub(crate) fn at(mut self, node: &str) -> Self {
        if !self.words.contains(node) {
            self.words = format!("{node}: {}", self.words);
        }
        self
    }

    pub(crate) fn connect_timed_out() -> Self {
        let words = "no connection in time".to_owned();
        Self { kind: PostgresErrorKind::TimedOut, words, passing: true, answered: false }
    }

    /// Creates the failure of an answer that the functions of the schema never give.
    pub(crate) fn unexpected() -> Self {
        let words = "an unexpected answer: is this the schema of distlock?".to_owned();
        Self { kind: PostgresErrorKind::Other, words, passing: true, answered: true }
    }

    /// Creates the failure of a name that the server cannot store.
    pub(crate) fn invalid_name(words: &str) -> Self {
        Self {
            kind: PostgresErrorKind::Other,
            words: words.to_owned(),
            passing: false,
            answered: true,
        }
    }

    /// Classifies an error by its SQLSTATE.
    pub(crate) fn of(error: &Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::of_connection(error) };
        let code = answer.code().code();
        let (kind, passing) = match (&code[..2], code) {
            ("28", _) | (_, "42501" | "3D000") => (PostgresErrorKind::Refused, false),
            (_, "53300") | ("08", _) | (_, "57P01" | "57P02" | "57P03") => {
                (PostgresErrorKind::Unreachable, true)
            }
            ("53", _) => (PostgresErrorKind::Full, true),
            // The NOTIFY queue is full, because some session listens and does not read.
            (_, "54000") => (PostgresErrorKind::Full, true),
            (_, "25006") => (PostgresErrorKind::ReadOnly, true),
            (_, "57014" | "55P03") => (PostgresErrorKind::TimedOut, true),
            ("40" | "55" | "57" | "58" | "XX", _) => (PostgresErrorKind::Other, true),
            // The schema was dropped. The next connection creates it again.
            (_, "3F000" | "42883" | "42P01") => (PostgresErrorKind::Other, true),
            // The statement was prepared on another connection.
            (_, "26000") => (PostgresErrorKind::Other, true),
            _ => (PostgresErrorKind::Other, false),
        };
        let mut words = format!("{} (SQLSTATE {code})", answer.message());
        if code == "55P03" {
            words = format!("{BLOCKED}: {words}");
        }
        Self { kind, words, passing, answered: true }
    }

    /// Creates the failure of a commit that no standby has confirmed, so that a failover may lose it.
    pub(crate) fn unconfirmed() -> Self {
        let words = "the server stopped waiting for its synchronous standby".to_owned();
        Self { kind: PostgresErrorKind::TimedOut, words, passing: true, answered: false }
    }

    /// Returns whether the server or the role allows no further connection.
    pub(crate) fn is_of_a_limit(&self) -> bool {
        self.words.contains("SQLSTATE 53300)")
    }

    /// Returns whether the commit failed only because the server could not queue its messages.
    pub(crate) fn is_of_notify(&self) -> bool {
        self.words.ends_with("54000)")
    }

    fn of_connection(error: &Error) -> Self {
        let mut words = error.to_string();
        if let Some(cause) = error.source() {
            words = format!("{words}: {cause}");
        }
        // The client itself detects a missing password and a missing TLS configuration.
        let refused = words.contains("invalid configuration") || words.contains("authentication");
        let (kind, passing) = match refused {
            true => (PostgresErrorKind::Refused, false),
            false => (PostgresErrorKind::Unreachable, true),
        };
        Self { kind, words, passing, answered: false }
    }

    /// Returns whether the connection cannot be used any more.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self.kind, PostgresErrorKind::ReadOnly | PostgresErrorKind::Unreachable)
            || self.words.ends_with("3F000)")
            || self.words.ends_with("42883)")
            || self.words.ends_with("42P01)")
            || self.is_of_a_pooler()
    }

    /// Returns whether a prepared statement is missing or another one, because a pooler is in between now.
    pub(crate) fn is_of_a_pooler(&self) -> bool {
        self.words.ends_with("26000)") || self.words.ends_with("08P01)")
    }
}

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for PostgresError {}
