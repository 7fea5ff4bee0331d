//! TLS over a connection's socket: the handshake, the meaning of its failures, and the detection of plain-text ports.
//!
//! The client library does not know about TLS: it gets a stream. The socket stays below that stream, so that a
//! connection with TLS can change its reactor like any other (see [`io`](super::io)).

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use distlock_core::select::until;
use distlock_core::store::{BackendKind, Fault};
use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};

/// A handshake that takes longer may be with a server that waits for the end of a line.
const SLOW: Duration = Duration::from_millis(300);

const LOOK: Duration = Duration::from_secs(1);

/// A TLS client, shared by all connections of a manager.
pub struct TlsClient {
    config: Arc<ClientConfig>,
    /// The name in the certificate, if it differs from the host.
    server_name: Option<ServerName<'static>>,
}

impl TlsClient {
    /// Makes a client with this configuration. The servers' certificates must be for `server_name`, or else for the
    /// host that is connected to.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<ServerName<'static>>) -> Arc<Self> {
        Arc::new(Self { config, server_name })
    }

    /// Returns a client for servers whose certificates name this host, unless another name was configured.
    pub(crate) fn as_host(self: &Arc<Self>, host: &str) -> Arc<Self> {
        match (&self.server_name, ServerName::try_from(host.to_owned())) {
            (None, Ok(name)) => {
                Arc::new(Self { config: self.config.clone(), server_name: Some(name) })
            }
            _ => self.clone(),
        }
    }

    /// Performs the handshake with this server.
    pub(crate) async fn wrap<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        info: &ConnectionInfo,
        socket: S,
    ) -> Result<TlsStream<S>, RedisError> {
        let name = match (&self.server_name, info.addr()) {
            (Some(name), _) => name.clone(),
            (None, ConnectionAddr::Tcp(host, _)) => {
                ServerName::try_from(host.clone()).map_err(|_| no_name())?
            }
            (None, _) => return Err(no_name()),
        };
        let handshake = TlsConnector::from(self.config.clone()).connect(name, socket);
        match until(handshake, speaks_plain(info, SLOW)).await {
            Some(stream) => Ok(stream?),
            None => Err(no_tls()),
        }
    }
}

/// A failure that this file detects.
#[derive(Debug)]
struct TlsRefusal(&'static str);

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for TlsRefusal {}

/// Returns the error for a server that speaks plain text.
pub(super) fn no_tls() -> RedisError {
    refused(
        "the server does not speak TLS at this port: use its TLS port or, if it has none, the scheme without it \
         (redis://, redis-cluster://, redis-sentinel://)",
    )
}

/// Returns the error for a host that no certificate can name.
pub(super) fn no_name() -> RedisError {
    refused(
        "the host of the URL cannot be in a certificate: name the one that is with `server_name`",
    )
}

fn refused(text: &'static str) -> RedisError {
    io::Error::other(TlsRefusal(text)).into()
}

/// Explains an error of TLS; `None` for other errors.
pub(in super::super) fn refusal(error: &RedisError) -> Option<Fault> {
    let cause = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let cause = cause.downcast_ref::<io::Error>()?.get_ref()?;
    if let Some(TlsRefusal(text)) = cause.downcast_ref::<TlsRefusal>() {
        return Some(Fault::lasting(BackendKind::Refused, *text));
    }
    let cause = cause.downcast_ref::<TlsError>()?;
    let text = match cause {
        TlsError::InvalidCertificate(reason) => certificate(reason),
        TlsError::AlertReceived(alert) => self::alert(*alert)?.to_owned(),
        TlsError::InvalidMessage(_) => {
            "what the server answered is not TLS: use its TLS port or, if it has none, redis://"
                .to_owned()
        }
        TlsError::PeerIncompatible(_) => format!("{cause}: TLS 1.2 or 1.3 is needed"),
        // The connection was cut or garbled. The next one may be fine.
        _ => return None,
    };
    Some(Fault::lasting(BackendKind::Refused, text))
}

fn certificate(reason: &CertificateError) -> String {
    use CertificateError as E;
    let (what, mend) = match reason {
        // The authority has the name of a trusted one, and another key.
        E::UnknownIssuer | E::BadSignature => (
            "no authority that is trusted here has issued it".to_owned(),
            "name the one that has with `ca=PATH` in the URL or `TlsOptions::ca_pem`",
        ),
        E::NotValidForName | E::NotValidForNameContext { .. } => (
            reason.to_string(),
            "name the server in the URL as its certificate does, or say that name with `server_name`",
        ),
        E::Expired | E::ExpiredContext { .. } => {
            ("it has expired".to_owned(), "renew it, unless this machine's clock is wrong")
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            ("it is not valid yet".to_owned(), "check this machine's clock")
        }
        _ => (reason.to_string(), "give the server another one"),
    };
    format!("the server's certificate was not accepted: {what}; {mend}")
}

/// Explains the alerts that a retry does not avoid.
fn alert(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as A;
    Some(match alert {
        A::CertificateRequired => {
            "the server wants a certificate of its clients: `cert=PATH&key=PATH` in the URL, or \
             `TlsOptions::client_pem`"
        }
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::AccessDenied
        | A::DecryptError => {
            "the server did not accept this client's certificate (`cert`, `TlsOptions::client_pem`): it must \
             be valid, and from an authority that the server trusts"
        }
        A::HandshakeFailure | A::ProtocolVersion | A::InsufficientSecurity => {
            "the server accepts no version or cipher of TLS that there is here, or wants a client \
             certificate (`cert=PATH&key=PATH`)"
        }
        A::UnrecognisedName => {
            "the server does not know the name it was asked for: say the one in its certificate with \
             `server_name`"
        }
        _ => return None,
    })
}

/// Resolves if a handshake has taken `after` and the server replies to a plain-text `PING`.
pub(crate) async fn speaks_plain(info: &ConnectionInfo, after: Duration) {
    sleep(after).await;
    let plain = timeout(LOOK, answers_ping(info)).await;
    if !matches!(plain, Ok(Some(true))) {
        pending::<()>().await;
    }
}

/// Whether the server replies at all: the reply may be a request for a password.
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
