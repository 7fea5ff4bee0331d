//! The address of an etcd cluster, as given by a URL.

use std::fmt;

const PORT: u16 = 2379;

/// The members of a cluster, and the user to sign in.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdAddress {
    /// `host:port` of each member that the URL names.
    pub(crate) hosts: Vec<String>,
    pub(crate) user: Option<(String, String)>,
}

impl EtcdAddress {
    /// Returns `host:port` of each member that the URL names.
    pub fn servers(&self) -> String {
        self.hosts.join(",")
    }

    /// Parses `etcd://[user:password@]host[:port],host[:port]`.
    ///
    /// # Errors
    ///
    /// Explains the mistake without repeating the URL, which may contain a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        if rest.contains(['?', '#']) {
            return Err("there are no options; percent-encode `?` and `#` in a password".into());
        }
        let (user, hosts) = match rest.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_credentials(user)?), hosts),
            None => (None, rest),
        };
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('/') {
            return Err("a path behind the hosts; percent-encode `/` in a password".into());
        }
        let hosts = hosts.split(',').enumerate().map(|(n, host)| with_port(n + 1, host));
        Ok(Self { hosts: hosts.collect::<Result<_, _>>()?, user })
    }
}

impl fmt::Debug for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtcdAddress(…)")
    }
}

fn parse_credentials(text: &str) -> Result<(String, String), String> {
    let (user, password) =
        text.split_once(':').ok_or("a user without a password: write user:password@")?;
    let (user, password) = (percent_decoded(user)?, percent_decoded(password)?);
    if user.is_empty() {
        return Err("a password without a user: write user:password@".into());
    }
    Ok((user, password))
}

fn with_port(number: usize, host: &str) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("host {number}: {what}"));
    // The colons inside the brackets belong to an IPv6 address.
    let after_brackets = host.rfind(']').map_or(0, |end| end + 1);
    let (name, port) = match host[after_brackets..].split_once(':') {
        Some((_, port)) => (&host[..host.len() - port.len() - 1], Some(port)),
        None => (host, None),
    };
    if name.is_empty() || name == "[]" {
        return wrong("its name is missing");
    }
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return wrong("its name has a blank in it");
    }
    match port.map(str::parse::<u16>) {
        None => Ok(format!("{name}:{PORT}")),
        Some(Ok(port)) if port > 0 => Ok(format!("{name}:{port}")),
        Some(_) => wrong("its port is not a number between 1 and 65535"),
    }
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => decoded.push((high * 16 + low) as u8),
            _ => return Err("a `%` in user or password is not followed by two hex digits".into()),
        }
    }
    String::from_utf8(decoded).map_err(|_| "user or password is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_users() {
        let address = EtcdAddress::parse("etcd://a,b:23790,[::1],[::1]:4").expect("a URL");
        assert_eq!(address.hosts, ["a:2379", "b:23790", "[::1]:2379", "[::1]:4"]);
        assert_eq!(address.user, None);
        let address = EtcdAddress::parse("etcd://shop:p%40s%2Fs@h/").expect("a URL");
        assert_eq!(address.hosts, ["h:2379"]);
        assert_eq!(address.user, Some(("shop".into(), "p@s/s".into())));
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_repeated() {
        for (url, word) in [
            ("etcd://", "missing"),
            ("etcd://a,,b", "host 2"),
            ("etcd://shop:hunter2@h:99999", "port"),
            ("etcd://shop:hunter2@h:", "port"),
            ("etcd://hunter2@h", "without a password"),
            ("etcd://:hunter2@h", "without a user"),
            ("etcd://shop:hunter2%zz@h", "hex"),
            ("etcd://shop:hunter2@h/path", "path"),
            ("etcd://shop:hun/ter2@h", ""),
            ("etcd://shop:hunter2@h?tls=true", "options"),
        ] {
            let parsed = EtcdAddress::parse(url);
            if word.is_empty() {
                continue;
            }
            let refused = parsed.expect_err("a mistake");
            assert!(refused.contains(word) && !refused.contains("hunter2"), "{url}: {refused}");
        }
    }
}
