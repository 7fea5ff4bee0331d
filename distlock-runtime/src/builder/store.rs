//! Which store a URL has a manager use.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::memory::MemoryStore;
#[cfg(feature = "postgres")]
use crate::store::postgres::{PostgresConfig, PostgresStore};
#[cfg(feature = "redis")]
use crate::store::redis::{RedisConfig, RedisStore, Sentinels, Target, TlsClient};
#[cfg(feature = "redis")]
use crate::tls::TlsOptions;
use crate::url::StoreUrl;
#[cfg(feature = "redis")]
use crate::url::{Deployment, RedisUrl};

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
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(address) => {
            let observers = observers.of_manager("postgres");
            let config = PostgresConfig {
                address: *address,
                command_timeout: settings.command_timeout,
                connect_timeout: settings.connect_timeout,
                connections: settings.connections,
                observers: observers.clone(),
            };
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(PostgresStore::start(config, handle, alarms)), handle, alarms)
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

#[cfg(feature = "redis")]
fn redis_config(
    url: RedisUrl,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<RedisConfig, LockError> {
    let RedisUrl { deployment, tls, replicas, replica_timeout } = url;
    let target = match deployment {
        Deployment::Server(info) => Target::Fixed(info),
        Deployment::Sentinel(url) => {
            let tls = tls_client(url.sentinel_tls.clone(), settings)?;
            Target::Primary(Sentinels::new(url, tls))
        }
        Deployment::Cluster(_) => return Err(not_supported("redis-cluster://")),
        Deployment::Redlock { .. } => return Err(not_supported("redlock://")),
    };
    let tls = tls_client(tls, settings)?;
    if replicas.is_some() || replica_timeout.is_some() {
        return Err(not_supported("`replicas`"));
    }
    Ok(RedisConfig {
        target,
        tls,
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

/// What makes connections with TLS, if the URL asks for it.
#[cfg(feature = "tls")]
fn tls_client(
    url: Option<TlsOptions>,
    settings: &Settings,
) -> Result<Option<Arc<TlsClient>>, LockError> {
    let options = match (url, &settings.tls) {
        (None, None) => return Ok(None),
        (None, Some(_)) => Err("tls: the URL is one without TLS; write rediss:// (or `tls=true`)"),
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

#[cfg(feature = "redis")]
fn not_supported(what: &str) -> LockError {
    LockError::invalid_option(format!(
        "url: {what} is not supported by this version; use redis://host[:port] or redis+unix:///path"
    ))
}
