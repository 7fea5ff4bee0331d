//! The URL of a database, and the options in it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{
    ChannelBinding, Host, LoadBalanceHosts, SslMode, SslNegotiation, TargetSessionAttrs,
};

/// The interval of keepalive probes. The system notices a dead peer after about three of them.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The files that a URL names for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the trusted authorities.
    pub roots: Option<PathBuf>,
    /// This process's own certificate.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    pub key: Option<PathBuf>,
}

/// A parsed URL of a database.
#[derive(Clone)]
pub struct PostgresUrl {
    /// One entry for each host, in order.
    pub(crate) hosts: Vec<Config>,
    /// The files for TLS, if the URL asks for TLS.
    tls_files: Option<TlsFiles>,
    /// The server confirms a lock before the lock is on disk.
    pub(crate) async_commit: bool,
    /// A connection of its own listens for messages, which wake waiters.
    pub(crate) listens: bool,
}

/// The options in the query of a URL.
#[derive(Default)]
struct UrlOptions<'a> {
    async_commit: bool,
    never_listens: bool,
    encrypted: Option<bool>,
    system_roots: bool,
    channel_binding: Option<&'a str>,
    direct_tls: bool,
    tls_files: TlsFiles,
    /// The options for the Postgres client, unchanged.
    of_client: Vec<&'a str>,
}

/// The options that the Postgres client reads. They may be repeated, as `tokio-postgres` allows.
const CLIENT_OPTIONS: [&str; 16] = [
    "user",
    "password",
    "dbname",
    "options",
    "application_name",
    "host",
    "hostaddr",
    "port",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "load_balance_hosts",
];

impl PostgresUrl {
    /// Returns `host:port` of each server, or the directory of its socket.
    pub fn servers(&self) -> String {
        let host = |config: &Config| match config.get_hosts().first() {
            Some(Host::Tcp(host)) => {
                let port = config.get_ports().first().copied().unwrap_or(5432);
                format!("{host}:{port}")
            }
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => String::new(),
        };
        let hosts: Vec<_> = self.hosts.iter().map(host).collect();
        hosts.join(",")
    }

    /// Parses `postgres://user:password@host:port/database?…`, with the parameters of libpq and two of distlock:
    /// `durability=async` and `listen=false`. The parameter `sslmode` asks for TLS with `require`, `verify-ca` or
    /// `verify-full`. All three are the same, because the server's certificate is always verified.
    ///
    /// # Errors
    ///
    /// The text says what is wrong with the URL, and does not contain it, because it may have a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let options = UrlOptions::parse(query)?;
        // As in libpq, trusting the system's authorities implies TLS.
        let is_encrypted = options.encrypted.unwrap_or(options.system_roots);
        let mut config = client_config(base, &options.of_client)?;
        if !is_encrypted {
            options.refuse_tls_options()?;
        }
        if options.tls_files.certificate.is_some() != options.tls_files.key.is_some() {
            return Err("sslcert and sslkey: give both or none".into());
        }
        config.ssl_mode(if is_encrypted { SslMode::Require } else { SslMode::Disable });
        if options.direct_tls {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        match options.channel_binding {
            Some("require") => config.channel_binding(ChannelBinding::Require),
            Some("disable") => config.channel_binding(ChannelBinding::Disable),
            _ => config.channel_binding(ChannelBinding::Prefer),
        };
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(KEEPALIVE * 3);
        }
        if config.get_application_name().is_none() {
            config.application_name("distlock");
        }
        check_lists(&config)?;
        Ok(Self {
            hosts: config_of_each_host(&config),
            tls_files: is_encrypted.then_some(options.tls_files),
            async_commit: options.async_commit,
            listens: !options.never_listens,
        })
    }

    /// Returns the host to try first: a random one if the URL asks for that.
    pub(crate) fn first_host(&self) -> usize {
        let is_random = |host: &Config| host.get_load_balance_hosts() == LoadBalanceHosts::Random;
        match self.hosts.first().is_some_and(is_random) {
            // A hash with a random state is the standard library's only source of random numbers.
            true => usize::try_from(RandomState::new().build_hasher().finish() >> 33).unwrap_or(0),
            false => 0,
        }
    }

    /// Returns the files for TLS, if the URL asks for TLS.
    pub fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls_files.as_ref()
    }
}

