//! Which store a URL names, and how a manager's store is made of it.
//!
//! Each store parses its own URLs. No error repeats a part of a URL that is not known: what stands in the wrong place may be
//! a piece of a password with a `/`, `?` or `@` in it. Errors count hosts, and name the options that there are.

#[cfg(feature = "etcd")]
mod etcd;
mod kind;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(test, feature = "redis"))]
mod tests;
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::sync::Arc;

use distlock_core::store::StoreEvents;
pub(crate) use kind::{Offers, StartStore, StoreKind};

use crate::error::LockError;
use crate::memory::MemoryStore;
use crate::namespace::Namespace;
use crate::settings::Settings;

const KNOWN: &str = "use memory://, redis://[[user]:password@]host[:port][/db], rediss:// for TLS, \
    redis+unix:///path, redis-sentinel://host,host/primary, redis-cluster://host,host, redlock://host,host,host, \
    postgres://user:password@host/database, etcd://host:port,host:port or zookeeper://host,host/path";

/// Evaluates an expression of a store if the program was built with its feature, and else refuses it.
macro_rules! built_with {
    ($feature:literal, $name:literal, $kind:expr) => {{
        #[cfg(feature = $feature)]
        let kind = $kind;
        #[cfg(not(feature = $feature))]
        let kind = Err(LockError::invalid_option(concat!(
            "url: this program was built without ",
            $name,
            "; enable the feature `",
            $feature,
            "` of distlock"
        )));
        kind
    }};
}

/// Returns the store that a URL names.
pub(crate) fn parse(url: &str) -> Result<Box<dyn StoreKind>, LockError> {
    let url = url.trim();
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(LockError::invalid_option(format!("url: no scheme; {KNOWN}")));
    };
    let scheme = scheme.to_ascii_lowercase();
    match scheme.as_str() {
        "memory" if rest.is_empty() => Ok(Box::new(Memory)),
        "memory" => Err(LockError::invalid_option(
            "url: memory:// is one store for this process, without hosts and options; write memory://",
        )),
        "postgres" | "postgresql" => built_with!("postgres", "Postgres", postgres::parse(url)),
        "etcd" => built_with!("etcd", "etcd", etcd::parse(url)),
        "zookeeper" => built_with!("zookeeper", "ZooKeeper", zookeeper::parse(url)),
        "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "valkey+unix" | "unix"
        | "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster" | "redlock" => {
            built_with!("redis", "Redis", redis::parse(&scheme, rest))
        }
        _ => Err(LockError::invalid_option(format!("url: unknown scheme; {KNOWN}"))),
    }
}

/// Returns the quorum of the servers that these are the URLs of.
pub(crate) fn quorum(urls: &[String]) -> Result<Box<dyn StoreKind>, LockError> {
    let _ = urls;
    built_with!("redis", "Redis", redis::quorum(urls))
}

/// Locks within this process.
struct Memory;

impl StoreKind for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn offers(&self) -> Offers {
        Offers::nothing("memory://", "it is no server: leave it out, or write a URL of a server")
    }

    fn prepare(
        self: Box<Self>,
        _settings: &mut Settings,
        _namespace: &Namespace,
        _events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        Ok(Box::new(|_, _| Arc::new(MemoryStore::new())))
    }
}
