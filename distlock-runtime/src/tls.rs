//! What a user says about TLS.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How servers are verified and how this process shows who it is; without any of it a server needs a
/// certificate that the system's roots vouch for.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct TlsOptions {
    pub(crate) ca: Option<Pem>,
    /// The chain of the client's certificate, and its key.
    pub(crate) client: Option<(Pem, Pem)>,
    /// The name in the server's certificate, if that is not the host's.
    pub(crate) server_name: Option<String>,
    pub(crate) no_system_roots: bool,
}

/// A text in PEM, or a file with one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    #[allow(dead_code)]
    Text(Arc<[u8]>),
    File(PathBuf),
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
