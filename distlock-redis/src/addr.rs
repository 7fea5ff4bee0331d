//! The address of a server, as servers name it to clients.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use redis::{ConnectionAddr, ConnectionInfo};

/// The host that a node reports for another node whose name it does not know.
pub(crate) const UNKNOWN_HOST: &str = "?";

/// The host and port of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Addr {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Addr {
    /// Returns the address to which `info` connects. It is empty for a Unix socket.
    pub(crate) fn of(info: &ConnectionInfo) -> Self {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => Self { host: host.as_str().into(), port: *port },
            _ => Self { host: "".into(), port: 0 },
        }
    }

    /// Parses `host:port`, as the node at `by` writes it. A node leaves out its own host.
    pub(crate) fn parse(text: &str, by: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = if host.is_empty() { by.host.clone() } else { host.into() };
        (&*host != UNKNOWN_HOST).then_some(())?;
        Some(Self { host, port: port.parse().ok()? })
    }

    /// Returns how to connect to this address, with the user, the password and the other settings of `like`.
    pub(crate) fn info(&self, like: &ConnectionInfo) -> ConnectionInfo {
        like.clone().set_addr(ConnectionAddr::Tcp(self.host.to_string(), self.port))
    }

    /// Whether the host is an IP address and no name.
    pub(crate) fn is_ip(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Addr {
        Addr { host: host.into(), port }
    }

    #[test]
    fn addresses() {
        let by = at("seed", 7000);
        assert_eq!(Addr::parse("10.0.0.1:7001", &by), Some(at("10.0.0.1", 7001)));
        assert_eq!(Addr::parse(":7001", &by), Some(at("seed", 7001)));
        assert_eq!(Addr::parse("::1:7001", &by), Some(at("::1", 7001)));
        assert_eq!(Addr::parse("[::1]:7001", &by), Some(at("::1", 7001)));
        for text in ["", "host", "host:", "host:x", "?:7001"] {
            assert_eq!(Addr::parse(text, &by), None, "{text}");
        }
    }
}
