//! Why the table could not say yes or no.

use std::error::Error as _;
use std::fmt;

use tokio_postgres::Error;

/// The meaning of a Postgres lock that is not granted in time.
const BLOCKED: &str = "another session has locked a table or a row of distlock, as LOCK TABLE, VACUUM FULL and ALTER TABLE do";

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection, or the server ends it.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// Authentication failed, or the role may not do that.
    Refused,
    /// Out of memory or disk.
    Full,
    /// A standby.
    ReadOnly,
    /// Anything else.
    Other,
}

/// A failure, in the server's words: never keys or passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is.
    pub kind: Kind,
    /// The server's words.
    pub words: String,
    /// Another try may go better.
    pub passing: bool,
    /// The server has answered: the command has done nothing, and will not be carried out any more.
    pub answered: bool,
}

impl Fault {
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        Self { kind: Kind::Unreachable, words: words.into(), passing: true, answered: false }
    }

    /// Adds the servers that the failure is about.
    pub(crate) fn at(mut self, node: &str) -> Self {
        if !self.words.contains(node) {
            self.words = format!("{node}: {}", self.words);
        }
        self
    }

    pub(crate) fn timed_out() -> Self {
        let words = "no connection in time".to_owned();
        Self { kind: Kind::TimedOut, words, passing: true, answered: false }
    }

    /// The server's answer is not what its functions answer.
    pub(crate) fn unexpected() -> Self {
        let words = "an unexpected answer: is this the schema of distlock?".to_owned();
        Self { kind: Kind::Other, words, passing: true, answered: true }
    }

    /// A name that the server cannot store.
    pub(crate) fn name(words: &str) -> Self {
        Self { kind: Kind::Other, words: words.to_owned(), passing: false, answered: true }
    }

    pub(crate) fn of(error: &Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::of_connection(error) };
        let code = answer.code().code();
        let (kind, passing) = match (&code[..2], code) {
            ("28", _) | (_, "42501" | "3D000") => (Kind::Refused, false),
            (_, "53300") | ("08", _) | (_, "57P01" | "57P02" | "57P03") => {
                (Kind::Unreachable, true)
            }
            ("53", _) => (Kind::Full, true),
            // The NOTIFY queue is full, because some session listens and does not read.
            (_, "54000") => (Kind::Full, true),
            (_, "25006") => (Kind::ReadOnly, true),
            (_, "57014" | "55P03") => (Kind::TimedOut, true),
            ("40" | "55" | "57" | "58" | "XX", _) => (Kind::Other, true),
            // The schema was dropped: it is made again with the next connection.
            (_, "3F000" | "42883" | "42P01") => (Kind::Other, true),
            // It was prepared on another connection.
            (_, "26000") => (Kind::Other, true),
            _ => (Kind::Other, false),
        };
        let mut words = format!("{} (SQLSTATE {code})", answer.message());
        if code == "55P03" {
            words = format!("{BLOCKED}: {words}");
        }
        Self { kind, words, passing, answered: true }
    }

    /// The server has committed without waiting for its standby, so a failover may forget the commit.
    pub(crate) fn unconfirmed() -> Self {
        let words = "the server stopped waiting for its synchronous standby".to_owned();
        Self { kind: Kind::TimedOut, words, passing: true, answered: false }
    }

    /// Whether the server, or the role, has no room for another connection.
    pub(crate) fn is_of_a_limit(&self) -> bool {
        self.words.contains("SQLSTATE 53300)")
    }

    /// Whether the commit failed only because its messages could not be sent.
    pub(crate) fn is_of_messages(&self) -> bool {
        self.words.ends_with("54000)")
    }

    fn of_connection(error: &Error) -> Self {
        let mut words = error.to_string();
        if let Some(cause) = error.source() {
            words = format!("{words}: {cause}");
        }
        // What the client finds out before it asks: no password, no TLS.
        let refused = words.contains("invalid configuration") || words.contains("authentication");
        let (kind, passing) = match refused {
            true => (Kind::Refused, false),
            false => (Kind::Unreachable, true),
        };
        Self { kind, words, passing, answered: false }
    }

    /// The connection is of no use after it.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(self.kind, Kind::ReadOnly | Kind::Unreachable)
            || self.words.ends_with("3F000)")
            || self.words.ends_with("42883)")
            || self.words.ends_with("42P01)")
            || self.is_of_a_pooler()
    }

    /// A statement was prepared that is not there any more, or another one: a pooler was put in between.
    pub(crate) fn is_of_a_pooler(&self) -> bool {
        self.words.ends_with("26000)") || self.words.ends_with("08P01)")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Fault {}
