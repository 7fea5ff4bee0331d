//! Errors of the Redis client, mapped to those of a store.

use distlock_core::store::{BackendKind, Fault};
use redis::{ErrorKind, RedisError};

use crate::connection::tls::refusal;

/// The error for a fence counter with a value that no valid counter can have.
pub(crate) const COUNTER: &str = "the counter of fencing tokens (`<prefix>:fence`) holds a value that \
    it cannot have: something else has written to it, or the server's clock was wrong; delete that key";
/// The error for a node of a cluster, even if it is the only one: a lock, its queue and the counter must be in one
/// place.
pub(crate) const CLUSTER: &str =
    "this server is a node of a cluster: use redis-cluster://host[:port]";
/// The error for a connection that was closed while it was opened.
const GREETING: &str = "the connection was closed at the greeting, or the answer is not a Redis's: check host and \
    port; at a port for TLS use rediss:// or `?tls=true`";
/// The error for a connection that was closed during a TLS handshake.
const HANDSHAKE: &str = "the connection was closed in the TLS handshake: check host and port, and whether a Redis \
    speaks TLS there";
/// The error for a server that is not a node of a cluster.
pub(crate) const NO_CLUSTER: &str =
    "this server is not a node of a cluster: use redis://host[:port]";
/// The error for a server without any cluster support.
pub(crate) const KNOWS_NO_CLUSTER: &str = "this server knows nothing of clusters: use redis://host[:port], or \
    redis-sentinel://host[:port]/NAME if it is a sentinel";
/// The client library's text for a failed `SELECT`. It leaves the server's code out.
const SELECT_FAILED: &str = "refused to switch database";
/// The server's replies to an `INCR` of a value that cannot be incremented.
const NO_NUMBER: [&str; 2] =
    ["value is not an integer or out of range", "increment or decrement would overflow"];
/// The texts before the arguments of a command, which servers repeat.
const ARGUMENTS: [&str; 2] = [", with args", " with args"];
/// Parts of the names of all locks and queues.
const NAMES: [&str; 2] = ["lock:", "queue:"];
/// The longest command name that is kept in an error.
const LONGEST_COMMAND: usize = 32;

/// Whether the node cannot serve locks any more, so that another one must be found.
pub(crate) fn leaves_connection(error: &RedisError) -> bool {
    matches!(error.code(), Some("READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS"))
}

pub(crate) fn is_missing_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether a node of a cluster replies that a key belongs to another node, or that keys are on different nodes.
pub(crate) fn is_of_cluster(error: &RedisError) -> bool {
    matches!(error.code(), Some("CROSSSLOT" | "MOVED" | "ASK"))
}

/// Whether the server refuses until an operator changes permissions or commands. That is not the case while it is busy,
/// loads its data or has too many clients, for which it has other codes.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    let text = error.to_string();
    match error.code() {
        Some("NOPERM" | "NOAUTH" | "WRONGPASS" | "NOPROTO") => true,
        Some(_) => text.contains("unknown command") || text.contains("unknown subcommand"),
        None => {
            let kinds = [ErrorKind::AuthenticationFailed, ErrorKind::RESP3NotSupported];
            kinds.contains(&error.kind())
        }
    }
}

/// Returns the text of an error without keys, passwords and other arguments of the command.
pub(crate) fn words(error: &RedisError) -> String {
    without_arguments(&error.to_string())
}

/// Removes the arguments that servers repeat: those of an unknown command, or a word in quotes. Command names are kept.
fn without_arguments(text: &str) -> String {
    let end = ARGUMENTS.iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let text = &text[..end];
    // A key may also appear without quotes. It may contain any character, so the rest of the text is removed as well.
    let name = NAMES.iter().filter_map(|name| text.find(name)).min();
    let text = match name {
        Some(name) => {
            let begin = text[..name].rfind(char::is_whitespace).map_or(0, |space| space + 1);
            [&text[..begin], "…"].concat()
        }
        None => text.to_owned(),
    };
    let mut words = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((at, quote)) = opening_quote(rest) {
        let behind = &rest[at + quote.len_utf8()..];
        let is_command = |word: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "|_-".contains(c);
            word.len() <= LONGEST_COMMAND && word.chars().all(plain)
        };
        match behind.find(quote) {
            Some(end) if is_command(&behind[..end]) => {
                let end = rest.len() - behind.len() + end + quote.len_utf8();
                words.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            // The quotation may contain quotes itself, so it extends to the last one.
            _ => {
                words.extend([&rest[..at], "…"]);
                rest = behind.rsplit_once(quote).map_or("", |(_, behind)| behind);
            }
        }
    }
    words + rest
}

/// Finds the beginning of a quotation. An apostrophe is none.
fn opening_quote(text: &str) -> Option<(usize, char)> {
    let mut before = ' ';
    text.char_indices().find(|(_, c)| {
        let opens = matches!(c, '\'' | '`' | '"') && !before.is_alphanumeric();
        before = *c;
        opens
    })
}

