//! TLS over a connection's socket.
//!
//! The client library does not know of it: it is given a stream. The socket stays underneath, so that a
//! connection with TLS changes reactor like any other (see [`io`](super::io)).
//!
//! - `trust`: the trusted authorities and our certificate, from the options
//! - `refusal`: what a failed handshake means, and the mend
//! - `plain`: whether the port speaks plain text

mod plain;
mod refusal;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::LockError;
use crate::select::until;
use crate::tls::TlsOptions;
pub(super) use refusal::refusal;

/// A handshake that takes longer may be with a server that waits for the end of a line.
const SLOW: Duration = Duration::from_millis(300);

/// Makes connections with TLS; shared by all of a manager's.
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
    /// The name in the certificate, if that is not the host's.
    server_name: Option<ServerName<'static>>,
}

impl TlsClient {
    /// Reads the files that the options name, and the system's roots.
    pub(crate) fn new(options: &TlsOptions) -> Result<Arc<Self>, LockError> {
        let refused = |why: String| LockError::invalid_option(format!("tls: {why}"));
        let config = Arc::new(trust::config(options).map_err(refused)?);
        let server_name = options.server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|_| {
            LockError::invalid_option("tls: `server_name` is neither a host's name nor an address")
        })?;
        Ok(Arc::new(Self { config, server_name }))
    }

    /// Its parts, for another client: the configuration, and the name in the certificate if not the host's.
    #[cfg(feature = "postgres")]
    pub(crate) fn parts(&self) -> (Arc<ClientConfig>, Option<ServerName<'static>>) {
        (self.config.clone(), self.server_name.clone())
    }

    /// The same for servers whose certificates name that host, unless another name was asked for.
    pub(super) fn as_host(self: &Arc<Self>, host: &str) -> Arc<Self> {
        match (&self.server_name, ServerName::try_from(host.to_owned())) {
            (None, Ok(name)) => {
                Arc::new(Self { config: self.config.clone(), server_name: Some(name) })
            }
            _ => self.clone(),
        }
    }

    /// The handshake over a connection to this server.
    pub(super) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
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
