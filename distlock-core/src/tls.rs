//! What a user says about TLS.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Which authorities to trust, and how this process identifies itself, on connections with TLS; for
/// `LockManagerBuilder::tls`. The same can be said in the URL, with files.
///
/// Without any of it the server must have a certificate for the URL's host, from an authority that the system
/// trusts. There is no way to go without verification: a certificate of one's own takes one line,
/// [`ca_pem`](Self::ca_pem).
///
/// | method | option of the URL | |
/// |---|---|---|
/// | [`ca_pem`](Self::ca_pem) | `ca=PATH` | trusted authorities, beside the system's |
/// | [`client_pem`](Self::client_pem) | `cert=PATH&key=PATH` | this process's own certificate |
/// | [`server_name`](Self::server_name) | `server_name=NAME` | the name in the server's certificate |
/// | [`no_system_roots`](Self::no_system_roots) | `tls_roots=none` | trust `ca` alone |
///
/// `Debug` shows no certificate and no key.
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use = "options do nothing before they are given to a builder"]
pub struct TlsOptions {
    pub ca: Option<Pem>,
    /// The chain of the client's certificate, and its key.
    pub client: Option<(Pem, Pem)>,
    pub server_name: Option<String>,
    pub no_system_roots: bool,
}

/// A text in PEM, or a file with one.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    Text(Arc<[u8]>),
    File(PathBuf),
}

impl TlsOptions {
    /// The system's roots, the URL's host, and no certificate of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities with these certificates (PEM, one or several) as well.
    pub fn ca_pem(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Text(certificates.into().into()));
        self
    }

    /// Shows this certificate to servers that ask for one (`tls-auth-clients`): PEM of the certificate, followed
    /// by those between it and its authority, and of its private key (PKCS #8, SEC 1 or PKCS #1).
    pub fn client_pem(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (certificates, key) = (certificates.into().into(), key.into().into());
        self.client = Some((Pem::Text(certificates), Pem::Text(key)));
        self
    }

    /// The name, or the IP address, that the server's certificate must be for; where the URL has another one, an
    /// address or a tunnel's. Default: the URL's host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Trusts only what [`ca_pem`](Self::ca_pem) names, and not the authorities of the system.
    pub fn no_system_roots(mut self) -> Self {
        self.no_system_roots = true;
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("ca", &self.ca.is_some())
            .field("client", &self.client.is_some())
            .field("server_name", &self.server_name)
            .field("no_system_roots", &self.no_system_roots)
            .finish()
    }
}
