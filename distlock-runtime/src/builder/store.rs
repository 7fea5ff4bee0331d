//! Which store a URL has a manager use.

use std::sync::Arc;
#[cfg(feature = "redis")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use distlock_postgres::Address;
use tokio::runtime::Handle;

#[cfg(feature = "redis")]
use super::quorum::Quorum;
use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
#[cfg(feature = "redis")]
use crate::limits::check_timeout;
use crate::lock::locks::Locks;
use crate::namespace::Namespace;
use crate::observe::Observers;
#[cfg(feature = "zookeeper")]
use crate::options::Options;
#[cfg(feature = "redis")]
use crate::settings::Credentials;
use crate::settings::Settings;
use crate::store::Store;
#[cfg(feature = "etcd")]
use crate::store::etcd::{EtcdConfig, EtcdStore};
use crate::store::memory::MemoryStore;
#[cfg(feature = "postgres")]
use crate::store::postgres::{PostgresConfig, PostgresStore};
#[cfg(feature = "redis")]
use crate::store::quorum::QuorumStore;
#[cfg(feature = "redis")]
use crate::store::redis::{Place, RedisConfig, RedisStore, Replicas, Sentinels, Target, TlsClient};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::{ZooKeeperConfig, ZooKeeperStore};
#[cfg(all(feature = "postgres", feature = "tls"))]
use crate::tls::Pem;
#[cfg(feature = "redis")]
use crate::tls::TlsOptions;
use crate::url::StoreUrl;
#[cfg(feature = "redis")]
use crate::url::{Deployment, RedisUrl};

/// Longer than a healthy replica takes, and no longer than one lock may hold up others on its connection.
#[cfg(feature = "redis")]
const REPLICA_TIMEOUT: Duration = Duration::from_millis(100);

