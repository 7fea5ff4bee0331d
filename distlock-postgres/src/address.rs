//! Where the table is, and how it is used: the URL.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

/// A dead peer is noticed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// A URL that was understood.
#[derive(Clone)]
pub struct Address {
    pub(crate) config: Config,
    /// A lock is confirmed before it is on disk.
    pub(crate) relaxed: bool,
    /// Waiters are told by messages, on a connection of their own.
    pub(crate) listens: bool,
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?…`, with the parameters of libpq and two of ours:
    /// `durability=async` and `listen=false`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without the URL: it may contain a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut relaxed, mut listens, mut others) = (false, true, Vec::new());
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
        if config.get_ssl_mode() == SslMode::Require {
            return Err("sslmode=require: TLS to Postgres is not supported by this version".into());
        }
        config.ssl_mode(SslMode::Disable);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        if config.get_application_name().is_none() {
            config.application_name("distlock");
        }
        Ok(Self { config, relaxed, listens })
    }
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
        assert!(!plain.relaxed && plain.listens);
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_repeated() {
        for (url, word) in [
            ("postgres://u:hunter2@h/?durability=no", "durability"),
            ("postgres://u:hunter2@h/?listen=1", "listen"),
            ("postgres://u:hunter2@h/?sslmode=require", "TLS"),
            ("postgres://u:hunter2@h/?hunter2=1", "cannot be read"),
            ("postgres:///db", "no host"),
        ] {
            let refused = Address::parse(url).err().expect("a mistake");
            assert!(refused.contains(word) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
