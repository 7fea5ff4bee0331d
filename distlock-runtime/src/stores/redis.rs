//! Stores that URLs of Redis name: one server, Sentinel, Cluster, or a quorum of independent servers.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::authentication::Credentials;
use distlock_core::store::StoreEvents;
use distlock_redis::redlock::QuorumStore;
use distlock_redis::url::{Deployment, RedisUrl, form};
use distlock_redis::{RedisConfig, RedisServers, RedisStore, Replicas, Sentinels, TlsClient};

use super::kind::{Offers, PLAIN, StartStore, StoreKind};
use super::tls::{TlsSetup, tls_setup};
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::options::LockOptions;
use crate::ranges::check_timeout;
use crate::settings::{Lacks, Settings};

/// Longer than a healthy replica takes, and no longer than one lock may hold up others on its connection.
const REPLICA_TIMEOUT: Duration = Duration::from_millis(100);
const NO_PERMITS: &str = "they cannot be had over redlock://, where majorities of servers could let in more; use \
    one server, Sentinel or Cluster for this lock";

/// Returns the store at this URL.
pub(super) fn parse(scheme: &str, rest: &str) -> Result<Box<dyn StoreKind>, LockError> {
    let refused = |why| LockError::invalid_option(format!("url: {why}; write {}", form(scheme)));
    kind_of(RedisUrl::parse(scheme, rest).map_err(refused)?)
}

/// Returns the quorum of the servers that these are the URLs of.
pub(super) fn quorum(urls: &[String]) -> Result<Box<dyn StoreKind>, LockError> {
    let refused = |why| LockError::invalid_option(format!("urls: {why}"));
    kind_of(RedisUrl::quorum(urls).map_err(refused)?)
}

fn kind_of(url: RedisUrl) -> Result<Box<dyn StoreKind>, LockError> {
    Ok(match url.deployment {
        Deployment::Redlock { nodes, guard } => Box::new(Quorum { nodes, guard }),
        _ => Box::new(Redis(url)),
    })
}

/// One server, a primary behind sentinels, or a cluster.
struct Redis(RedisUrl);

impl StoreKind for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn offers(&self) -> Offers {
        Offers {
            tls: Ok(()),
            replicas: true,
            sentinels: true,
            connections: true,
            ..Offers::nothing("one server, Sentinel or Cluster", PLAIN)
        }
    }

    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        let config = config(self.0, settings, namespace, events)?;
        Ok(Box::new(|handle, alarms| Arc::new(RedisStore::start(config, handle, alarms))))
    }
}

/// Independent servers of which a majority decides.
struct Quorum {
    nodes: Vec<RedisUrl>,
    /// How long a server that has restarted does not count, if the URL says so.
    guard: Option<Duration>,
}

impl StoreKind for Quorum {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn offers(&self) -> Offers {
        Offers { tls: Ok(()), restart_guard: true, ..Offers::nothing("redlock://", PLAIN) }
    }

    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        let Self { nodes, guard } = *self;
        let guard =
            guard.or(settings.restart_guard).or(settings.options.ttl).unwrap_or(LockOptions::TTL);
        let longest = (!guard.is_zero()).then_some(guard);
        let lacks = Lacks { permits: Some(NO_PERMITS), longest };
        // A guard that is shorter than the default `ttl` was chosen for shorter leases.
        let ttl = settings.options.ttl.or(longest.map(|longest| longest.min(LockOptions::TTL)));
        let options = LockOptions { ttl, ..settings.options.clone() };
        lacks.check(&options.resolve(&LockOptions::default())?)?;
        let server = |url| {
            let server = config(url, settings, namespace, events.clone())?;
            // A node is known by the connection on which it has identified itself.
            Ok(RedisConfig { connections: 1, ..server })
        };
        let servers = nodes.into_iter().map(server).collect::<Result<_, LockError>>()?;
        (settings.lacks, settings.options) = (lacks, options);
        Ok(Box::new(move |handle, alarms| {
            Arc::new(QuorumStore::start(servers, guard, events, handle, alarms))
        }))
    }
}