/// The options that distlock reads itself. They must not be repeated.
const OWN_OPTIONS: [&str; 8] = [
    "durability",
    "listen",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "sslnegotiation",
];

impl<'a> UrlOptions<'a> {
    fn parse(query: &'a str) -> Result<Self, String> {
        let mut all = Self::default();
        let mut names = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            if OWN_OPTIONS.contains(&name) && names.contains(&name) {
                return Err(format!("{name}: given twice"));
            }
            names.push(name);
            match parameter.split_once('=') {
                Some(("durability", "async")) => all.async_commit = true,
                Some(("durability", "server")) => all.async_commit = false,
                Some(("durability", _)) => {
                    return Err("durability: give `async` or `server`".into());
                }
                Some(("listen", "true")) => all.never_listens = false,
                Some(("listen", "false")) => all.never_listens = true,
                Some(("listen", _)) => return Err("listen: give `true` or `false`".into()),
                Some(("sslmode", "require" | "verify-ca" | "verify-full")) => {
                    all.encrypted = Some(true);
                }
                // A fallback to plain text does not protect against an attacker who can force it.
                Some(("sslmode", "disable" | "allow" | "prefer")) => all.encrypted = Some(false),
                Some(("sslmode", _)) => return Err("sslmode: give `require` or `disable`".into()),
                Some(("sslrootcert", "system")) => all.system_roots = true,
                Some(("sslrootcert", path)) => all.tls_files.roots = Some(decode_path(path)?),
                Some(("sslcert", path)) => all.tls_files.certificate = Some(decode_path(path)?),
                Some(("sslkey", path)) => all.tls_files.key = Some(decode_path(path)?),
                Some(("channel_binding", how @ ("require" | "prefer" | "disable"))) => {
                    all.channel_binding = Some(how);
                }
                Some(("channel_binding", _)) => {
                    return Err("channel_binding: give `require`, `prefer` or `disable`".into());
                }
                Some(("sslnegotiation", "direct")) => all.direct_tls = true,
                Some(("sslnegotiation", "postgres")) => all.direct_tls = false,
                Some(("sslnegotiation", _)) => {
                    return Err("sslnegotiation: give `direct` or `postgres`".into());
                }
                Some((name, _)) if CLIENT_OPTIONS.contains(&name) => all.of_client.push(parameter),
                _ => return Err(explain_unknown(parameter, query)),
            }
        }
        Ok(all)
    }

    /// Refuses options that need TLS, because the URL does not ask for TLS.
    fn refuse_tls_options(&self) -> Result<(), String> {
        let needs_tls = [
            (self.tls_files != TlsFiles::default(), "sslrootcert, sslcert and sslkey are"),
            (self.system_roots, "sslrootcert=system is"),
            (self.channel_binding == Some("require"), "channel_binding=require is"),
            (self.direct_tls, "sslnegotiation=direct is"),
        ];
        match needs_tls.iter().find(|(is_given, _)| *is_given) {
            Some((_, what)) => Err(format!("{what} for `sslmode=require`")),
            None => Ok(()),
        }
    }
}

/// Parses the part of a URL that the Postgres client reads.
fn client_config(base: &str, options: &[&str]) -> Result<Config, String> {
    let rest = match options {
        [] => base.to_owned(),
        options => format!("{base}?{}", options.join("&")),
    };
    // Do not repeat the client's error: it quotes the text that it cannot parse, which may be part of a password.
    let config: Config = rest.parse().map_err(|_| explain_refusal(base, options))?;
    if config.get_hosts().is_empty() {
        return Err("no host".into());
    }
    Ok(config)
}

