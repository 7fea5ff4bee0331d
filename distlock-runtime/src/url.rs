//! Which store a URL means.

#[cfg(feature = "redis")]
use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::error::LockError;

/// Where the locks are kept.
#[derive(Clone)]
pub(crate) enum StoreUrl {
    Memory,
    #[cfg(feature = "redis")]
    Redis(ConnectionInfo),
}

const KNOWN: &str = "use memory://, redis://[user:password@]host[:port][/db] or redis+unix:///path[?db=n&user=…&pass=…]";

impl StoreUrl {
    /// Never repeats the URL in an error: it may contain a password.
    pub(crate) fn parse(url: &str) -> Result<Self, LockError> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("memory") => Ok(Self::Memory),
            Some("redis+unix" | "unix") if cfg!(not(unix)) => Err(LockError::invalid_option(
                "url: unix sockets are not supported on this system; use redis://host[:port]",
            )),
            Some("redis" | "redis+unix" | "unix") => Self::redis(url),
            Some(known @ ("rediss" | "redis-sentinel" | "redis-cluster" | "redlock")) => {
                Err(LockError::invalid_option(format!(
                    "url: {known}:// is not supported by this version; {KNOWN}"
                )))
            }
            Some(_) => Err(LockError::invalid_option(format!("url: unknown scheme; {KNOWN}"))),
            None => Err(LockError::invalid_option(format!("url: no scheme; {KNOWN}"))),
        }
    }

    #[cfg(feature = "redis")]
    fn redis(url: &str) -> Result<Self, LockError> {
        url.into_connection_info().map(Self::Redis).map_err(|error| {
            let why = error.detail().map(|detail| format!(" ({detail})"));
            let why = why.filter(|why| !leaks(why, url)).unwrap_or_default();
            LockError::invalid_option(format!("url: not a usable Redis URL{why}; {KNOWN}"))
        })
    }

    #[cfg(not(feature = "redis"))]
    fn redis(_url: &str) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without Redis; enable the feature `redis` of distlock",
        ))
    }
}

/// Whether an explanation repeats what stands before the host.
#[cfg(feature = "redis")]
fn leaks(text: &str, url: &str) -> bool {
    url.rsplit_once('@').and_then(|(credentials, _)| credentials.split_once("://")).is_some_and(
        |(_, credentials)| {
            credentials.split(':').any(|part| !part.is_empty() && text.contains(part))
        },
    )
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        match StoreUrl::parse(url) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn accepts_what_it_knows() {
        for url in [
            "memory://",
            "redis://localhost",
            "redis://:secret@127.0.0.1:6380/3",
            "redis://user:secret@localhost/0",
            "redis+unix:///tmp/redis.sock?db=2",
        ] {
            assert!(StoreUrl::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn refuses_the_rest_without_repeating_it() {
        for url in [
            "",
            "localhost",
            "http://u:hunter2@h/",
            "redis://u:hunter2@h:99999/",
            "redis://u:hunter2@h/notadb",
        ] {
            let text = refused(url);
            assert!(text.contains("redis://"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert!(refused("redis-cluster://a,b").contains("not supported"));
    }
}
