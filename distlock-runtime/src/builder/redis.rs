//! What a URL of Redis comes to: one server, Sentinel or Cluster.

use std::sync::Arc;
use std::time::Duration;

use super::tls::{check_tls, tls_setup};
use crate::error::LockError;
use crate::limits::check_timeout;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::{Credentials, Settings};
use crate::tls::TlsSetup;
use distlock_redis::url::{Deployment, RedisUrl};
use distlock_redis::{Place, RedisConfig, Replicas, Sentinels, TlsClient};

/// Longer than a healthy replica takes, and no longer than one lock may hold up others on its connection.
const REPLICA_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) fn redis_config(
    url: RedisUrl,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<RedisConfig, LockError> {
    let RedisUrl { deployment, tls, replicas, replica_timeout } = url;
    let mut encrypted = tls.is_some();
    let place = match signed_in(deployment, settings)? {
        Deployment::Server(info) => Place::At(info),
        Deployment::Sentinel(url) => {
            encrypted |= url.sentinel_tls.is_some();
            let tls = tls_setup(url.sentinel_tls.clone(), settings)?.map(client);
            Place::Primary(Sentinels::new(url, tls))
        }
        Deployment::Cluster(nodes) => Place::Cluster(nodes),
        Deployment::Redlock { .. } => return Err(not_supported("one server of several")),
    };
    check_tls(encrypted, settings)?;
    let tls = tls_setup(tls, settings)?.map(client);
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
        events: observers.events(),
    })
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

pub(super) fn not_supported(what: &str) -> LockError {
    LockError::invalid_option(format!(
        "url: {what} is not supported by this version; use redis://host[:port] or redis+unix:///path"
    ))
}
