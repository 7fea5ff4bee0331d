//! The server's description of itself, and whether locks can be kept there.

use std::fmt;

use distlock_core::store::{BackendKind, Fault};
use redis::Value;

use crate::connection::error::CLUSTER;

const SENTINEL: &str = "this is a sentinel, which keeps no locks: write redis-sentinel://host:port/NAME, with \
    the name of the primary it watches, or name that primary itself";
const NO_CLUSTER: &str = "this server is no node of a cluster: write redis://host:port";
pub(crate) const NO_SENTINEL: &str = "this server is not a sentinel: name sentinels in a redis-sentinel:// URL, or \
    write redis://host:port for the server itself, redis-cluster://host:port if it is a node of a cluster";
const REPLICA: &str = "this server is a replica, and takes no writes as long as it is: name its primary; \
    redis-sentinel:// follows that";

/// The mode of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Standalone,
    Cluster,
    Sentinel,
}

/// The requirements of a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedServer {
    pub(crate) mode: Mode,
    /// Whether replicas must confirm writes.
    pub(crate) replicas: bool,
}

/// The reply of a server to `HELLO`. Missing details are accepted.
#[derive(Clone, Default)]
pub(crate) struct ServerInfo {
    server: Option<String>,
    version: Option<String>,
    mode: Option<Mode>,
    replica: bool,
}

impl ServerInfo {
    /// Reads the reply, which is a map or the same as a list.
    pub(crate) fn of(hello: &Value) -> Self {
        let mut server_info = Self::default();
        let mut note = |name: &Value, value: &Value| {
            let (Some(name), Some(value)) = (text(name), text(value)) else { return };
            match name {
                "server" => server_info.server = Some(value.to_owned()),
                "version" => server_info.version = Some(value.to_owned()),
                "mode" => server_info.mode = mode(value),
                "role" => server_info.replica = matches!(value, "replica" | "slave"),
                _ => {}
            }
        };
        match hello {
            Value::Map(fields) => fields.iter().for_each(|(name, value)| note(name, value)),
            Value::Array(row) => {
                row.chunks_exact(2).for_each(|field| note(&field[0], &field[1]));
            }
            _ => {}
        }
        server_info
    }

    /// Checks that a client that `expects` a server of this mode can keep locks there.
    pub(crate) fn check(&self, expects: Mode) -> Result<(), Fault> {
        let wrong = |text| Err(Fault::lasting(BackendKind::Other, text));
        match (self.mode, expects) {
            (Some(Mode::Sentinel) | None, Mode::Sentinel) => Ok(()),
            (Some(_), Mode::Sentinel) => wrong(NO_SENTINEL),
            (Some(Mode::Sentinel), _) => wrong(SENTINEL),
            (Some(Mode::Cluster), Mode::Standalone) => wrong(CLUSTER),
            (Some(Mode::Standalone), Mode::Cluster) => wrong(NO_CLUSTER),
            // The server may be promoted, or another one may be found at that address, at any time.
            _ if self.replica => Err(Fault::passing(BackendKind::ReadOnly, REPLICA)),
            _ => Ok(()),
        }
    }
}

fn mode(name: &str) -> Option<Mode> {
    match name {
        "standalone" => Some(Mode::Standalone),
        "cluster" => Some(Mode::Cluster),
        "sentinel" => Some(Mode::Sentinel),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

impl fmt::Debug for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Option<String>| text.as_deref().unwrap_or("?").to_owned();
        let role = if self.replica { "replica" } else { "primary" };
        write!(f, "{} {}, ", or(&self.server), or(&self.version))?;
        match self.mode {
            Some(mode) => write!(f, "{mode:?}, {role}"),
            None => f.write_str("mode unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::store::BackendKind;
    use redis::Value;

    use super::{Mode, ServerInfo};

    fn hello(fields: &[(&str, &str)]) -> ServerInfo {
        let word = |word: &str| Value::BulkString(word.as_bytes().to_vec());
        let row = fields.iter().flat_map(|(name, value)| [word(name), word(value)]);
        let row: Vec<_> = row.chain([word("modules"), Value::Array(Vec::new())]).collect();
        let pairs = row.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        let (flat, map) = (ServerInfo::of(&Value::Array(row)), ServerInfo::of(&Value::Map(pairs)));
        assert_eq!(format!("{flat:?}"), format!("{map:?}"));
        flat
    }

    #[test]
    fn a_server_is_refused_by_what_it_says_and_not_by_what_it_leaves_out() {
        use Mode::{Cluster, Sentinel, Standalone};
        for (mode, role, expects, refused) in [
            ("standalone", "master", Standalone, None),
            ("standalone", "master", Cluster, Some(("redis://", false))),
            ("standalone", "replica", Standalone, Some(("primary", true))),
            ("standalone", "slave", Standalone, Some(("primary", true))),
            ("cluster", "master", Cluster, None),
            ("cluster", "master", Standalone, Some(("redis-cluster://", false))),
            ("cluster", "replica", Cluster, Some(("primary", true))),
            ("sentinel", "sentinel", Standalone, Some(("redis-sentinel://", false))),
            ("sentinel", "sentinel", Cluster, Some(("redis-sentinel://", false))),
            ("something", "new", Cluster, None),
            ("sentinel", "sentinel", Sentinel, None),
            ("standalone", "replica", Sentinel, Some(("redis://", false))),
            ("cluster", "master", Sentinel, Some(("redis-cluster://", false))),
            ("something", "new", Sentinel, None),
        ] {
            let server_info = hello(&[("server", "redis"), ("mode", mode), ("role", role)]);
            match (server_info.check(expects), refused) {
                (Ok(()), None) => {}
                (Err(fault), Some((mend, passing))) => {
                    assert!(fault.to_string().contains(mend), "{fault}");
                    assert_eq!(fault.passing, passing);
                    assert_eq!(fault.kind == BackendKind::ReadOnly, passing);
                }
                (found, _) => panic!("{mode} {role} {expects:?}: {found:?}"),
            }
        }
        for silent in [Value::Nil, Value::Okay, Value::Array(vec![Value::Int(1)])] {
            assert!(ServerInfo::of(&silent).check(Standalone).is_ok());
        }
        let server_info = hello(&[
            ("server", "valkey"),
            ("version", "9.1.2"),
            ("mode", "cluster"),
            ("role", "master"),
        ]);
        assert_eq!(format!("{server_info:?}"), "valkey 9.1.2, Cluster, primary");
    }
}
