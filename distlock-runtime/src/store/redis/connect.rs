//! Opening a connection: the socket, its options, and the sign-in.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::io::{Bytes, PortableSocket, SocketMover};

const KEEPALIVE: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens the socket, resolving the name again, and signs in.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Bytes, SocketMover), RedisError> {
    match info.addr() {
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let (socket, mover) = PortableSocket::unix(UnixStream::connect(path).await?);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), socket, config)
                    .await?;
            Ok((connection, Box::pin(driver), mover))
        }
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&keepalive)?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
            let (socket, mover) = PortableSocket::tcp(stream);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), socket, config)
                    .await?;
            Ok((connection, Box::pin(driver), mover))
        }
        _ => Err(RedisError::from((
            redis::ErrorKind::InvalidClientConfig,
            "this kind of address is not supported",
        ))),
    }
}
