//! The settings that each store supports. A setting that the store would ignore is refused.

use crate::error::LockError;
use crate::settings::Settings;
use crate::url::StoreUrl;
#[cfg(feature = "redis")]
use distlock_redis::url::Deployment;

/// The settings that only some stores support.
pub(super) struct Offers {
    /// The name of the store in errors.
    store: &'static str,
    /// Whether the store supports TLS; if not, the reason and the fix.
    tls: Result<(), &'static str>,
    replicas: bool,
    sentinels: bool,
    connections: bool,
    restart_guard: bool,
}

const PLAIN: &str = "this version speaks plain TCP with it: leave it out, and use a TLS tunnel (such as stunnel or a \
    service mesh) on both sides where the network is not trusted";

impl Offers {
    const fn nothing(store: &'static str, tls: &'static str) -> Self {
        Self {
            store,
            tls: Err(tls),
            replicas: false,
            sentinels: false,
            connections: false,
            restart_guard: false,
        }
    }

    const MEMORY: Self =
        Self::nothing("memory://", "it is no server: leave it out, or write a URL of a server");
    pub(super) const FOREIGN: Self =
        Self::nothing("this store", "it makes its own connections: leave it out");
    #[cfg(feature = "etcd")]
    const ETCD: Self = Self::nothing("etcd://", PLAIN);
    #[cfg(feature = "zookeeper")]
    const ZOOKEEPER: Self = Self::nothing("zookeeper://", PLAIN);
    #[cfg(feature = "postgres")]
    const POSTGRES: Self =
        Self { tls: Ok(()), connections: true, ..Self::nothing("postgres://", PLAIN) };
    #[cfg(feature = "redis")]
    const REDIS: Self = Self {
        tls: Ok(()),
        replicas: true,
        sentinels: true,
        connections: true,
        ..Self::nothing("one server, Sentinel or Cluster", PLAIN)
    };
    #[cfg(feature = "redis")]
    const QUORUM: Self =
        Self { tls: Ok(()), restart_guard: true, ..Self::nothing("redlock://", PLAIN) };

    /// Returns the settings of the store that a URL names.
    pub(super) fn of(url: &StoreUrl) -> &'static Self {
        match url {
            StoreUrl::Memory => &Self::MEMORY,
            #[cfg(feature = "etcd")]
            StoreUrl::Etcd(_) => &Self::ETCD,
            #[cfg(feature = "postgres")]
            StoreUrl::Postgres(_) => &Self::POSTGRES,
            #[cfg(feature = "zookeeper")]
            StoreUrl::ZooKeeper(_) => &Self::ZOOKEEPER,
            #[cfg(feature = "redis")]
            StoreUrl::Redis(url) if matches!(url.deployment, Deployment::Redlock { .. }) => {
                &Self::QUORUM
            }
            #[cfg(feature = "redis")]
            StoreUrl::Redis(_) => &Self::REDIS,
        }
    }

    /// Refuses a setting that the store would ignore, and names the fix.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), LockError> {
        if let (Some(_), Err(why)) = (&settings.tls, self.tls) {
            return Err(self.lacks("tls", why));
        }
        const REPLICAS: &str = "only redis://, redis-sentinel:// and redis-cluster:// have replicas that confirm \
            locks: leave it out, or use one of them";
        if settings.replicas.is_some() && !self.replicas {
            return Err(self.lacks("replicas", REPLICAS));
        }
        if settings.replica_timeout.is_some() && !self.replicas {
            return Err(self.lacks("replica_timeout", REPLICAS));
        }
        #[cfg(feature = "redis")]
        if settings.sentinel.is_some() && !self.sentinels {
            let why = "the URL names no sentinels: leave it out, or use redis-sentinel://";
            return Err(self.lacks("sentinel_credentials", why));
        }
        if settings.connections.is_some() && !self.connections {
            let why = "it has as many connections as it needs: leave it out";
            return Err(self.lacks("connections", why));
        }
        if settings.restart_guard.is_some() && !self.restart_guard {
            let why =
                "only a quorum (redlock://, or `urls`) has a guard: leave it out, or use a quorum";
            return Err(self.lacks("restart_guard", why));
        }
        Ok(())
    }

    fn lacks(&self, setting: &str, why: &str) -> LockError {
        LockError::invalid_option(format!("{setting}: without effect on {}: {why}", self.store))
    }
}
