//! The address of an ensemble: a URL.

use std::net::Ipv6Addr;

use crate::nodes::percent_decoded;

const DEFAULT_PORT: u16 = 2181;
const SCHEME: &str = "zookeeper://";

/// A parsed URL: the servers of an ensemble, the root of the locks, and a user.
#[derive(Clone)]
pub struct ZooKeeperAddress {
    /// `host:port` of each server.
    pub(crate) servers: Vec<String>,
    /// The node that contains all other nodes; empty for the root.
    pub(crate) chroot: String,
    /// `user:password` of the authentication scheme `digest`.
    pub(crate) digest: Option<String>,
}

impl ZooKeeperAddress {
    /// Returns `host:port` of each server of the URL, separated by commas.
    pub fn servers(&self) -> String {
        self.servers.join(",")
    }

    /// Parses `zookeeper://[user:password@]host[:port],host[:port]/chroot`.
    ///
    /// # Errors
    ///
    /// Says which part is wrong. It does not repeat the URL, which may contain a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url.get(SCHEME.len()..).unwrap_or_default();
        if rest.contains('?') {
            return Err(
                "there are no options; is a `?` in the password percent-encoded, as `%3F`?".into(),
            );
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(
                "an `@` behind the hosts; is a `/` in the password percent-encoded, as `%2F`?"
                    .into(),
            );
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let mut servers = Vec::new();
        for (at, host) in hosts.split(',').enumerate() {
            servers.push(server(host).map_err(|why| format!("host {}: {why}", at + 1))?);
        }
        let digest = user.map(digest).transpose()?;
        Ok(Self { servers, chroot: chroot(path)?, digest })
    }
}

/// Returns `host:port`, with the default port where the URL names none.
fn server(text: &str) -> Result<String, &'static str> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let address: Ipv6Addr =
                address.parse().map_err(|_| "what stands in brackets is no IPv6 address")?;
            (format!("[{address}]"), port.strip_prefix(':').unwrap_or(port))
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address stands in brackets: `[::1]:2181`");
            }
            Some((host, port)) => (host.to_owned(), port),
            None => (text.to_owned(), ""),
        },
    };
    if host.is_empty() {
        return Err("it is missing");
    }
    let port = match port {
        "" => DEFAULT_PORT,
        port => port.parse().ok().filter(|port| *port != 0).ok_or(
            "its port is not a number from 1 to 65535; if a password has special characters, \
             percent-encode them: `/` is `%2F`",
        )?,
    };
    Ok(format!("{host}:{port}"))
}

/// Returns the node that a path names; empty for the root.
fn chroot(path: &str) -> Result<String, String> {
    let path = path.trim_end_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    let is_name =
        |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(|c| c.is_ascii_graphic());
    if !path.split('/').all(is_name) {
        return Err("the path: its names consist of visible ASCII characters, and none is empty, `.` or `..`".into());
    }
    if path.split('/').next() == Some("zookeeper") {
        return Err("the path: /zookeeper is ZooKeeper's own".into());
    }
    Ok(format!("/{path}"))
}

/// Returns the decoded `user:password`.
fn digest(user: &str) -> Result<String, String> {
    let (user, password) =
        user.split_once(':').ok_or("a user without a password; write `user:password@`")?;
    match (percent_decoded(user), percent_decoded(password)) {
        (Some(user), Some(password)) if !user.is_empty() => Ok(format!("{user}:{password}")),
        _ => Err("user and password are missing, or not valid UTF-8 when decoded".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_path_and_user() {
        let address =
            ZooKeeperAddress::parse("zookeeper://shop:a%2Fb@one,two:2182,[::1]:7/locks/shop/")
                .expect("a URL");
        assert_eq!(address.servers, ["one:2181", "two:2182", "[::1]:7"]);
        assert_eq!(address.chroot, "/locks/shop");
        assert_eq!(address.digest.as_deref(), Some("shop:a/b"));
        let plain = ZooKeeperAddress::parse("zookeeper://one").expect("a URL");
        assert_eq!((&*plain.chroot, plain.digest), ("", None));
    }

    #[test]
    fn errors_name_the_mistake_and_do_not_repeat_the_url() {
        for (url, word) in [
            ("zookeeper://u:hunter2@one:port", "port"),
            ("zookeeper://u:hunter2@", "missing"),
            ("zookeeper://u:hunter2@one,,two", "host 2"),
            ("zookeeper://hunter2@one", "user"),
            ("zookeeper://u:hun/ter2@one", "%2F"),
            ("zookeeper://u:hunter2@one?session=1", "no options"),
            ("zookeeper://u:hunter2@one/a//b", "path"),
            ("zookeeper://u:hunter2@one/zookeeper", "own"),
        ] {
            let refused = ZooKeeperAddress::parse(url).err().expect("a mistake");
            assert!(refused.contains(word) && !refused.contains("hunter2"), "{url}: {refused}");
        }
    }
}
