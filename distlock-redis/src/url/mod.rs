//! URLs of Redis.
//!
//! ```text
//! (redis | rediss | valkey | valkeys)://[[user]:password@]host[:port][/db][?options]
//! (redis+unix | valkey+unix | unix):///path[?options]
//! (redis-sentinel | rediss-sentinel)://[[user]:password@]host[:port],…/primary[/db][?options]
//! (redis-cluster | rediss-cluster)://[[user]:password@]host[:port],…[?options]
//! redlock://[[user]:password@]host[:port],…[/db][?options]
//! ```
//!
//! Every part is percent-encoded. User and password are those of the servers that keep locks. Those of sentinels are
//! options.
//!
//! | file | contents |
//! |---|---|
//! | `authority` | the user and password, the hosts, and the path |
//! | `options` | the options after the `?` |

mod authority;
mod options;

use std::path::PathBuf;
use std::time::Duration;

use authority::{UrlError, UrlParts, decoded};
use distlock_core::authentication::{Pem, TlsOptions};
use options::Options;
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// The most nodes of a quorum. More have no use, because each must be asked for every lock.
const MOST_NODES: usize = 9;

const SINGLE: &str = "a quorum is of single servers: redis:// or rediss://";

const TLS: [&str; 6] = ["tls", "ca", "cert", "key", "server_name", "tls_roots"];
const REPLICAS: [&str; 2] = ["replicas", "replica_timeout"];
const SENTINEL: [&str; 3] = ["sentinel_user", "sentinel_pass", "sentinel_tls"];

/// The contents of a URL of Redis.
pub struct RedisUrl {
    /// The servers.
    pub deployment: Deployment,
    /// The TLS options for servers that keep locks; `None` for plain text.
    pub tls: Option<TlsOptions>,
    /// The number of replicas that confirm grants and renewals.
    pub replicas: Option<u32>,
    /// How long replicas may take to confirm.
    pub replica_timeout: Option<Duration>,
}

/// The servers of a URL.
pub enum Deployment {
    /// One server, by TCP or over a Unix socket.
    Server(ConnectionInfo),
    /// The primary with this name, which sentinels know.
    Sentinel(SentinelUrl),
    /// Some nodes of a cluster, which know the others.
    Cluster(Vec<ConnectionInfo>),
    /// Independent servers, of which a majority decides.
    Redlock {
        /// The servers, each with its own options.
        nodes: Vec<RedisUrl>,
        /// How long a server that has restarted does not count.
        guard: Option<Duration>,
    },
}

/// The sentinels to ask for a primary, and how to sign in.
pub struct SentinelUrl {
    /// How to connect to the sentinels.
    pub sentinels: Vec<ConnectionInfo>,
    /// The TLS options for the sentinels; `None` for plain text.
    pub sentinel_tls: Option<TlsOptions>,
    /// The name of the primary at the sentinels.
    pub primary: String,
    /// The user, password and database at the servers.
    pub servers: RedisConnectionInfo,
}

impl SentinelUrl {
    /// Sets the user and password at the sentinels. Returns `false` if the URL has them already.
    pub fn sign_in(&mut self, user: &str, password: &str) -> bool {
        let mut settings = RedisConnectionInfo::default().set_password(password);
        if !user.is_empty() {
            settings = settings.set_username(user);
        }
        let unsaid = self.sentinels.iter().all(|info| info.redis_settings().password().is_none());
        let infos = std::mem::take(&mut self.sentinels).into_iter();
        let infos = infos.map(|info| match unsaid {
            true => info.set_redis_settings(settings.clone()),
            false => info,
        });
        self.sentinels = infos.collect();
        unsaid
    }
}

impl RedisUrl {
    /// Parses a URL without its `scheme://`, which is given in lower case.
    pub fn parse(scheme: &str, rest: &str) -> Result<Self, UrlError> {
        let encrypted = matches!(scheme, "rediss" | "valkeys") || scheme.starts_with("rediss-");
        match scheme {
            "redis+unix" | "valkey+unix" | "unix" => Self::unix(rest),
            "redis-sentinel" | "rediss-sentinel" => Self::sentinel(rest, encrypted),
            "redis-cluster" | "rediss-cluster" => Self::cluster(rest, encrypted),
            "redlock" => Self::redlock(rest),
            _ => Self::server(rest, encrypted),
        }
    }

    fn server(rest: &str, encrypted: bool) -> Result<Self, UrlError> {
        let parts = UrlParts::of(rest)?;
        let known = [&TLS[..], &REPLICAS, &["protocol"]].concat();
        let mut options = Options::parse(parts.query, &known)?;
        let info = parts.one(REDIS_PORT, database(parts.path)?)?;
        let deployment = Deployment::Server(with_protocol(info, &mut options)?);
        Self::of(deployment, &mut options, encrypted)
    }

