//! Where the table is, and how it is used: the URL.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// A dead peer is noticed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The files that a URL names for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Of the authorities that are trusted.
    pub roots: Option<PathBuf>,
    /// Of this process's own certificate.
    pub certificate: Option<PathBuf>,
    /// Of its key.
    pub key: Option<PathBuf>,
}

/// A URL that was understood.
#[derive(Clone)]
pub struct Address {
    pub(crate) config: Config,
    /// It asks for TLS.
    encrypted: Option<Files>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
    /// A lock is confirmed before it is on disk.
    pub(crate) relaxed: bool,
    /// Waiters are notified by messages, on a connection of their own.
    pub(crate) listens: bool,
}

impl Address {
    /// `host:port` of each server, or the directory of its socket.
    pub fn servers(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(at, host): (usize, &Host)| match host {
            Host::Tcp(host) => {
                let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
                format!("{host}:{port}")
            }
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        hosts.join(",")
    }

    /// Reads `postgres://user:password@host:port/database?…`, with the parameters of libpq and two of ours:
    /// `durability=async` and `listen=false`. TLS is asked for with `sslmode=require`, `verify-ca` or
    /// `verify-full`, which are the same: the server's certificate is always looked at.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the URL: it may contain a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut relaxed, mut listens, mut others) = (false, true, Vec::new());
        let (mut is_encrypted, mut files) = (false, Files::default());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("durability", "async")) => relaxed = true,
                Some(("durability", "server")) => relaxed = false,
                Some(("durability", _)) => {
                    return Err("durability: give `async` or `server`".into());
                }
                Some(("listen", "true")) => listens = true,
                Some(("listen", "false")) => listens = false,
                Some(("listen", _)) => return Err("listen: give `true` or `false`".into()),
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => is_encrypted = true,
                // A fallback is no protection from an attacker who can force it.
                Some(("sslmode", "disable" | "allow" | "prefer")) => is_encrypted = false,
                Some(("sslmode", _)) => return Err("sslmode: give `require` or `disable`".into()),
                Some(("sslrootcert", path)) => files.roots = Some(decoded(path)?),
                Some(("sslcert", path)) => files.certificate = Some(decoded(path)?),
                Some(("sslkey", path)) => files.key = Some(decoded(path)?),
                _ => others.push(parameter),
            }
        }
        let rest = if others.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", others.join("&"))
        };
        // The error repeats what it does not understand, which may be a part of a password.
        let mut config: Config =
            rest.parse().map_err(|_| "it cannot be read as a URL of Postgres".to_owned())?;
        if config.get_hosts().is_empty() {
            return Err("no host".into());
        }
        if !is_encrypted && files != Files::default() {
            return Err("sslrootcert, sslcert and sslkey are for `sslmode=require`".into());
        }
        if files.certificate.is_some() != files.key.is_some() {
            return Err("sslcert and sslkey: give both or none".into());
        }
        config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        if config.get_application_name().is_none() {
            config.application_name("distlock");
        }
        Ok(Self {
            config,
            encrypted: is_encrypted.then_some(files),
            #[cfg(feature = "tls")]
            tls: None,
            relaxed,
            listens,
        })
    }

    /// The files for TLS, if it asks for that.
    pub fn encrypted(&self) -> Option<&Files> {
        self.encrypted.as_ref()
    }

    /// Connects in this way: where it [asks](Self::encrypted) for TLS, it needs one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with(mut self, tls: crate::tls::Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

/// A path as it stands in a URL.
fn decoded(text: &str) -> Result<PathBuf, String> {
    let (bytes, mut path, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = text.get(at + 1..at + 3);
                let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                path.push(byte.ok_or("a path: what stands behind a `%` is no number")?);
                at += 3;
            }
            byte => {
                path.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(path).map(PathBuf::from).map_err(|_| "a path: it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_taken_out() {
        let url = "postgres://u:p@h:5433/db?durability=async&connect_timeout=3&listen=false";
        let address = Address::parse(url).expect("a URL");
        assert!(address.relaxed && !address.listens);
        assert_eq!(address.config.get_ports(), [5433]);
        assert_eq!(address.config.get_dbname(), Some("db"));
        let plain = Address::parse("postgresql://h").expect("a URL");
        assert!(!plain.relaxed && plain.listens && plain.encrypted().is_none());
        let url = "postgres://h/db?sslmode=verify-full&sslrootcert=/a%20b.pem";
        let files = Address::parse(url).expect("a URL").encrypted().cloned().expect("TLS");
        assert_eq!(files.roots, Some("/a b.pem".into()));
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_repeated() {
        for (url, word) in [
            ("postgres://u:hunter2@h/?durability=no", "durability"),
            ("postgres://u:hunter2@h/?listen=1", "listen"),
            ("postgres://u:hunter2@h/?sslmode=maybe", "sslmode"),
            ("postgres://u:hunter2@h/?sslrootcert=a", "sslmode=require"),
            ("postgres://u:hunter2@h/?sslmode=require&sslkey=hunter2", "sslcert"),
            ("postgres://u:hunter2@h/?hunter2=1", "cannot be read"),
            ("postgres:///db", "no host"),
        ] {
            let refused = Address::parse(url).err().expect("a mistake");
            assert!(refused.contains(word) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
