//! Whether a port that does not answer a handshake speaks plain text.
//!
//! A server without TLS takes the first message of a handshake for the beginning of a line, and waits
//! for its end: without a look of our own such a mistake would show as silence.

use std::future::pending;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const LOOK: Duration = Duration::from_secs(1);

/// Resolves if a handshake that has taken `after` is with a server that answers a plain `PING`.
pub(crate) async fn speaks_plain(info: &ConnectionInfo, after: Duration) {
    sleep(after).await;
    let plain = timeout(LOOK, answers_ping(info)).await;
    if !matches!(plain, Ok(Some(true))) {
        pending::<()>().await;
    }
}

/// Whatever it answers: it may ask for a password.
async fn answers_ping(info: &ConnectionInfo) -> Option<bool> {
    let ConnectionAddr::Tcp(host, port) = info.addr() else { return None };
    let socket = TcpStream::connect((host.as_str(), *port)).await.ok()?;
    socket.writable().await.ok()?;
    socket.try_write(b"PING\r\n").ok()?;
    let mut first = [0];
    socket.readable().await.ok()?;
    socket.try_read(&mut first).ok()?;
    Some(matches!(first, [b'+' | b'-']))
}