    fn unix(rest: &str) -> Result<Self, UrlError> {
        if cfg!(not(unix)) {
            return Err(
                "unix sockets are not supported on this system; use redis://host[:port]".into()
            );
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let known = [&["db", "user", "pass"][..], &REPLICAS, &["protocol"]].concat();
        let mut options = Options::parse(query, &known)?;
        let path = decoded(path).ok_or("the path is not valid UTF-8 when decoded")?;
        if !path.starts_with('/') {
            return Err("a path from the root: redis+unix:///run/redis.sock".into());
        }
        let mut settings = RedisConnectionInfo::default();
        settings = settings.set_db(options.number("db")?.unwrap_or(0).into());
        if let Some(user) = options.text("user") {
            settings = settings.set_username(user);
        }
        if let Some(password) = options.text("pass") {
            settings = settings.set_password(password);
        }
        let address = ConnectionAddr::Unix(PathBuf::from(path));
        let info = address.into_connection_info().map_err(|_| "the path cannot be used")?;
        let info = with_protocol(info.set_redis_settings(settings), &mut options)?;
        Self::of(Deployment::Server(info), &mut options, false)
    }

    fn sentinel(rest: &str, encrypted: bool) -> Result<Self, UrlError> {
        let parts = UrlParts::of(rest)?;
        let known = [&TLS[..], &REPLICAS, &SENTINEL].concat();
        let mut options = Options::parse(parts.query, &known)?;
        let (primary, path) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        let primary = decoded(primary).filter(|name| !name.is_empty());
        let primary = primary.ok_or(
            "the name of the primary is missing: redis-sentinel://host,host/mymaster (`SENTINEL MASTERS` \
             lists the names)",
        )?;
        let infos = parts.all(SENTINEL_PORT, database(path)?)?;
        let servers = infos[0].redis_settings().clone();
        let mut sign_in = RedisConnectionInfo::default();
        let (user, password) = (options.text("sentinel_user"), options.text("sentinel_pass"));
        if user.is_some() && password.is_none() {
            return Err("`sentinel_user` needs `sentinel_pass`".into());
        }
        if let Some(user) = user {
            sign_in = sign_in.set_username(user);
        }
        if let Some(password) = password {
            sign_in = sign_in.set_password(password);
        }
        let sentinels = infos.into_iter().map(|info| info.set_redis_settings(sign_in.clone()));
        let sentinels = sentinels.collect();
        let encrypted_sentinels = options.flag("sentinel_tls")?.unwrap_or(encrypted);
        let encrypted = options.flag("tls")?.unwrap_or(encrypted);
        let tls = tls_options(&mut options, encrypted || encrypted_sentinels)?;
        let sentinel_tls = tls.clone().filter(|_| encrypted_sentinels);
        let deployment =
            Deployment::Sentinel(SentinelUrl { sentinels, sentinel_tls, primary, servers });
        Self::with_replicas(deployment, tls.filter(|_| encrypted), &mut options)
    }

    fn cluster(rest: &str, encrypted: bool) -> Result<Self, UrlError> {
        let parts = UrlParts::of(rest)?;
        let mut options = Options::parse(parts.query, &[&TLS[..], &REPLICAS].concat())?;
        if database(parts.path)? != 0 {
            return Err("a cluster has database 0 and no other: leave it out".into());
        }
        let deployment = Deployment::Cluster(parts.all(REDIS_PORT, 0)?);
        Self::of(deployment, &mut options, encrypted)
    }

    fn redlock(rest: &str) -> Result<Self, UrlError> {
        let parts = UrlParts::of(rest)?;
        let mut options = Options::parse(parts.query, &[&TLS[..], &["guard"]].concat())?;
        let nodes = parts.all(REDIS_PORT, database(parts.path)?)?;
        check_nodes(nodes.len())?;
        let guard = options.duration("guard")?;
        let encrypted = options.flag("tls")?.unwrap_or(false);
        let tls = tls_options(&mut options, encrypted)?;
        let node = |info| Self::plain(Deployment::Server(info), tls.clone());
        let nodes = nodes.into_iter().map(node).collect();
        Ok(Self::plain(Deployment::Redlock { nodes, guard }, tls))
    }

    /// Returns a quorum of the servers at these URLs.
    pub fn quorum(urls: &[String]) -> Result<Self, UrlError> {
        let about = |at: usize, why: &str| UrlError::from(format!("URL {}: {why}", at + 1));
        let (mut nodes, mut places): (Vec<Self>, Vec<ConnectionAddr>) = Default::default();
        for (at, url) in urls.iter().enumerate() {
            let node = url.trim().split_once("://").ok_or_else(|| about(at, "no scheme"))?;
            let scheme = node.0.to_ascii_lowercase();
            // Any other scheme would be read as that of a single server.
            if !scheme.contains("redis")
                && !matches!(&*scheme, "valkey" | "valkeys" | "valkey+unix" | "unix")
            {
                return Err(about(at, SINGLE));
            }
            let node = Self::parse(&scheme, node.1);
            let node = node.map_err(|why| about(at, &why))?;
            let Deployment::Server(info) = &node.deployment else {
                return Err(about(at, SINGLE));
            };
            if node.replicas.is_some() || node.replica_timeout.is_some() {
                let why = "`replicas` are not asked by a quorum, whose servers confirm each other: leave it out";
                return Err(about(at, why));
            }
            let place = without_name(info.addr());
            if let Some(first) = places.iter().position(|other| *other == place) {
                return Err(about(at, &format!("the server of URL {} once more", first + 1)));
            }
            places.push(place);
            nodes.push(node);
        }
        check_nodes(nodes.len())?;
        Ok(Self::plain(Deployment::Redlock { nodes, guard: None }, None))
    }

    fn plain(deployment: Deployment, tls: Option<TlsOptions>) -> Self {
        Self { deployment, tls, replicas: None, replica_timeout: None }
    }

    /// Reads the options that several schemes have.
    fn of(
        deployment: Deployment,
        options: &mut Options,
        encrypted: bool,
    ) -> Result<Self, UrlError> {
        let wanted = options.flag("tls")?;
        if encrypted && wanted == Some(false) {
            return Err(
                "`tls=false` with a scheme that says TLS: write redis:// for plain text".into()
            );
        }
        let tls = tls_options(options, wanted.unwrap_or(encrypted))?;
        Self::with_replicas(deployment, tls, options)
    }

    fn with_replicas(
        deployment: Deployment,
        tls: Option<TlsOptions>,
        options: &mut Options,
    ) -> Result<Self, UrlError> {
        let replicas = options.number("replicas")?;
        let replica_timeout = options.duration("replica_timeout")?;
        Ok(Self { deployment, tls, replicas, replica_timeout })
    }
}

/// Returns the form of URLs of this scheme.
pub fn form(scheme: &str) -> &'static str {
    match scheme {
        "redis+unix" | "valkey+unix" | "unix" => "redis+unix:///path[?db=n&user=…&pass=…]",
        "redis-sentinel" | "rediss-sentinel" => {
            "redis-sentinel://[[user]:password@]host[:port],…/primary[/db][?options]"
        }
        "redis-cluster" | "rediss-cluster" => {
            "redis-cluster://[[user]:password@]host[:port],…[?options]"
        }
        "redlock" => "redlock://[[user]:password@]host[:port],…[/db][?options]",
        "rediss" | "valkeys" => "rediss://[[user]:password@]host[:port][/db][?options]",
        _ => "redis://[[user]:password@]host[:port][/db][?options]",
    }
}

