//! The first commands on a connection: who is there, and what it calls us.

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};

use super::able::Able;
use super::previous::Peer;

/// What a server said when it was greeted.
pub(super) struct Greeting {
    pub(super) able: Able,
    /// This connection as the server sees it, if it tells.
    pub(super) peer: Option<Peer>,
}

/// Asks in one write. A server may refuse to say anything; then nothing is known.
pub(super) async fn greet(connection: &MultiplexedConnection) -> Result<Greeting, RedisError> {
    let mut ask = Pipeline::with_capacity(2);
    ask.cmd("HELLO");
    ask.cmd("CLIENT").arg("INFO");
    let answers = connection.clone().send_packed_commands(&ask, 0, ask.len()).await?;
    let able = answers.first().map(Able::of).unwrap_or_default();
    let peer = match answers.get(1) {
        Some(Value::BulkString(info)) => std::str::from_utf8(info).ok().and_then(Peer::of),
        Some(Value::VerbatimString { text, .. }) => Peer::of(text),
        _ => None,
    };
    Ok(Greeting { able, peer })
}
