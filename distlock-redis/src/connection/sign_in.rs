//! Why a server refuses our sign-in.
//!
//! A wrong password and a password that the server does not ask for look the same to the client. The second
//! mostly means another kind of server than the URL says, so it is looked at again without signing in.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::time::timeout;

use crate::connection::connect::connect;
use crate::connection::error::{fault, not_connected};
use crate::connection::server_info::{Able, Mode};
use crate::connection::tls::TlsClient;
use distlock_core::select::until;
use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

const LOOK: Duration = Duration::from_millis(300);
const NO_PASSWORD: &str = "the server knows no such user, and lets clients in without a password: leave \
    user and password out of the URL, if it is the server that is meant";

/// Why a connection could not be made, to a server of the mode that is expected.
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
        Ok(Ok(able)) => match able.check(expects) {
            Err(other) => other,
            Ok(()) => Fault::lasting(BackendKind::Refused, NO_PASSWORD),
        },
        // It asks for another one, or says nothing.
        _ => as_it_is,
    }
}

/// What the server says to a client that has not signed in.
async fn without_password(info: &ConnectionInfo, tls: Option<&TlsClient>) -> Result<Able, Fault> {
    let anonymous = info.clone().set_redis_settings(RedisConnectionInfo::default());
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connected = connect(&anonymous, tls, config).await;
    let (mut connection, driver) = connected.map_err(|error| fault(&error))?;
    let hello = redis::cmd("HELLO");
    let hello = until(hello.query_async::<Value>(&mut connection), driver).await;
    let hello = hello.unwrap_or_else(|| Err(std::io::Error::other("closed").into()));
    hello.map(|hello| Able::of(&hello)).map_err(|error| fault(&error))
}
