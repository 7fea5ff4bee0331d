//! Why etcd could not say yes or no.

use std::fmt;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No connection, or a member without a leader.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// Authentication failed, or the user may not do that.
    Refused,
    /// The database is full.
    Full,
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
    /// The connection is of no use after it.
    pub(crate) ends_connection: bool,
    /// There is no such lease.
    pub(crate) lease_is_gone: bool,
    /// The authentication token has expired, so the server did nothing.
    pub(crate) signed_out: bool,
    /// The user has no right to this key.
    pub(crate) is_denial: bool,
}

impl Fault {
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

    pub(crate) fn unreachable(words: impl Into<String>) -> Self {
        let fault = Self::new(Kind::Unreachable, words, true, false);
        Self { ends_connection: true, ..fault }
    }

    /// Adds the servers that the failure is about.
    pub(crate) fn at(mut self, node: &str) -> Self {
        if !self.words.contains(node) {
            self.words = format!("{node}: {}", self.words);
        }
        self
    }

    pub(crate) fn timed_out() -> Self {
        Self::new(Kind::TimedOut, "no connection in time", true, false)
    }

    /// The server spoke TLS, or closed the connection without an answer.
    pub(crate) fn speaks_tls(how: &str) -> Self {
        Self::unreachable(format!(
            "{how}: distlock reaches etcd in plain text, so name a port without TLS, or a TLS tunnel to it"
        ))
    }

    /// Not what etcd answers; whether it was carried out is not known.
    pub(crate) fn unexpected() -> Self {
        let fault =
            Self::new(Kind::Other, "an unexpected answer: is this etcd 3.4 or newer?", true, false);
        Self { ends_connection: true, ..fault }
    }

    /// Refused here: nothing was sent.
    pub(crate) fn refused(words: &str) -> Self {
        Self::new(Kind::Other, words, false, true)
    }

    /// The caller has given up.
    pub(crate) fn given_up() -> Self {
        Self::new(Kind::Other, "it was given up", true, true)
    }

    /// Others changed the same all the time, or leases ended as they were used.
    pub(crate) fn unsteady() -> Self {
        Self::new(Kind::Other, "the queue changes too fast", true, true)
    }

    /// The status that a call ended with, which is not that all is well.
    pub(crate) fn of_status(code: u32, words: &str) -> Self {
        let said = |what: &str| words.contains(what);
        let (kind, passing, answered, ends) = match code {
            // Invalid argument.
            3 if said("auth store is old") => (Kind::Unreachable, true, true, true),
            3 if said("user") || said("auth") || said("password") => {
                (Kind::Refused, false, true, false)
            }
            3 | 9 => (Kind::Other, false, true, false),
            // Not found.
            5 => (Kind::Other, true, true, false),
            // Permission denied.
            7 => (Kind::Refused, false, true, false),
            // Resource exhausted.
            8 if said("space") => (Kind::Full, true, true, false),
            8 => (Kind::Other, true, true, false),
            11 => (Kind::Other, true, true, false),
            // Unimplemented.
            12 => (Kind::Other, false, true, false),
            14 if said("leader changed") => (Kind::Unreachable, true, false, false),
            14 => (Kind::Unreachable, true, false, true),
            // Unauthenticated: the token that stands for the password has ended.
            16 => (Kind::Unreachable, true, true, true),
            _ => (Kind::Other, true, false, false),
        };
        // Newer servers return code 16 for the first of these, older servers other codes. The last one comes
        // from a server whose authentication was switched on after this client had signed in.
        let signed_out = code == 16
            || said("invalid auth token")
            || said("auth store is old")
            || said("user name is empty");
        let fault = Self::new(kind, format!("{words} (code {code})"), passing, answered);
        let lease_is_gone = code == 5 && said("lease");
        Self { ends_connection: ends, lease_is_gone, signed_out, is_denial: code == 7, ..fault }
    }
}

impl From<h2::Error> for Fault {
    fn from(error: h2::Error) -> Self {
        Self::unreachable(format!("the connection failed: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Fault {}
