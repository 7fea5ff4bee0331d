//! What a failed handshake means, and the mend.
//!
//! With TLS 1.3 a server's refusal of our certificate arrives after the handshake, in place of its first
//! answer: so errors of a connection are looked at whenever they come.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as TlsError};

use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

/// A refusal of ours.
#[derive(Debug)]
struct Refused(&'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Refused {}

/// The server speaks plain text.
pub(super) fn no_tls() -> RedisError {
    refused(
        "the server does not speak TLS at this port: use its TLS port or, if it has none, the scheme without it \
         (redis://, redis-cluster://, redis-sentinel://)",
    )
}

/// The host is nothing that a certificate could be for.
pub(super) fn no_name() -> RedisError {
    refused(
        "the host of the URL cannot be in a certificate: name the one that is with `server_name`",
    )
}

fn refused(text: &'static str) -> RedisError {
    io::Error::other(Refused(text)).into()
}

/// What TLS says of this error, if it is one of TLS.
pub(in super::super) fn refusal(error: &RedisError) -> Option<Fault> {
    let cause = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let cause = cause.downcast_ref::<io::Error>()?.get_ref()?;
    if let Some(Refused(text)) = cause.downcast_ref::<Refused>() {
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
        // A connection that was cut, or garbled: the next one may be well.
        _ => return None,
    };
    Some(Fault::lasting(BackendKind::Refused, text))
}

fn certificate(reason: &CertificateError) -> String {
    use CertificateError as E;
    let (what, mend) = match reason {
        // Its authority has the name of one that is trusted, and another key.
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

/// Those that another try does not change.
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
