//! Which store a URL has a manager use.

use std::sync::Arc;

use tokio::runtime::Handle;

#[cfg(feature = "etcd")]
use super::etcd::etcd_config;
use super::offers::Offers;
#[cfg(feature = "postgres")]
use super::postgres::postgres_settings;
#[cfg(feature = "redis")]
use super::quorum::Quorum;
#[cfg(feature = "redis")]
use super::redis::redis_config;
#[cfg(feature = "zookeeper")]
use super::zookeeper::zookeeper_config;
use crate::engine::RunsOn;
use crate::engine::alarm::Alarms;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::url::StoreUrl;
#[cfg(feature = "etcd")]
use distlock_etcd::EtcdStore;
#[cfg(feature = "postgres")]
use distlock_postgres::PostgresStore;
#[cfg(feature = "redis")]
use distlock_redis::RedisStore;
#[cfg(feature = "redis")]
use distlock_redis::redlock::QuorumStore;
#[cfg(feature = "redis")]
use distlock_redis::url::Deployment;
#[cfg(feature = "zookeeper")]
use distlock_zookeeper::ZooKeeperStore;

/// Starts the locks of a manager in the store of this URL, or in what `over` makes of it.
pub(super) fn start(
    url: StoreUrl,
    runs_on: RunsOn,
    settings: Settings,
    namespace: Namespace,
    observers: Observers,
    over: impl FnOnce(Arc<dyn Store>, &Handle, &Arc<Alarms>) -> Arc<dyn Store>,
) -> Result<Locks, LockError> {
    Offers::of(&url).check(&settings)?;
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
        StoreUrl::Postgres(url) => {
            let observers = observers.of_manager("postgres");
            let config = postgres_settings(*url, &settings, &namespace, &observers)?;
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(PostgresStore::start(config, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "zookeeper")]
        StoreUrl::ZooKeeper(address) => {
            let observers = observers.of_manager("zookeeper");
            let config = zookeeper_config(*address, &settings, &namespace, &observers);
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(Arc::new(ZooKeeperStore::start(config, handle, alarms)), handle, alarms)
            })
        }
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) if matches!(url.deployment, Deployment::Redlock { .. }) => {
            let observers = observers.of_manager("redlock");
            let Quorum { servers, guard, lacks, options } =
                Quorum::new(*url, &settings, &namespace, &observers)?;
            let (events, settings) = (observers.events(), Settings { lacks, options, ..settings });
            Locks::start(runs_on, settings, namespace, observers, |handle, alarms| {
                over(
                    Arc::new(QuorumStore::start(servers, guard, events, handle, alarms)),
                    handle,
                    alarms,
                )
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