/// Checks that a list of several host addresses or ports has one for each host.
fn check_lists(config: &Config) -> Result<(), String> {
    let hosts = config.get_hosts().len();
    if ![0, hosts].contains(&config.get_hostaddrs().len()) {
        return Err("hostaddr: give one for each host".into());
    }
    if config.get_ports().len() > 1 && config.get_ports().len() != hosts {
        return Err("port: give one, or one for each host".into());
    }
    Ok(())
}

/// Explains that a parameter is unknown. Names it, unless its name may be part of a password.
fn explain_unknown(parameter: &str, query: &str) -> String {
    let name = parameter.split('=').next().unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b'-';
    // A password that contains a `?` ends before an `@`.
    if name.is_empty() || !name.bytes().all(is_name) || query.contains('@') {
        return "it has a parameter that is not known; in a password, write `%3F` for `?`"
            .to_owned();
    }
    let hint = match name {
        "gssencmode" | "krbsrvname" | "gsslib" | "gssdelegation" => {
            "distlock does not speak GSSAPI; remove it"
        }
        "schema" | "search_path" | "currentSchema" => {
            "distlock keeps its tables in the schema `distlock`; remove it"
        }
        "pgbouncer" => "distlock finds out by itself whether there is a pooler; remove it",
        "sslpassword" => "give a key without a password in `sslkey`, and remove it",
        "sslcrl"
        | "sslcrldir"
        | "ssl_min_protocol_version"
        | "ssl_max_protocol_version"
        | "sslsni"
        | "sslcompression"
        | "sslcertmode" => {
            "say with `sslrootcert`, `sslcert` and `sslkey` how TLS is done, and remove it"
        }
        "ssl" | "tls" => "write `sslmode=require` instead",
        _ => "remove it",
    };
    format!("{name}: this is no parameter that distlock knows: {hint}")
}

/// Names the option that the client cannot parse, or else the whole URL.
fn explain_refusal(base: &str, options: &[&str]) -> String {
    let is_bad = |parameter: &&&str| format!("postgres://h?{parameter}").parse::<Config>().is_err();
    match options.iter().find(is_bad).and_then(|parameter| parameter.split('=').next()) {
        Some(name) if base.parse::<Config>().is_ok() => {
            format!("{name}: its value cannot be read")
        }
        _ => "it cannot be read as a URL of Postgres".to_owned(),
    }
}

/// Splits a configuration of all hosts into one for each host.
fn config_of_each_host(all: &Config) -> Vec<Config> {
    let one = |(number, host): (usize, &Host)| {
        let mut config = Config::new();
        match host {
            Host::Tcp(name) => config.host(name),
            #[cfg(unix)]
            Host::Unix(path) => config.host_path(path),
        };
        if let Some(address) = all.get_hostaddrs().get(number) {
            config.hostaddr(*address);
        }
        if let Some(port) = all.get_ports().get(number).or(all.get_ports().first()) {
            config.port(*port);
        }
        if let Some(user) = all.get_user() {
            config.user(user);
        }
        if let Some(password) = all.get_password() {
            config.password(password);
        }
        if let Some(database) = all.get_dbname() {
            config.dbname(database);
        }
        if let Some(options) = all.get_options() {
            config.options(options);
        }
        if let Some(name) = all.get_application_name() {
            config.application_name(name);
        }
        if let Some(timeout) = all.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        if let Some(timeout) = all.get_tcp_user_timeout() {
            config.tcp_user_timeout(*timeout);
        }
        config.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
        if let Some(interval) = all.get_keepalives_interval() {
            config.keepalives_interval(interval);
        }
        if let Some(retries) = all.get_keepalives_retries() {
            config.keepalives_retries(retries);
        }
        config.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
        config.channel_binding(all.get_channel_binding());
        config.target_session_attrs(all.get_target_session_attrs());
        config.load_balance_hosts(all.get_load_balance_hosts());
        config
    };
    all.get_hosts().iter().enumerate().map(one).collect()
}

