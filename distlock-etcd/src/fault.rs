//! The failures of commands.

use distlock_core::store::{BackendKind, Fault};

/// A failure of a command, with what it says about the command's effect and about the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EtcdFault {
    pub(crate) fault: Fault,
    /// The server has answered: the command had no effect, and never will.
    pub(crate) answered: bool,
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
    fn new(fault: Fault, answered: bool) -> Self {
        Self {
            fault,
            answered,
            ends_connection: false,
            lease_is_gone: false,
            signed_out: false,
            is_denial: false,
        }
    }

    /// Returns a failure of the connection.
    pub(crate) fn unreachable(reason: impl Into<String>) -> Self {
        let fault = Fault::passing(BackendKind::Unreachable, reason.into());
        Self { ends_connection: true, ..Self::new(fault, false) }
    }

    /// Adds the servers that failed.
    pub(crate) fn at(self, node: &str) -> Self {
        Self { fault: self.fault.at(node), ..self }
    }

    /// Returns a failure to connect in time.
    pub(crate) fn timed_out() -> Self {
        Self::new(Fault::passing(BackendKind::TimedOut, "no connection in time"), false)
    }

    /// Explains that the server seems to expect TLS.
    pub(crate) fn speaks_tls(how: &str) -> Self {
        Self::unreachable(format!(
            "{how}: distlock reaches etcd in plain text, so name a port without TLS, or a TLS tunnel to it"
        ))
    }

    /// Returns a failure for an answer that etcd does not give. The command may have had an effect.
    pub(crate) fn unexpected() -> Self {
        let reason = "an unexpected answer: is this etcd 3.4 or newer?";
        let fault = Fault::passing(BackendKind::Other, reason);
        Self { ends_connection: true, ..Self::new(fault, false) }
    }

    /// Returns a failure that occurred before anything was sent.
    pub(crate) fn refused(reason: &str) -> Self {
        Self::new(Fault::lasting(BackendKind::Other, reason), true)
    }

    /// Returns a failure because the caller has given up.
    pub(crate) fn given_up() -> Self {
        Self::new(Fault::given_up(), true)
    }

    /// Returns a failure after too many attempts: the queue changed during each, or a lease ended.
    pub(crate) fn unsteady() -> Self {
        Self::new(Fault::passing(BackendKind::Other, "the queue changes too fast"), true)
    }

    /// Translates the gRPC status of a failed call.
    pub(crate) fn of_status(code: u32, words: &str) -> Self {
        let says = |what: &str| words.contains(what);
        let (kind, passing, answered, ends) = match code {
            // Invalid argument.
            3 if says("auth store is old") => (BackendKind::Unreachable, true, true, true),
            3 if says("user") || says("auth") || says("password") => {
                (BackendKind::Refused, false, true, false)
            }
            3 | 9 => (BackendKind::Other, false, true, false),
            // Not found.
            5 => (BackendKind::Other, true, true, false),
            // Permission denied.
            7 => (BackendKind::Refused, false, true, false),
            // Resource exhausted.
            8 if says("space") => (BackendKind::OutOfMemory, true, true, false),
            8 => (BackendKind::Other, true, true, false),
            11 => (BackendKind::Other, true, true, false),
            // Unimplemented.
            12 => (BackendKind::Other, false, true, false),
            14 if says("leader changed") => (BackendKind::Unreachable, true, false, false),
            14 => (BackendKind::Unreachable, true, false, true),
            // Unauthenticated: the authentication token has expired.
            16 => (BackendKind::Unreachable, true, true, true),
            _ => (BackendKind::Other, true, false, false),
        };
        // Newer servers return code 16 for the first of these texts, older servers other codes. The last text comes
        // from a server whose authentication was switched on after this client had connected.
        let signed_out = code == 16
            || says("invalid auth token")
            || says("auth store is old")
            || says("user name is empty");
        let reason = format!("{words} (code {code})");
        let fault = match passing {
            true => Fault::passing(kind, reason),
            false => Fault::lasting(kind, reason),
        };
        Self {
            ends_connection: ends,
            lease_is_gone: code == 5 && says("lease"),
            signed_out,
            is_denial: code == 7,
            ..Self::new(fault, answered)
        }
    }
}

impl From<EtcdFault> for Fault {
    fn from(fault: EtcdFault) -> Self {
        fault.fault
    }
}

impl From<h2::Error> for EtcdFault {
    fn from(error: h2::Error) -> Self {
        Self::unreachable(format!("the connection failed: {error}"))
    }
}
