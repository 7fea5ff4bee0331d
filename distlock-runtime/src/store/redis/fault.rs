//! What an error of the Redis client means for a lock.

use redis::{ErrorKind, RedisError};

use crate::error::BackendKind;
use crate::store::Fault;

/// Whether the node behind a connection cannot serve locks any more, and another must be found.
pub(crate) fn leaves_connection(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS"))
}

pub(crate) fn is_missing_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Told apart by code: many codes (`OOM`, `NOREPLICAS`, `BUSY`) have no kind in the client.
pub(crate) fn fault(error: &RedisError) -> Fault {
    let text = error.to_string();
    match error.code() {
        Some("OOM") => return Fault::passing(BackendKind::OutOfMemory, text),
        Some("READONLY" | "MASTERDOWN") => return Fault::passing(BackendKind::ReadOnly, text),
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => {
            return Fault::lasting(BackendKind::Refused, text);
        }
        Some("LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS") => {
            return Fault::passing(BackendKind::Other, text);
        }
        Some("ERR") if text.contains("max number of clients") => {
            return Fault::passing(BackendKind::Unreachable, text);
        }
        // What an ACL forbids inside a script has no code of its own.
        Some("ERR") if text.contains("user executing the script can't") => {
            return Fault::lasting(BackendKind::Refused, text);
        }
        Some(_) => return Fault::lasting(BackendKind::Other, text),
        None => {}
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Fault::lasting(BackendKind::Refused, text),
        ErrorKind::InvalidClientConfig => Fault::lasting(BackendKind::Other, text),
        _ if error.is_timeout() => Fault::passing(BackendKind::TimedOut, text),
        ErrorKind::Io | ErrorKind::Parse => Fault::passing(BackendKind::Unreachable, text),
        _ => Fault::lasting(BackendKind::Other, text),
    }
}

/// An answer that no command of ours can have.
pub(crate) fn unexpected() -> Fault {
    Fault::lasting(BackendKind::Other, "an answer that does not fit the command; is it a Redis?")
}
