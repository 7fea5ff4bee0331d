//! Opens connections: the socket, its options, TLS, the sign-in, and the driver that moves the bytes.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::connection::io::{ClientDriver, Driver, PortableSocket, Socket};
use crate::connection::tls::TlsClient;

const KEEPALIVE: Duration = Duration::from_secs(1);

/// Opens a connection. The caller drives it by polling the returned future.
pub(crate) async fn connect(
    info: &ConnectionInfo,
    tls: Option<&TlsClient>,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, ClientDriver), RedisError> {
    secure_and_sign_in(info, tls, open(info).await?, config).await
}

/// Opens a connection that a [`Driver`] drives on the engine, or also on callers' runtimes (see
/// [`io`](crate::connection::io)).
pub(crate) async fn connect_driven(
    info: &ConnectionInfo,
    tls: Option<&TlsClient>,
    config: AsyncConnectionConfig,
    by_callers: bool,
) -> Result<(MultiplexedConnection, Arc<Driver>), RedisError> {
    let socket = open(info).await?;
    if by_callers {
        let (socket, mover) = PortableSocket::new(socket);
        let (connection, driver) = secure_and_sign_in(info, tls, socket, config).await?;
        Ok((connection, Driver::for_callers(driver, mover)))
    } else {
        let (connection, driver) = secure_and_sign_in(info, tls, socket, config).await?;
        Ok((connection, Driver::for_engine(driver)))
    }
}

/// Opens the socket. The host name is resolved again each time.
async fn open(info: &ConnectionInfo) -> Result<Socket, RedisError> {
    match info.addr() {
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            Ok(Socket::Unix(tokio::net::UnixStream::connect(path).await?))
        }
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&keepalive)?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(Duration::from_secs(2)))?;
            Ok(Socket::Tcp(stream))
        }
        _ => Err(RedisError::from((
            redis::ErrorKind::InvalidClientConfig,
            "this kind of address is not supported",
        ))),
    }
}

/// Adds TLS above the socket, so that the socket can still change its reactor.
async fn secure_and_sign_in(
    info: &ConnectionInfo,
    tls: Option<&TlsClient>,
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, ClientDriver), RedisError> {
    match tls {
        None => sign_in(info, socket, config).await,
        Some(tls) => sign_in(info, tls.wrap(info, socket).await?, config).await,
    }
}

async fn sign_in(
    info: &ConnectionInfo,
    socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, ClientDriver), RedisError> {
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), socket, config).await?;
    Ok((connection, Box::pin(driver)))
}
