//! Failures of commands and connections.

use std::error::Error as _;

use distlock_core::store::{BackendKind, Fault};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Explains SQLSTATE 55P03: Postgres did not grant a lock of its own in time.
const BLOCKED: &str = "another session has locked a table or a row of distlock, as LOCK TABLE, VACUUM FULL and ALTER TABLE do";

/// A failure of a command or of a connection.
#[derive(Debug, Clone)]
pub(crate) struct PostgresError {
    pub(crate) fault: Fault,
    /// The server has answered. The command has done nothing, and the server will not execute it later.
    pub(crate) answered: bool,
    /// The error code (SQLSTATE) of the server's answer.
    code: Option<SqlState>,
}

impl PostgresError {
    pub(crate) fn unreachable(words: &str) -> Self {
        Fault::passing(BackendKind::Unreachable, words).into()
    }

    pub(crate) fn connect_timed_out() -> Self {
        Fault::passing(BackendKind::TimedOut, "no connection in time").into()
    }

    /// Creates the failure of a command that these servers have not answered in time.
    pub(crate) fn answer_overdue(servers: &str) -> Self {
        Fault::passing(BackendKind::TimedOut, format!("{servers}: no answer in time")).into()
    }

    /// Creates the failure of a commit that no standby has confirmed, so that a failover may lose it.
    pub(crate) fn unconfirmed() -> Self {
        let words = "the server stopped waiting for its synchronous standby";
        Fault::passing(BackendKind::TimedOut, words).into()
    }

    /// Creates the failure of an answer that the functions of the schema never give.
    pub(crate) fn unexpected() -> Self {
        let words = "an unexpected answer: is this the schema of distlock?";
        Self { answered: true, ..Fault::passing(BackendKind::Other, words).into() }
    }

    /// Creates the failure of a name that the server cannot store. Nothing is sent, so nothing will be executed.
    pub(crate) fn invalid_name(words: &str) -> Self {
        Self { answered: true, ..Fault::lasting(BackendKind::Other, words).into() }
    }

    /// Classifies an error by its SQLSTATE.
    pub(crate) fn of(error: &Error) -> Self {
        let Some(answer) = error.as_db_error() else { return Self::of_connection(error) };
        let code = answer.code().code();
        let (kind, passing) = match (code.get(..2).unwrap_or_default(), code) {
            ("28", _) | (_, "42501" | "3D000") => (BackendKind::Refused, false),
            (_, "53300") | ("08", _) | (_, "57P01" | "57P02" | "57P03") => {
                (BackendKind::Unreachable, true)
            }
            ("53", _) => (BackendKind::OutOfMemory, true),
            // The NOTIFY queue is full, because some session listens and does not read.
            (_, "54000") => (BackendKind::OutOfMemory, true),
            (_, "25006") => (BackendKind::ReadOnly, true),
            (_, "57014" | "55P03") => (BackendKind::TimedOut, true),
            ("40" | "55" | "57" | "58" | "XX", _) => (BackendKind::Other, true),
            // The schema was dropped. The next connection creates it again.
            (_, "3F000" | "42883" | "42P01") => (BackendKind::Other, true),
            // The statement was prepared on another connection.
            (_, "26000") => (BackendKind::Other, true),
            _ => (BackendKind::Other, false),
        };
        let mut words = format!("{} (SQLSTATE {code})", answer.message());
        if code == "55P03" {
            words = format!("{BLOCKED}: {words}");
        }
        let fault = if passing { Fault::passing(kind, words) } else { Fault::lasting(kind, words) };
        Self { fault, answered: true, code: Some(answer.code().clone()) }
    }

    fn of_connection(error: &Error) -> Self {
        let mut words = error.to_string();
        if let Some(cause) = error.source() {
            words = format!("{words}: {cause}");
        }
        // The client itself detects a missing password and a missing TLS configuration.
        let refused = words.contains("invalid configuration") || words.contains("authentication");
        match refused {
            true => Fault::lasting(BackendKind::Refused, words).into(),
            false => Self::unreachable(&words),
        }
    }

    /// Adds the servers that the failure is about.
    pub(crate) fn at(self, servers: &str) -> Self {
        Self { fault: self.fault.at(servers), ..self }
    }

    /// Adds a hint.
    pub(crate) fn and(self, words: &str) -> Self {
        Self { fault: self.fault.and(words), ..self }
    }

    fn has_code(&self, codes: &[SqlState]) -> bool {
        self.code.as_ref().is_some_and(|code| codes.contains(code))
    }

    /// Returns whether the server or the role allows no further connection.
    pub(crate) fn is_of_a_limit(&self) -> bool {
        self.has_code(&[SqlState::TOO_MANY_CONNECTIONS])
    }

    /// Returns whether the commit failed only because the server could not queue its messages.
    pub(crate) fn is_of_notify(&self) -> bool {
        self.has_code(&[SqlState::PROGRAM_LIMIT_EXCEEDED])
    }

    /// Returns whether a prepared statement is missing or another one, because a pooler is in between now.
    pub(crate) fn is_of_a_pooler(&self) -> bool {
        self.has_code(&[SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::PROTOCOL_VIOLATION])
    }

    /// Returns whether the connection cannot be used any more.
    pub(crate) fn ends_connection(&self) -> bool {
        const SCHEMA_DROPPED: [SqlState; 3] = [
            SqlState::INVALID_SCHEMA_NAME,
            SqlState::UNDEFINED_FUNCTION,
            SqlState::UNDEFINED_TABLE,
        ];
        matches!(self.fault.kind, BackendKind::ReadOnly | BackendKind::Unreachable)
            || self.has_code(&SCHEMA_DROPPED)
            || self.is_of_a_pooler()
    }
}

impl From<Fault> for PostgresError {
    /// Makes a failure to which the server has given no answer.
    fn from(fault: Fault) -> Self {
        Self { fault, answered: false, code: None }
    }
}

impl From<PostgresError> for Fault {
    fn from(error: PostgresError) -> Self {
        error.fault
    }
}
