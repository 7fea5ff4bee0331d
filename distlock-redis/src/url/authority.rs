//! The authority of a URL: the user and password, the hosts, and the path.
//!
//! The hosts are split here, because URLs of the client library have only one.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use redis::{ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

/// The reason why a URL cannot be used. It contains no part of the URL.
pub(super) type UrlError = Cow<'static, str>;

/// The question to a user who wrote a character that separates parts.
pub(super) const PLAIN: &str = "is a password with special characters percent-encoded? `/` is `%2F`, `?` is `%3F`, \
    `#` is `%23`, `@` is `%40`";

/// The parts of a URL after its scheme.
pub(super) struct UrlParts<'a> {
    /// The user and password to sign in with.
    user: RedisConnectionInfo,
    hosts: &'a str,
    /// The path without its leading `/`.
    pub(super) path: &'a str,
    pub(super) query: &'a str,
}

/// One host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    /// In lower case; an IPv6 address without its brackets.
    name: String,
    port: u16,
}

impl<'a> UrlParts<'a> {
    pub(super) fn of(rest: &'a str) -> Result<Self, UrlError> {
        if rest.contains('#') {
            return Err(format!("a `#` has no meaning here; {PLAIN}").into());
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (auth, hosts) = match authority.rsplit_once('@') {
            Some((auth, hosts)) => (Some(auth), hosts),
            None => (None, authority),
        };
        if path.contains('@') {
            return Err(format!("an `@` behind the host; {PLAIN}").into());
        }
        Ok(Self { user: auth.map_or_else(|| Ok(<_>::default()), user)?, hosts, path, query })
    }

    /// Returns how to connect to the only host.
    pub(super) fn one(&self, port: u16, database: u32) -> Result<ConnectionInfo, UrlError> {
        if self.hosts.contains(',') {
            return Err("several hosts; one server has one, Sentinel is redis-sentinel://host,host/primary, \
                a cluster redis-cluster://host,host"
                .into());
        }
        let mut all = self.all(port, database)?;
        all.pop().ok_or_else(|| "no host".into())
    }

    /// Returns how to connect to each host. There is at least one, and none twice.
    pub(super) fn all(&self, port: u16, database: u32) -> Result<Vec<ConnectionInfo>, UrlError> {
        let mut hosts: Vec<Host> = Vec::new();
        for (at, text) in self.hosts.split(',').enumerate() {
            let host = Host::parse(text, port).map_err(|why| self.about(at, why))?;
            if let Some(first) = hosts.iter().position(|other| *other == host) {
                let (first, second) = (first + 1, at + 1);
                return Err(format!("host {second} is host {first} once more").into());
            }
            hosts.push(host);
        }
        let infos = hosts.iter().enumerate().map(|(at, host)| {
            let info = host.info().ok_or_else(|| self.about(at, "it is no host name"))?;
            Ok(info.set_redis_settings(self.user.clone().set_db(database.into())))
        });
        infos.collect()
    }

    fn about(&self, at: usize, why: &str) -> UrlError {
        match self.hosts.contains(',') {
            true => format!("host {}: {why}", at + 1).into(),
            false => format!("the host: {why}").into(),
        }
    }
}

impl Host {
    fn parse(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (name, port) = match bracketed {
            Some((address, "")) => (ip_v6(address)?, None),
            Some((address, port)) => (
                ip_v6(address)?,
                Some(port.strip_prefix(':').ok_or("what follows `]` is no port")?),
            ),
            None => match text.split_once(':') {
                Some((_, port)) if port.contains(':') => {
                    return Err("an IPv6 address stands in brackets: `[::1]:6379`");
                }
                Some((name, port)) => (name.to_ascii_lowercase(), Some(port)),
                None => (text.to_ascii_lowercase(), None),
            },
        };
        if name.is_empty() {
            return Err("it is missing");
        }
        if ["0.0.0.0", "::"].contains(&name.as_str()) {
            return Err("nothing can be reached at a wildcard address");
        }
        let number = |port: &str| port.parse().ok().filter(|port| *port != 0);
        let port = match port {
            None | Some("") => default_port,
            Some(port) => number(port).ok_or(
                "its port is not a number from 1 to 65535; if a password has special characters, \
                 percent-encode them: `/` is `%2F`",
            )?,
        };
        Ok(Self { name, port })
    }

    /// Parses the host as the client library does.
    fn info(&self) -> Option<ConnectionInfo> {
        let Self { name, port } = self;
        let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
        format!("redis://{name}:{port}").into_connection_info().ok()
    }
}

/// Reads `user:password`.
fn user(auth: &str) -> Result<RedisConnectionInfo, UrlError> {
    let (user, password) = auth.split_once(':').ok_or(
        "a user without a password; write `user:password@`, or `:password@` for the default user",
    )?;
    let (Some(user), Some(password)) = (decoded(user), decoded(password)) else {
        return Err("user and password are not valid UTF-8 when decoded".into());
    };
    let mut info = RedisConnectionInfo::default();
    if !user.is_empty() {
        info = info.set_username(&user);
    }
    if !user.is_empty() || !password.is_empty() {
        info = info.set_password(password);
    }
    Ok(info)
}

fn ip_v6(address: &str) -> Result<String, &'static str> {
    let address: Ipv6Addr =
        address.parse().map_err(|_| "what stands in brackets is no IPv6 address")?;
    Ok(address.to_string())
}

/// Decodes percent-encoded text; `None` if it is not valid UTF-8. A `%` that begins no code stands for itself, and so
/// does a `+`, which is frequent in generated passwords.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *first == b'%').and_then(|code| {
            let digit = |at: usize| char::from(code[at]).to_digit(16);
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        });
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn what_is_no_code_stands_for_itself() {
        for (text, meant) in [
            ("", Some("")),
            ("a%40b%2fc", Some("a@b/c")),
            ("100%", Some("100%")),
            ("%4", Some("%4")),
            ("%zz%2", Some("%zz%2")),
            ("%C3%A4+", Some("ä+")),
            ("%ff", None),
        ] {
            assert_eq!(decoded(text).as_deref(), meant, "{text}");
        }
    }
}
