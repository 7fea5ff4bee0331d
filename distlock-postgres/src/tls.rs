//! TLS over a connection's socket, and the channel binding (`channel_binding`): a password is bound to the hash of
//! the server's certificate (RFC 5929).

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use distlock_core::store::{BackendKind, Fault};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Error, Socket};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::hash::HashAlgorithm;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError};

use crate::error::PostgresError;

/// A TLS configuration: the certificates to trust, and this process's own.
#[derive(Clone)]
pub struct PostgresTls {
    config: Arc<ClientConfig>,
    /// The name that the certificate must be for, if that is not the host's.
    server_name: Option<ServerName<'static>>,
}

impl PostgresTls {
    /// Creates it from a configuration. The servers' certificates must be for `server_name`, or else for their
    /// hosts.
    pub fn new(config: Arc<ClientConfig>, server_name: Option<ServerName<'static>>) -> Self {
        let mut config = ClientConfig::clone(&config);
        // With `sslnegotiation=direct` a server requires the protocol's name (ALPN). Otherwise it ignores the name.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Self { config: Arc::new(config), server_name }
    }
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = TlsSocket;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsHandshake, io::Error> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        Ok(TlsHandshake { config: self.config.clone(), name })
    }
}

/// A TLS handshake that has not begun.
pub struct TlsHandshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<TlsSocket, io::Error>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(self.config.clone());
            let stream = connector.connect(self.name, socket).await?;
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let end_point = certificates.first().and_then(|own| end_point(own, &self.config));
            Ok(TlsSocket { stream, end_point })
        })
    }
}

/// A socket with TLS.
pub struct TlsSocket {
    stream: TlsStream<Socket>,
    /// The hash of the server's certificate, which a password may be bound to.
    end_point: Option<Vec<u8>>,
}

impl tokio_postgres::tls::TlsStream for TlsSocket {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point
            .clone()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
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

impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresTls")
    }
}

/// Explains why a TLS connection failed. If another attempt cannot succeed, the text says how to fix it.
pub(crate) fn explain(error: &Error) -> PostgresError {
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
        _ => return PostgresError::of(error),
    };
    Fault::lasting(BackendKind::Refused, words).into()
}

/// The identifiers, as bytes, of the signature algorithms that use SHA-384: RSA, ECDSA, and the hash itself,
/// which RSASSA-PSS names as a parameter.
const SHA384: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
    &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02],
];
/// The same for SHA-512.
const SHA512: [&[u8]; 3] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d],
    &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
    &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03],
];

/// Hashes a certificate (DER) with the hash algorithm of its signature, or with SHA-256 if that algorithm is
/// older. Returns `None` if the TLS library has no such hash, as for SHA-512.
fn end_point(certificate: &[u8], config: &ClientConfig) -> Option<Vec<u8>> {
    let algorithm = match signature_algorithm(certificate)? {
        id if contains(id, &SHA512) => HashAlgorithm::SHA512,
        id if contains(id, &SHA384) => HashAlgorithm::SHA384,
        _ => HashAlgorithm::SHA256,
    };
    let suites = config.crypto_provider().cipher_suites.iter();
    let mut hashes = suites.filter_map(|suite| Some(suite.tls13()?.common.hash_provider));
    let hash = hashes.find(|hash| hash.algorithm() == algorithm)?;
    Some(hash.hash(certificate).as_ref().to_vec())
}

fn contains(id: &[u8], some: &[&[u8]]) -> bool {
    some.iter().any(|one| id.windows(one.len()).any(|part| part == *one))
}

/// Returns the algorithm of a certificate's signature. A certificate is a sequence of three parts: the signed
/// content, the signature's algorithm and the signature.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (all, _) = element(certificate)?;
    let (_, rest) = element(all)?;
    Some(element(rest)?.0)
}

/// Returns the content of the first DER element, and the bytes after it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&short, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match usize::from(short) {
        length @ ..0x80 => (length, rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(long & 0x7f)?;
            // No certificate is this long.
            let length = match bytes {
                [] | [_, _, _, _, ..] => return None,
                bytes => bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            };
            (length, rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_of_a_signature_is_found_and_no_bytes_cause_a_panic() {
        let certificate = [0x30, 9, 0x30, 2, 1, 1, 0x30, 3, 6, 1, 7];
        assert_eq!(signature_algorithm(&certificate), Some(&[6, 1, 7][..]));
        for end in 0..certificate.len() {
            assert_eq!(signature_algorithm(&certificate[..end]), None);
        }
        assert_eq!(element(&[0x30, 0x82, 0, 1, 5]), Some((&[5][..], &[][..])));
        assert_eq!(element(&[0x30, 0x80, 0, 0]), None);
        assert_eq!(element(&[0x30, 0x85, 1, 1, 1, 1, 1]), None);
    }
}
