//! The first commands on a connection: what the server is, and how it sees the connection.

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};

use crate::connection::error::{fault, is_denied};
use crate::connection::previous::Peer;
use crate::connection::server_info::{Able, Expects};
use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

const NO_WAIT: &str = "`replicas` needs the command WAIT, which the server refuses: allow it (`+wait`), or leave \
    `replicas` out where writes are durable without it";

/// What a server said when it was greeted.
pub(crate) struct Greeting {
    pub(crate) able: Able,
    /// This connection as the server sees it, if it says so.
    pub(crate) peer: Option<Peer>,
}

/// Asks in one write. A server may refuse to say anything; then nothing is known, and nothing held against it.
pub(crate) async fn greet(
    connection: &MultiplexedConnection,
    expects: Expects,
) -> Result<Greeting, Fault> {
    let mut ask = Pipeline::with_capacity(3);
    ask.cmd("HELLO");
    ask.cmd("CLIENT").arg("INFO");
    if expects.replicas {
        ask.cmd("WAIT").arg(0).arg(1);
    }
    let answers = connection.clone().send_packed_commands(&ask, 0, ask.len()).await;
    let answers = answers.map_err(|error| fault(&error))?;
    let able = answers.first().map(Able::of).unwrap_or_default();
    able.check(expects.mode)?;
    // Here, and not at the first lock.
    if let Some(Value::ServerError(error)) = answers.get(2) {
        let error = RedisError::from(error.clone());
        return Err(if is_denied(&error) {
            Fault::lasting(BackendKind::Refused, NO_WAIT)
        } else {
            fault(&error)
        });
    }
    let peer = match answers.get(1) {
        Some(Value::BulkString(info)) => std::str::from_utf8(info).ok().and_then(Peer::of),
        Some(Value::VerbatimString { text, .. }) => Peer::of(text),
        _ => None,
    };
    Ok(Greeting { able, peer })
}
