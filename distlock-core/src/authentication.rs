//! Settings for authentication, of this process and of servers: TLS, and a user with a password.
//!
//! `distlock` re-exports [`TlsOptions`]. Its hidden fields are for the other crates of distlock.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings for TLS, for `LockManagerBuilder::tls`: which authorities to trust, and how this process identifies itself. The
/// URL has the same settings, with files.
///
/// By default the server must have a certificate for the URL's host, from an authority that the system trusts.
/// Verification cannot be switched off. A server with its own certificate needs only one setting,
/// [`ca_pem`](Self::ca_pem).
///
/// | method | option of the URL | meaning |
/// |---|---|---|
/// | [`ca_pem`](Self::ca_pem) | `ca=PATH` | trusted authorities, in addition to the system's |
/// | [`client_pem`](Self::client_pem) | `cert=PATH&key=PATH` | this process's own certificate |
/// | [`server_name`](Self::server_name) | `server_name=NAME` | the name in the server's certificate |
/// | [`no_system_roots`](Self::no_system_roots) | `tls_roots=none` | trust only `ca` |
///
/// ```no_run
/// # use distlock_core::authentication as distlock;
/// use distlock::TlsOptions;
///
/// let ca = std::fs::read("/etc/redis/ca.pem")?;
/// let tls = TlsOptions::new().ca_pem(ca).no_system_roots();
/// # Ok::<_, std::io::Error>(())
/// ```
///
/// `Debug` shows no certificate and no key.
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use = "options do nothing before they are given to a builder"]
pub struct TlsOptions {
    /// See [`ca_pem`](Self::ca_pem).
    #[doc(hidden)]
    pub ca: Option<Pem>,
    /// The chain of the client's certificate, and its key.
    #[doc(hidden)]
    pub client: Option<(Pem, Pem)>,
    /// See [`server_name`](Self::server_name()).
    #[doc(hidden)]
    pub server_name: Option<String>,
    /// See [`no_system_roots`](Self::no_system_roots()).
    #[doc(hidden)]
    pub no_system_roots: bool,
}

/// Certificates or a key in PEM.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text.
    Text(Arc<[u8]>),
    /// A file with the text.
    File(PathBuf),
}

impl TlsOptions {
    /// Returns the default settings: the system's authorities, the URL's host, and no certificate of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also trusts the authorities with these certificates (PEM, one or several).
    pub fn ca_pem(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Text(certificates.into().into()));
        self
    }

    /// Presents this certificate to servers that ask for one (`tls-auth-clients`).
    ///
    /// `certificates` is the PEM of the certificate, followed by those between it and its authority. `key` is the PEM of
    /// its private key (PKCS #8, SEC 1 or PKCS #1).
    ///
    /// ```no_run
    /// # use distlock_core::authentication as distlock;
    /// # fn main() -> std::io::Result<()> {
    /// let (certificate, key) = (std::fs::read("/etc/app/tls.crt")?, std::fs::read("/etc/app/tls.key")?);
    /// let tls = distlock::TlsOptions::new().client_pem(certificate, key);
    /// # drop(tls);
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_pem(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let (certificates, key) = (certificates.into().into(), key.into().into());
        self.client = Some((Pem::Text(certificates), Pem::Text(key)));
        self
    }

    /// Sets the name, or the IP address, that the server's certificate must be for. Use it if the URL has another one,
    /// for example an IP address or the host of a tunnel. Default: the URL's host.
    ///
    /// ```
    /// # use distlock_core::authentication as distlock;
    /// let tls = distlock::TlsOptions::new().server_name("locks.internal"); // for rediss://10.0.0.7
    /// # drop(tls);
    /// ```
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Trusts only the authorities of [`ca_pem`](Self::ca_pem), and not those of the system.
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

/// A user and a password to sign in with at a server.
///
/// `Debug` shows neither:
///
/// ```
/// use distlock_core::authentication::Credentials;
///
/// let credentials = Credentials { user: "app".to_owned(), password: "hunter2".to_owned() };
/// assert_eq!(format!("{credentials:?}"), "Credentials(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user. Empty for the server's default user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}
