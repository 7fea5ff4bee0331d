//! The trusted authorities, and the certificate of this process.

use std::borrow::Cow;
use std::fs;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::tls::{Pem, TlsOptions};

/// With a provider of its own: the process's default is the application's to set.
pub(super) fn config(options: &TlsOptions) -> Result<ClientConfig, String> {
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
