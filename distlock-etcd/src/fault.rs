//! The failures of commands.

use std::fmt;

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no connection, or the member has no leader.
    Unreachable,
    /// No answer arrived in time.
    TimedOut,
    /// Authentication failed, or the user lacks the permission.
    Refused,
    /// The database is full.
    Full,
    /// Anything else.
    Other,
}

/// A failure of a command. Its text is the server's and contains no keys or passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFault {
    /// The kind of the failure.
    pub kind: Kind,
    /// The server's text.
    pub words: String,
    /// A later attempt may succeed.
    pub passing: bool,
    /// The server has answered: the command had no effect, and never will.
    pub answered: bool,
    /// The connection cannot be used after it.
    pub(crate) ends_connection: bool,
    /// The lease does not exist.
    pub(crate) lease_is_gone: bool,
    /// The authentication token has expired, so the command had no effect.
    pub(crate) signed_out: bool,
    /// The user lacks the permission for this key.
    pub(crate) is_denial: bool,
}

impl EtcdFault {
    fn new(kind: Kind, words: impl Into<String>, passing: bool, answered: bool) -> Self {
        let words = words.into();
        Self {
            kind,
            words,
            passing,
            answered,
            ends_connection: false,
            lease_is_gone: false,
            signed_out: false,
            is_denial: false,
        }
    }

    /// Returns a failure of the connection.
    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        let fault = Self::new(Kind::Unreachable, words, true, false);
        Self { ends_connection: true, ..fault }
    }

    /// Adds the servers that failed.
    pub(crate) fn at(mut self, node: &str) -> Self {
        if !self.words.contains(node) {
            self.words = format!("{node}: {}", self.words);
        }
        self
    }

    /// Returns a failure to connect in time.
    pub(crate) fn timed_out() -> Self {
        Self::new(Kind::TimedOut, "no connection in time", true, false)
    }

    /// Explains that the server seems to expect TLS.
    pub(crate) fn speaks_tls(how: &str) -> Self {
        Self::unreachable(format!(
            "{how}: distlock reaches etcd in plain text, so name a port without TLS, or a TLS tunnel to it"
        ))
    }

    /// Returns a failure for an answer that etcd does not give. The command may have had an effect.
    pub(crate) fn unexpected() -> Self {
        let fault =
            Self::new(Kind::Other, "an unexpected answer: is this etcd 3.4 or newer?", true, false);
        Self { ends_connection: true, ..fault }
    }

    /// Returns a failure that occurred before anything was sent.
    pub(crate) fn refused(words: &str) -> Self {
        Self::new(Kind::Other, words, false, true)
    }

    /// Returns a failure because the caller has given up.
    pub(crate) fn given_up() -> Self {
        Self::new(Kind::Other, "it was given up", true, true)
    }

    /// Returns a failure after too many attempts: the queue changed during each, or a lease ended.
    pub(crate) fn unsteady() -> Self {
        Self::new(Kind::Other, "the queue changes too fast", true, true)
    }

    /// Translates the gRPC status of a failed call.
    pub(crate) fn of_status(code: u32, words: &str) -> Self {
        let says = |what: &str| words.contains(what);
        let (kind, passing, answered, ends) = match code {
            // Invalid argument.
            3 if says("auth store is old") => (Kind::Unreachable, true, true, true),
            3 if says("user") || says("auth") || says("password") => {
                (Kind::Refused, false, true, false)
            }
            3 | 9 => (Kind::Other, false, true, false),
            // Not found.
            5 => (Kind::Other, true, true, false),
            // Permission denied.
            7 => (Kind::Refused, false, true, false),
            // Resource exhausted.
            8 if says("space") => (Kind::Full, true, true, false),
            8 => (Kind::Other, true, true, false),
            11 => (Kind::Other, true, true, false),
            // Unimplemented.
            12 => (Kind::Other, false, true, false),
            14 if says("leader changed") => (Kind::Unreachable, true, false, false),
            14 => (Kind::Unreachable, true, false, true),
            // Unauthenticated: the authentication token has expired.
            16 => (Kind::Unreachable, true, true, true),
            _ => (Kind::Other, true, false, false),
        };
        // Newer servers return code 16 for the first of these texts, older servers other codes. The last text comes
        // from a server whose authentication was switched on after this client had connected.
        let signed_out = code == 16
            || says("invalid auth token")
            || says("auth store is old")
            || says("user name is empty");
        let fault = Self::new(kind, format!("{words} (code {code})"), passing, answered);
        let lease_is_gone = code == 5 && says("lease");
        Self { ends_connection: ends, lease_is_gone, signed_out, is_denial: code == 7, ..fault }
    }
}

impl From<h2::Error> for EtcdFault {
    fn from(error: h2::Error) -> Self {
        Self::unreachable(format!("the connection failed: {error}"))
    }
}

impl fmt::Display for EtcdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for EtcdFault {}