/// Returns the address without the TLS details, which is the same for all URLs of one server.
fn without_name(addr: &ConnectionAddr) -> ConnectionAddr {
    match addr {
        ConnectionAddr::TcpTls { host, port, .. } => ConnectionAddr::Tcp(host.clone(), *port),
        other => other.clone(),
    }
}

/// Checks that a majority can be counted over this many nodes.
fn check_nodes(nodes: usize) -> Result<(), UrlError> {
    match nodes {
        0 => Err("no node: give three".into()),
        1 => Err("one node is no quorum: use redis:// for one server".into()),
        2 => {
            Err("two nodes cannot outvote one another: give three, or redis:// for one server"
                .into())
        }
        _ if nodes > MOST_NODES => Err(format!("more than {MOST_NODES} nodes: give 3 or 5").into()),
        _ => Ok(()),
    }
}

fn database(path: &str) -> Result<u32, UrlError> {
    match path.trim_end_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| "the database is not a number".into()),
    }
}

fn with_protocol(info: ConnectionInfo, options: &mut Options) -> Result<ConnectionInfo, UrlError> {
    let protocol = match options.text("protocol").as_deref() {
        None => return Ok(info),
        Some("2" | "resp2") => ProtocolVersion::RESP2,
        Some("3" | "resp3") => ProtocolVersion::RESP3,
        Some(_) => return Err("`protocol`: write `resp2` or `resp3`".into()),
    };
    let settings = info.redis_settings().clone().set_protocol(protocol);
    Ok(info.set_redis_settings(settings))
}

fn tls_options(options: &mut Options, encrypted: bool) -> Result<Option<TlsOptions>, UrlError> {
    let (ca, cert, key) = (options.path("ca"), options.path("cert"), options.path("key"));
    let client = match (cert, key) {
        (Some(cert), Some(key)) => Some((Pem::File(cert), Pem::File(key))),
        (None, None) => None,
        (Some(_), None) => return Err("`cert` needs `key`, the file with its private key".into()),
        (None, Some(_)) => return Err("`key` needs `cert`, the file with its certificate".into()),
    };
    let no_system_roots = match options.text("tls_roots").as_deref() {
        None => false,
        Some("none") => true,
        Some(_) => return Err("`tls_roots`: there is only `none`, to trust `ca` alone".into()),
    };
    let server_name = options.text("server_name");
    let tls = TlsOptions { ca: ca.map(Pem::File), client, server_name, no_system_roots };
    if no_system_roots && tls.ca.is_none() {
        return Err("`tls_roots=none` needs `ca`: without either no server can be trusted".into());
    }
    if !encrypted && tls != TlsOptions::default() {
        return Err(
            "options of TLS, and the scheme is one without: write rediss://, or `tls=true`".into(),
        );
    }
    Ok(encrypted.then_some(tls))
}
