//! TLS over a connection's socket.

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Error, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError};

use crate::binding::end_point;
use crate::error::{Fault, Kind};

/// The certificates to trust, and this process's own.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// The name in the certificate, if that is not the host's.
    server_name: Option<ServerName<'static>>,
}

impl Tls {
    /// With this configuration; for servers whose certificates have this name, or else their host's.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<ServerName<'static>>) -> Self {
        let mut config = ClientConfig::clone(&config);
        // A server with `sslnegotiation=direct` requires the protocol's name (ALPN); others ignore it.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Self { config: Arc::new(config), server_name }
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, io::Error> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        Ok(Handshake { config: self.config.clone(), name })
    }
}

/// A handshake to come.
pub struct Handshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted, io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config.clone());
            let stream = connector.connect(self.name, socket).await?;
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let end_point = certificates.first().and_then(|own| end_point(own, &self.config));
            Ok(Encrypted { stream, end_point })
        })
    }
}

/// A socket behind TLS.
pub struct Encrypted {
    stream: TlsStream<Socket>,
    /// The hash of the server's certificate, to which a password may be bound.
    end_point: Option<Vec<u8>>,
}

impl tokio_postgres::tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point
            .clone()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Why there is no connection with TLS: what another try does not change says how to mend it.
pub(crate) fn fault_of(error: &Error) -> Fault {
    let speaks_none = |cause: &(dyn std::error::Error + 'static)| {
        cause.to_string().contains("does not support TLS")
    };
    let is_plain = error.source().is_some_and(speaks_none);
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let cause = cause.and_then(io::Error::get_ref).and_then(|cause| cause.downcast_ref());
    let words = match cause {
        Some(TlsError::InvalidCertificate(reason)) => format!(
            "the server's certificate was not accepted: {reason}; name the authority that has issued it with \
             `sslrootcert=PATH` in the URL or `TlsOptions::ca_pem`, and the server as its certificate does"
        ),
        Some(TlsError::AlertReceived(alert)) => format!(
            "the server ended the TLS handshake ({alert:?}): if it wants a certificate of its clients, give \
             `sslcert=PATH&sslkey=PATH`"
        ),
        _ if is_plain => {
            "the server does not speak TLS: set `ssl = on` there, or leave `sslmode` out".to_owned()
        }
        _ => return Fault::of(error),
    };
    Fault { kind: Kind::Refused, words, passing: false, answered: false }
}