/// Maps an error of the client library to a fault. It goes by the server's code, because many codes (`OOM`,
/// `NOREPLICAS`, `BUSY`) have no kind in the client library.
pub(crate) fn fault(error: &RedisError) -> Fault {
    let said = error.to_string();
    let text = without_arguments(&said);
    match error.code() {
        Some("OOM") => return Fault::passing(BackendKind::OutOfMemory, text),
        Some("READONLY" | "MASTERDOWN") => return Fault::passing(BackendKind::ReadOnly, text),
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => {
            return Fault::lasting(BackendKind::Refused, text);
        }
        Some("LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS") => {
            return Fault::passing(BackendKind::Other, text);
        }
        Some("ERR") if said.contains("max number of clients") => {
            return Fault::passing(BackendKind::Unreachable, text);
        }
        // A command that an ACL forbids inside a script has no code of its own.
        Some("ERR") if said.contains("user executing the script can't") => {
            return Fault::lasting(BackendKind::Refused, text);
        }
        _ if is_of_cluster(error) => return Fault::lasting(BackendKind::Other, CLUSTER),
        // The counter is the only key of ours that is incremented.
        Some("ERR") if NO_NUMBER.iter().any(|words| said.contains(words)) => {
            return Fault::lasting(BackendKind::Other, COUNTER);
        }
        Some(_) => return Fault::lasting(BackendKind::Other, text),
        None => {}
    }
    if let Some(refusal) = refusal(error) {
        return refusal;
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => Fault::lasting(BackendKind::Refused, text),
        ErrorKind::InvalidClientConfig => Fault::lasting(BackendKind::Other, text),
        _ if error.is_timeout() => Fault::passing(BackendKind::TimedOut, text),
        ErrorKind::Io | ErrorKind::Parse => Fault::passing(BackendKind::Unreachable, text),
        _ => Fault::lasting(BackendKind::Other, text),
    }
}

/// Maps an error while a connection to this database is opened to a fault. If a `SELECT` failed, the client library's
/// error has the server's text without its code.
pub(crate) fn not_connected(error: &RedisError, database: i64, tls: bool) -> Fault {
    let said = error.to_string();
    if !said.contains(SELECT_FAILED) {
        // A TLS port closes the connection like this after a plain-text sign-in.
        let dropped = error.is_connection_dropped() && !error.is_connection_refusal();
        let cut = dropped || error.kind() == ErrorKind::Parse;
        return match (cut && refusal(error).is_none(), tls) {
            (true, false) => Fault::passing(BackendKind::Unreachable, GREETING),
            (true, true) => Fault::passing(BackendKind::Unreachable, HANDSHAKE),
            (false, _) => no_server(fault(error), error),
        };
    }
    let says = |words: &[&str]| words.iter().any(|words| said.contains(words));
    if says(&["DB index"]) {
        let text = format!(
            "database {database} does not exist; name one in the URL that does, 0 if in doubt, or \
             raise `databases` at the server"
        );
        return Fault::lasting(BackendKind::Refused, text);
    }
    if says(&["cluster mode"]) {
        return Fault::lasting(BackendKind::Other, CLUSTER);
    }
    let text = without_arguments(&said);
    match says(&["Authentication required", "permission"]) {
        true => Fault::lasting(BackendKind::Refused, text),
        // The server is busy, or loads its data.
        false => Fault::passing(BackendKind::Other, text),
    }
}

/// Adds a hint to the fault if there is no server at all.
fn no_server(fault: Fault, error: &RedisError) -> Fault {
    let said = error.to_string();
    if error.is_connection_refusal() {
        fault.and(": nothing listens there; check host and port, and whether the server runs")
    } else if said.contains("lookup address") {
        fault.and(": check the host's name")
    } else {
        fault
    }
}

/// Returns the fault for a reply that none of our commands can have.
pub(crate) fn unexpected() -> Fault {
    Fault::lasting(BackendKind::Other, "an answer that does not fit the command; is it a Redis?")
}

#[cfg(test)]
mod tests {
    use super::without_arguments;

    /// Fault: F18.
    #[test]
    fn what_a_server_repeats_is_left_out() {
        for (said, words) in [
            (
                "ERR unknown command 'PTTL', with args beginning with: 'distlock:lock:{a@b.c}' ",
                "ERR unknown command 'PTTL'",
            ),
            (
                "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `secret`, ",
                "ERR unknown command `HELLO`",
            ),
            (
                "ERR unknown subcommand 'NUMSUB'. Try PUBSUB HELP.",
                "ERR unknown subcommand 'NUMSUB'. Try PUBSUB HELP.",
            ),
            (
                "NOPERM User app has no permissions to run the 'client|kill' command",
                "NOPERM User app has no permissions to run the 'client|kill' command",
            ),
            (
                "NOPERM User app has no permissions to access the 'distlock:lock:{it's}' key",
                "NOPERM User app has no permissions to access the …",
            ),
            (
                "ERR the user executing the script can't run this command",
                "ERR the user executing the script can't run this command",
            ),
            ("\"BUSY\": Redis is busy", "\"BUSY\": Redis is busy"),
            ("a proxy does not like shop:queue:{a b c} today", "a proxy does not like …"),
            ("ERR no such thing: 'some 'quoted' thing' at all", "ERR no such thing: … at all"),
            ("ERR it ends in a 'quotation", "ERR it ends in a …"),
        ] {
            assert_eq!(without_arguments(said), words);
        }
    }
}
