//! The handshake of a connection: the server's description of itself, a failed sign-in, and the eviction policy.

use std::time::Duration;

use distlock_core::select::until;
use distlock_core::store::{BackendKind, Fault};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, Pipeline, RedisConnectionInfo, RedisError,
    Value, cmd,
};
use tokio::time::timeout;

use crate::connection::connect::connect;
use crate::connection::error::{fault, is_denied, not_connected};
use crate::connection::previous::Peer;
use crate::connection::server_info::{ExpectedServer, Mode, ServerInfo};
use crate::connection::tls::TlsClient;

const NO_WAIT: &str = "`replicas` needs the command WAIT, which the server refuses: allow it (`+wait`), or leave \
    `replicas` out where writes are durable without it";

const LOOK: Duration = Duration::from_millis(300);
const NO_PASSWORD: &str = "the server knows no such user, and lets clients in without a password: leave \
    user and password out of the URL, if it is the server that is meant";

/// The server's answers in a handshake.
pub(crate) struct Greeting {
    pub(crate) server_info: ServerInfo,
    /// The connection as the server sees it, if the server says so.
    pub(crate) peer: Option<Peer>,
}

/// Performs the handshake in one write. If the server does not describe itself, it is accepted.
pub(crate) async fn greet(
    connection: &MultiplexedConnection,
    expects: ExpectedServer,
) -> Result<Greeting, Fault> {
    let mut ask = Pipeline::with_capacity(3);
    ask.cmd("HELLO");
    ask.cmd("CLIENT").arg("INFO");
    if expects.replicas {
        ask.cmd("WAIT").arg(0).arg(1);
    }
    let answers = connection.clone().send_packed_commands(&ask, 0, ask.len()).await;
    let answers = answers.map_err(|error| fault(&error))?;
    let server_info = answers.first().map(ServerInfo::of).unwrap_or_default();
    server_info.check(expects.mode)?;
    // Fails here, and not at the first lock.
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
    Ok(Greeting { server_info, peer })
}

/// Finds out why a connection to a server of the expected mode could not be opened.
pub(crate) async fn why_not(
    error: &RedisError,
    info: &ConnectionInfo,
    tls: Option<&TlsClient>,
    expects: Mode,
) -> Fault {
    let as_it_is = not_connected(error, info.redis_settings().db(), tls.is_some());
    if error.kind() != ErrorKind::AuthenticationFailed {
        return as_it_is;
    }
    let look = timeout(LOOK, without_password(info, tls)).await;
    match look {
        Ok(Ok(server_info)) => match server_info.check(expects) {
            Err(other) => other,
            Ok(()) => Fault::lasting(BackendKind::Refused, NO_PASSWORD),
        },
        // The server expects another password, or does not reply.
        _ => as_it_is,
    }
}

/// Asks the server to describe itself to a client that has not signed in.
async fn without_password(
    info: &ConnectionInfo,
    tls: Option<&TlsClient>,
) -> Result<ServerInfo, Fault> {
    let anonymous = info.clone().set_redis_settings(RedisConnectionInfo::default());
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connected = connect(&anonymous, tls, config).await;
    let (mut connection, driver) = connected.map_err(|error| fault(&error))?;
    let hello = redis::cmd("HELLO");
    let hello = until(hello.query_async::<Value>(&mut connection), driver).await;
    let hello = hello.unwrap_or_else(|| Err(std::io::Error::other("closed").into()));
    hello.map(|hello| ServerInfo::of(&hello)).map_err(|error| fault(&error))
}

/// Returns the policy by which the server evicts locks; `None` if it evicts nothing, or if this user may not run
/// `INFO`.
pub(crate) async fn policy(connection: &mut MultiplexedConnection) -> Option<String> {
    let info: String = cmd("INFO").arg("memory").query_async(connection).await.ok()?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let policy = field("maxmemory_policy")?;
    let evicts = field("maxmemory")? != "0" && policy != "noeviction";
    evicts.then(|| policy.to_owned())
}