/// Returns how to reach what a URL names.
fn config(
    url: RedisUrl,
    settings: &Settings,
    namespace: &Namespace,
    events: Arc<dyn StoreEvents>,
) -> Result<RedisConfig, LockError> {
    let RedisUrl { deployment, tls, replicas, replica_timeout } = url;
    let mut encrypted = tls.is_some();
    let servers = match signed_in(deployment, settings)? {
        Deployment::Server(info) => RedisServers::Single(info),
        Deployment::Sentinel(url) => {
            encrypted |= url.sentinel_tls.is_some();
            let tls = tls_setup(url.sentinel_tls.clone(), settings)?.map(client);
            RedisServers::Primary(Sentinels::new(url, tls))
        }
        Deployment::Cluster(nodes) => RedisServers::Cluster(nodes),
        Deployment::Redlock { .. } => return Err(not_supported("one server of several")),
    };
    check_tls(encrypted, settings)?;
    let tls = tls_setup(tls, settings)?.map(client);
    let replicas = confirmed_by(replicas, replica_timeout, settings)?;
    Ok(RedisConfig {
        servers,
        tls,
        replicas,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        // More were slower: less is sent together.
        connections: settings.connections.unwrap_or(1),
        io_on_caller_runtime: settings.io_on_caller_runtime,
        fence: namespace.fence(),
        prefix: namespace.prefix().to_owned(),
        events,
    })
}

/// Options of TLS say that it is wanted: without it in the URL all would go in plain text.
fn check_tls(encrypted: bool, settings: &Settings) -> Result<(), LockError> {
    if settings.tls.is_some() && !encrypted {
        return Err(LockError::invalid_option(
            "tls: the URL is one without TLS; write rediss:// (or `tls=true`)",
        ));
    }
    Ok(())
}

/// The client's side of TLS, as the store on Redis has it.
fn client(tls: TlsSetup) -> Arc<TlsClient> {
    #[cfg(feature = "tls")]
    return TlsClient::new(tls.config, tls.server_name);
    #[cfg(not(feature = "tls"))]
    match tls {}
}

/// With what the builder says of sentinels.
fn signed_in(mut deployment: Deployment, settings: &Settings) -> Result<Deployment, LockError> {
    let Some(Credentials { user, password }) = &settings.sentinel else { return Ok(deployment) };
    let refused = match &mut deployment {
        Deployment::Sentinel(url) => match url.sign_in(user, password) {
            true => return Ok(deployment),
            false => "given twice, in the URL and on the builder",
        },
        _ => "the URL names no sentinels; leave it out, or use redis-sentinel://",
    };
    Err(LockError::invalid_option(format!("sentinel_credentials: {refused}")))
}

/// The replicas that have to confirm grants and renewals, if any.
fn confirmed_by(
    count: Option<u32>,
    timeout: Option<Duration>,
    settings: &Settings,
) -> Result<Option<Replicas>, LockError> {
    let count = once("replicas", count, settings.replicas)?.unwrap_or(0);
    let timeout = once("replica_timeout", timeout, settings.replica_timeout)?;
    let timeout = timeout.unwrap_or(REPLICA_TIMEOUT.min(settings.command_timeout / 2));
    check_timeout("replica_timeout", timeout)?;
    if count > 0 && timeout >= settings.command_timeout {
        return Err(LockError::invalid_option("replica_timeout: give less than `command_timeout`"));
    }
    Ok((count > 0).then_some(Replicas { count, timeout }))
}

/// A setting that the URL and the builder have.
fn once<T>(name: &str, url: Option<T>, builder: Option<T>) -> Result<Option<T>, LockError> {
    match (url, builder) {
        (Some(_), Some(_)) => Err(LockError::invalid_option(format!(
            "{name}: given twice, in the URL and on the builder"
        ))),
        (url, builder) => Ok(url.or(builder)),
    }
}

fn not_supported(what: &str) -> LockError {
    LockError::invalid_option(format!(
        "url: {what} is not supported by this version; use redis://host[:port] or redis+unix:///path"
    ))
}