/// Decodes a path that is percent-encoded in a URL.
fn decode_path(text: &str) -> Result<PathBuf, String> {
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
    fn distlocks_own_options_are_parsed() {
        let url = "postgres://u:p@h:5433/db?durability=async&connect_timeout=3&listen=false";
        let url = PostgresUrl::parse(url).expect("a URL");
        assert!(url.async_commit && !url.listens);
        assert_eq!(url.hosts[0].get_ports(), [5433]);
        assert_eq!(url.hosts[0].get_dbname(), Some("db"));
        let plain = PostgresUrl::parse("postgresql://h").expect("a URL");
        assert!(!plain.async_commit && plain.listens && plain.tls_files().is_none());
        let url = "postgres://h/db?sslmode=verify-full&sslrootcert=/a%20b.pem";
        let files = PostgresUrl::parse(url).expect("a URL").tls_files().cloned().expect("TLS");
        assert_eq!(files.roots, Some("/a b.pem".into()));
    }

    #[test]
    fn urls_of_providers_are_parsed() {
        let url =
            "postgres://u:p@h/db?sslmode=require&channel_binding=require&sslnegotiation=direct";
        let url = PostgresUrl::parse(url).expect("a URL");
        assert_eq!(url.hosts[0].get_channel_binding(), ChannelBinding::Require);
        assert_eq!(url.hosts[0].get_ssl_negotiation(), SslNegotiation::Direct);
        let system = PostgresUrl::parse("postgres://h/db?sslrootcert=system").expect("a URL");
        assert_eq!(system.tls_files(), Some(&TlsFiles::default()));
        let several = PostgresUrl::parse("postgres://u:p@a:1,b:2/db").expect("a URL");
        let hosts = several.hosts.iter().map(|host| (host.get_hosts(), host.get_ports()));
        let tcp = |name: &str| Host::Tcp(name.to_owned());
        let expected = [(tcp("a"), 1), (tcp("b"), 2)];
        for ((host, port), (name, number)) in hosts.zip(expected) {
            assert_eq!((host, port), (&[name][..], &[number][..]));
        }
    }

    #[test]
    fn a_mistake_is_named_and_no_secret_is_repeated() {
        for (url, word) in [
            ("postgres://u:hunter2@h/?durability=no", "durability"),
            ("postgres://u:hunter2@h/?listen=1", "listen"),
            ("postgres://u:hunter2@h/?sslmode=maybe", "sslmode"),
            ("postgres://u:hunter2@h/?sslrootcert=a", "sslmode=require"),
            ("postgres://u:hunter2@h/?sslmode=require&sslkey=hunter2", "sslcert"),
            ("postgres://u:hunter2@h/?hunter2=1", "not known"),
            ("postgres://u:hunter?er=2@h/", "not known"),
            ("postgres://u:hunter2@h/?gssencmode=disable", "gssencmode: "),
            ("postgres://u:hunter2@h/?schema=hunter2", "schema `distlock`"),
            ("postgres://u:hunter2@h/?statement_cache_size=0", "statement_cache_size: "),
            ("postgres://u:hunter2@h/?keepalives_idle=hunter2", "keepalives_idle: "),
            ("postgres://u:hunter2@h/?channel_binding=hunter2", "channel_binding: give"),
            ("postgres://u:hunter2@h/?channel_binding=require", "sslmode=require"),
            ("postgres://u:hunter2@h/?sslnegotiation=direct", "sslmode=require"),
            ("postgres://u:hunter2@h/?sslmode=disable&sslrootcert=system", "sslmode=require"),
            ("postgres://u:hunter2@h/?sslmode=require&sslmode=disable", "sslmode: given twice"),
            ("postgres://u:hunter2@h/?sslkey=hunter2&sslkey=b", "sslkey: given twice"),
            ("postgres:///db", "no host"),
        ] {
            let refused = PostgresUrl::parse(url).err().expect("a mistake");
            assert!(refused.contains(word) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