/// Starts the locks of a manager in the store of this URL, or in what `over` makes of it.
pub(super) fn start(
    url: StoreUrl,
    runs_on: RunsOn,
    settings: Settings,
    namespace: Namespace,
    observers: Observers,
    over: impl FnOnce(Arc<dyn Store>, &Handle, &Arc<Alarms>) -> Arc<dyn Store>,
) -> Result<Locks, LockError> {
    match url {
        StoreUrl::Memory => {
            let observers = observers.of_manager("memory");
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(MemoryStore::new()), handle, alarms)
            })
        }
        #[cfg(feature = "etcd")]
        StoreUrl::Etcd(address) => {
            let observers = observers.of_manager("etcd");
            let config = etcd_config(address, &settings, &namespace, &observers);
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(EtcdStore::start(config, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(address) => {
            let observers = observers.of_manager("postgres");
            let config = postgres_config(*address, &settings, &namespace, &observers)?;
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(PostgresStore::start(config, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "zookeeper")]
        StoreUrl::ZooKeeper(address) => {
            let observers = observers.of_manager("zookeeper");
            let config = zookeeper_config(*address, &settings, &observers);
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(ZooKeeperStore::start(config, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) if matches!(url.deployment, Deployment::Redlock { .. }) => {
            let observers = observers.of_manager("redlock");
            let Quorum { servers, guard, lacks } =
                Quorum::new(*url, &settings, &namespace, &observers)?;
            let settings = Settings { lacks, ..settings };
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(QuorumStore::start(servers, guard, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => {
            let observers = observers.of_manager("redis");
            let config = redis_config(*url, &settings, &namespace, &observers)?;
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(RedisStore::start(config, handle, alarms)), handle, alarms)
            })
        }
    }
}

#[cfg(feature = "postgres")]
fn postgres_config(
    address: distlock_postgres::Address,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<PostgresConfig, LockError> {
    Ok(PostgresConfig {
        address: postgres_address(address, settings)?,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        connections: settings.connections,
        prefix: namespace.prefix().to_owned(),
        observers: observers.clone(),
    })
}

#[cfg(feature = "zookeeper")]
fn zookeeper_config(
    address: distlock_zookeeper::Address,
    settings: &Settings,
    observers: &Observers,
) -> ZooKeeperConfig {
    ZooKeeperConfig {
        address,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        ttl: settings.options.ttl.unwrap_or(Options::TTL),
        observers: observers.clone(),
    }
}

#[cfg(feature = "etcd")]
fn etcd_config(
    address: distlock_etcd::Address,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> EtcdConfig {
    EtcdConfig {
        address,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        fence: namespace.fence(),
        observers: observers.clone(),
    }
}

#[cfg(feature = "redis")]
pub(super) fn redis_config(
    url: RedisUrl,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<RedisConfig, LockError> {
    let RedisUrl { deployment, tls, replicas, replica_timeout } = url;
    let mut encrypted = tls.is_some();
    let place = match signed_in(deployment, settings)? {
        Deployment::Server(info) => Place::At(Target::Fixed(info)),
        Deployment::Sentinel(url) => {
            encrypted |= url.sentinel_tls.is_some();
            let tls = tls_client(url.sentinel_tls.clone(), settings)?;
            Place::At(Target::Primary(Sentinels::new(url, tls)))
        }
        Deployment::Cluster(nodes) => Place::Cluster(nodes),
        Deployment::Redlock { .. } => return Err(not_supported("one server of several")),
    };
    check_tls(encrypted, settings)?;
    let tls = tls_client(tls, settings)?;
    let replicas = confirmed_by(replicas, replica_timeout, settings)?;
    Ok(RedisConfig {
        place,
        tls,
        replicas,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        // More were slower: less is sent together.
        connections: settings.connections.unwrap_or(1),
        io_on_caller_runtime: settings.io_on_caller_runtime,
        fence: namespace.fence(),
        prefix: namespace.prefix().to_owned(),
        observers: observers.clone(),
    })
}

/// With what the builder says of sentinels.
#[cfg(feature = "redis")]
fn signed_in(mut deployment: Deployment, settings: &Settings) -> Result<Deployment, LockError> {
    let Some(Credentials { user, password }) = &settings.sentinel else { return Ok(deployment) };
    let refused = match &mut deployment {
        Deployment::Sentinel(url) => match url.sign_in(user, password) {
            true => return Ok(deployment),
            false => "given twice, in the URL and on the builder",
        },
        _ => "the URL names no sentinels",
    };
    Err(LockError::invalid_option(format!("sentinel_credentials: {refused}")))
}

/// Who has to confirm grants and renewals, if anybody does.
#[cfg(feature = "redis")]
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
#[cfg(feature = "redis")]
fn once<T>(name: &str, url: Option<T>, builder: Option<T>) -> Result<Option<T>, LockError> {
    match (url, builder) {
        (Some(_), Some(_)) => Err(LockError::invalid_option(format!(
            "{name}: given twice, in the URL and on the builder"
        ))),
        (url, builder) => Ok(url.or(builder)),
    }
}

/// Options of TLS say that it is wanted: without it in the URL all would go in plain text.
#[cfg(feature = "redis")]
fn check_tls(encrypted: bool, settings: &Settings) -> Result<(), LockError> {
    #[cfg(feature = "tls")]
    if settings.tls.is_some() && !encrypted {
        return Err(LockError::invalid_option(
            "tls: the URL is one without TLS; write rediss:// (or `tls=true`)",
        ));
    }
    let _ = (encrypted, settings);
    Ok(())
}

/// What makes connections with TLS, if the URL asks for it.
#[cfg(feature = "tls")]
fn tls_client(
    url: Option<TlsOptions>,
    settings: &Settings,
) -> Result<Option<Arc<TlsClient>>, LockError> {
    let options = match (url, &settings.tls) {
        (None, _) => return Ok(None),
        (Some(url), Some(_)) if url != TlsOptions::default() => {
            Err("tls: given twice, in the URL and on the builder; say all of it in one place")
        }
        (Some(_), Some(options)) => Ok(options.clone()),
        (Some(url), None) => Ok(url),
    };
    TlsClient::new(&options.map_err(LockError::invalid_option)?).map(Some)
}

#[cfg(all(feature = "redis", not(feature = "tls")))]
fn tls_client(
    url: Option<TlsOptions>,
    _settings: &Settings,
) -> Result<Option<Arc<TlsClient>>, LockError> {
    match url {
        None => Ok(None),
        Some(_) => Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        )),
    }
}

/// With what makes connections with TLS, if the URL asks for it.
#[cfg(all(feature = "postgres", feature = "tls"))]
fn postgres_address(address: Address, settings: &Settings) -> Result<Address, LockError> {
    let Some(files) = address.encrypted() else {
        return match settings.tls {
            None => Ok(address),
            Some(_) => Err(LockError::invalid_option(
                "tls: the URL is one without TLS; write postgres://…?sslmode=require",
            )),
        };
    };
    let distlock_postgres::Files { roots, certificate, key } = files.clone();
    let client = certificate.zip(key).map(|(cert, key)| (Pem::File(cert), Pem::File(key)));
    let url = TlsOptions { ca: roots.map(Pem::File), client, ..TlsOptions::default() };
    let tls = tls_client(Some(url), settings)?;
    Ok(match tls.map(|tls| tls.parts()) {
        Some((config, name)) => address.with(distlock_postgres::Tls::new(config, name)),
        None => address,
    })
}

#[cfg(all(feature = "postgres", not(feature = "tls")))]
fn postgres_address(address: Address, _settings: &Settings) -> Result<Address, LockError> {
    match address.encrypted() {
        None => Ok(address),
        Some(_) => Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        )),
    }
}

#[cfg(feature = "redis")]
pub(super) fn not_supported(what: &str) -> LockError {
    LockError::invalid_option(format!(
        "url: {what} is not supported by this version; use redis://host[:port] or redis+unix:///path"
    ))
}
