//! TLS for every store that has a server: the trusted authorities and the certificate of this process, from what the user
//! says.

use std::borrow::Cow;
use std::fs;
use std::sync::Arc;

use distlock_core::authentication::{Pem, TlsOptions};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::LockError;
use crate::settings::Settings;

/// The parts of TLS that the clients of all stores have in common.
pub(super) struct TlsSetup {
    pub(super) config: Arc<ClientConfig>,
    /// The name in the certificate, if that is not the host's.
    pub(super) server_name: Option<ServerName<'static>>,
}

impl TlsSetup {
    /// Reads the files that the options name, and the system's roots.
    fn new(options: &TlsOptions) -> Result<Self, LockError> {
        let refused = |why: String| LockError::invalid_option(format!("tls: {why}"));
        let config = Arc::new(config(options).map_err(refused)?);
        let server_name = options.server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|_| {
            LockError::invalid_option("tls: `server_name` is neither a host's name nor an address")
        })?;
        Ok(Self { config, server_name })
    }
}

/// Returns the TLS that the URL asks for, with what the builder says of it.
pub(super) fn tls_setup(
    url: Option<TlsOptions>,
    settings: &Settings,
) -> Result<Option<TlsSetup>, LockError> {
    let options = match (url, &settings.tls) {
        (None, _) => return Ok(None),
        (Some(url), Some(_)) if url != TlsOptions::default() => {
            Err("tls: given twice, in the URL and on the builder; say all of it in one place")
        }
        (Some(_), Some(options)) => Ok(options.clone()),
        (Some(url), None) => Ok(url),
    };
    TlsSetup::new(&options.map_err(LockError::invalid_option)?).map(Some)
}

/// With a provider of its own: the process's default is the application's to set.
fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
    let roots = roots(options)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    let builder = builder.with_root_certificates(roots);
    let Some((chain, key)) = &options.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(chain, "the client's certificate (`cert`)")?;
    let key = PrivateKeyDer::from_pem_slice(&read(key, "the client's key (`key`)")?).map_err(|_| {
        "the client's key (`key`) holds no private key in PEM that can be used; one that is encrypted cannot"
            .to_owned()
    })?;
    builder.with_client_auth_cert(chain, key).map_err(|error| {
        format!("the client's certificate and key cannot be used together: {error}")
    })
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if !options.no_system_roots {
        // Some that cannot be read or parsed are no reason to do without the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        #[cfg(feature = "tls-webpki-roots")]
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(ca) = &options.ca {
        for certificate in certificates(ca, "the authorities (`ca`)")? {
            roots.add(certificate).map_err(|error| format!("the authorities (`ca`): {error}"))?;
        }
    }
    match roots.is_empty() {
        false => Ok(roots),
        true if options.no_system_roots => {
            Err("no authority is trusted: name one with `ca`, or leave the system's roots"
                .to_owned())
        }
        true => Err(
            "this system has no root certificates: install them (`ca-certificates`), enable the \
            feature `tls-webpki-roots` of distlock, or name your authority with `ca`"
                .to_owned(),
        ),
    }
}

fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(pem, what)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!("{what}: there is no certificate in PEM")),
    }
}

/// The error names the file: its path is no secret.
fn read<'a>(pem: &'a Pem, what: &str) -> Result<Cow<'a, [u8]>, String> {
    match pem {
        Pem::Text(text) => Ok(Cow::Borrowed(text)),
        Pem::File(path) => match fs::read(path) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(error) => Err(format!("{what}: {}: {error}", path.display())),
        },
    }
}
