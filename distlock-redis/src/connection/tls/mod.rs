//! TLS over a connection's socket.
//!
//! The client library does not know of it: it is given a stream. The socket stays underneath, so that a
//! connection with TLS changes reactor like any other (see [`io`](super::io)).
//!
//! - `refusal`: what a failed handshake means, and the mend
//! - `plain`: whether the port speaks plain text

mod plain;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use distlock_core::select::until;
pub(crate) use refusal::refusal;

/// A handshake that takes longer may be with a server that waits for the end of a line.
const SLOW: Duration = Duration::from_millis(300);

/// Makes connections with TLS; shared by all of a manager's.
pub struct TlsClient {
    config: Arc<ClientConfig>,
    /// The name in the certificate, if that is not the host's.
    server_name: Option<ServerName<'static>>,
}

impl TlsClient {
    /// Makes connections with this configuration, to servers whose certificates are for `server_name`, or else for the
    /// host that is connected to.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<ServerName<'static>>) -> Arc<Self> {
        Arc::new(Self { config, server_name })
    }

    /// The same for servers whose certificates name that host, unless another name was asked for.
    pub(crate) fn as_host(self: &Arc<Self>, host: &str) -> Arc<Self> {
        match (&self.server_name, ServerName::try_from(host.to_owned())) {
            (None, Ok(name)) => {
                Arc::new(Self { config: self.config.clone(), server_name: Some(name) })
            }
            _ => self.clone(),
        }
    }

    /// The handshake over a connection to this server.
    pub(crate) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        info: &ConnectionInfo,
        socket: S,
    ) -> Result<TlsStream<S>, RedisError> {
        let name = match (&self.server_name, info.addr()) {
            (Some(name), _) => name.clone(),
            (None, ConnectionAddr::Tcp(host, _)) => {
                ServerName::try_from(host.clone()).map_err(|_| refusal::no_name())?
            }
            (None, _) => return Err(refusal::no_name()),
        };
        let handshake = TlsConnector::from(self.config.clone()).connect(name, socket);
        match until(handshake, plain::speaks_plain(info, SLOW)).await {
            Some(stream) => Ok(stream?),
            None => Err(refusal::no_tls()),
        }
    }
}
