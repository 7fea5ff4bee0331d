//! Which store a URL means.
//!
//! Nothing here repeats a part of a URL that is not known: what stands in the wrong place may be a piece of a
//! password with a `/`, `?` or `@` in it. Errors count hosts, and name the options that there are.
//! Each store parses its own URLs.

#[cfg(all(test, feature = "redis"))]
mod tests;

use crate::error::LockError;

/// Where the locks are kept.
pub(crate) enum StoreUrl {
    Memory,
    #[cfg(feature = "redis")]
    Redis(Box<distlock_redis::url::RedisUrl>),
    #[cfg(feature = "postgres")]
    Postgres(Box<distlock_postgres::PostgresUrl>),
    #[cfg(feature = "etcd")]
    Etcd(distlock_etcd::EtcdAddress),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(Box<distlock_zookeeper::ZooKeeperAddress>),
    // A store in a crate of its own: a variant here, behind the feature of its name, and a line in `parse`.
}

const KNOWN: &str = "use memory://, redis://[[user]:password@]host[:port][/db], rediss:// for TLS, \
    redis+unix:///path, redis-sentinel://host,host/primary, redis-cluster://host,host, redlock://host,host,host, \
    postgres://user:password@host/database, etcd://host:port,host:port or zookeeper://host,host/path";

impl StoreUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, LockError> {
        let Some((scheme, rest)) = url.trim().split_once("://") else {
            return Err(LockError::invalid_option(format!("url: no scheme; {KNOWN}")));
        };
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err(LockError::invalid_option(
                "url: memory:// is one store for this process, without hosts and options; write memory://",
            )),
            "postgres" | "postgresql" => Self::postgres(url.trim()),
            "etcd" => Self::etcd(url.trim()),
            "zookeeper" => Self::zookeeper(url.trim()),
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix"
            | "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster"
            | "redlock" => Self::redis(&scheme, rest),
            _ => Err(LockError::invalid_option(format!("url: unknown scheme; {KNOWN}"))),
        }
    }

    /// A quorum of the servers that these are the URLs of.
    #[cfg(feature = "redis")]
    pub(crate) fn quorum(urls: &[String]) -> Result<Self, LockError> {
        let refused = |why| LockError::invalid_option(format!("urls: {why}"));
        distlock_redis::url::RedisUrl::quorum(urls)
            .map(|url| Self::Redis(Box::new(url)))
            .map_err(refused)
    }

    #[cfg(not(feature = "redis"))]
    pub(crate) fn quorum(_urls: &[String]) -> Result<Self, LockError> {
        Self::redis("redlock", "")
    }

    #[cfg(feature = "postgres")]
    fn postgres(url: &str) -> Result<Self, LockError> {
        let parsed = distlock_postgres::PostgresUrl::parse(url);
        let refused = |why| {
            LockError::invalid_option(format!(
                "url: {why}; write postgres://user:password@host[:port]/database"
            ))
        };
        parsed.map(|url| Self::Postgres(Box::new(url))).map_err(refused)
    }

    #[cfg(not(feature = "postgres"))]
    fn postgres(_url: &str) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without Postgres; enable the feature `postgres` of distlock",
        ))
    }

    #[cfg(feature = "zookeeper")]
    fn zookeeper(url: &str) -> Result<Self, LockError> {
        let parsed = distlock_zookeeper::ZooKeeperAddress::parse(url);
        let refused = |why| {
            LockError::invalid_option(format!(
                "url: {why}; write zookeeper://[user:password@]host[:port],host[:port]/path"
            ))
        };
        parsed.map(|address| Self::ZooKeeper(Box::new(address))).map_err(refused)
    }

    #[cfg(not(feature = "zookeeper"))]
    fn zookeeper(_url: &str) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without ZooKeeper; enable the feature `zookeeper` of distlock",
        ))
    }

    #[cfg(feature = "etcd")]
    fn etcd(url: &str) -> Result<Self, LockError> {
        let parsed = distlock_etcd::EtcdAddress::parse(url);
        let refused = |why| {
            LockError::invalid_option(format!(
                "url: {why}; write etcd://[user:password@]host[:port],host[:port]"
            ))
        };
        parsed.map(Self::Etcd).map_err(refused)
    }

    #[cfg(not(feature = "etcd"))]
    fn etcd(_url: &str) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without etcd; enable the feature `etcd` of distlock",
        ))
    }

    #[cfg(feature = "redis")]
    fn redis(scheme: &str, rest: &str) -> Result<Self, LockError> {
        let parsed = distlock_redis::url::RedisUrl::parse(scheme, rest);
        let refused = |why| {
            LockError::invalid_option(format!(
                "url: {why}; write {}",
                distlock_redis::url::form(scheme)
            ))
        };
        parsed.map(|url| Self::Redis(Box::new(url))).map_err(refused)
    }

    #[cfg(not(feature = "redis"))]
    fn redis(_scheme: &str, _rest: &str) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without Redis; enable the feature `redis` of distlock",
        ))
    }
}
