//! The description of a store that is not started: its name, the settings that it supports, and the function that starts
//! it.

use std::sync::Arc;

use distlock_core::store::{Store, StoreEvents};
use distlock_core::timers::Alarms;
use tokio::runtime::Handle;

use crate::error::LockError;
use crate::namespace::Namespace;
use crate::settings::Settings;

/// A store that a URL names. It is not started, and nothing was asked of it.
pub(crate) trait StoreKind {
    /// Returns the name of the store in metrics.
    fn name(&self) -> &'static str;

    /// Returns the settings that the store supports.
    fn offers(&self) -> Offers;

    /// Checks the settings for this store and completes them; returns what starts it.
    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError>;
}

/// Starts a store. Its tasks live on that runtime, and its alarms are those of the engine.
pub(crate) type StartStore = Box<dyn FnOnce(&Handle, &Arc<Alarms>) -> Arc<dyn Store>>;

/// The settings that only some stores support.
pub(crate) struct Offers {
    /// The name of the store in errors.
    pub(super) store: &'static str,
    /// Whether the store supports TLS; if not, the reason and the fix.
    pub(super) tls: Result<(), &'static str>,
    pub(super) replicas: bool,
    pub(super) sentinels: bool,
    pub(super) connections: bool,
    pub(super) restart_guard: bool,
}

/// Why a store has no TLS, and what to do instead.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
pub(super) const PLAIN: &str = "this version speaks plain TCP with it: leave it out, and use a TLS tunnel (such as stunnel or a \
    service mesh) on both sides where the network is not trusted";

impl Offers {
    /// Returns the settings of a store that has none of these; `tls` says why, and what to do instead.
    pub(super) const fn nothing(store: &'static str, tls: &'static str) -> Self {
        Self {
            store,
            tls: Err(tls),
            replicas: false,
            sentinels: false,
            connections: false,
            restart_guard: false,
        }
    }

    /// A store of another crate.
    pub(crate) const FOREIGN: Self =
        Self::nothing("this store", "it makes its own connections: leave it out");

    /// Refuses a setting that the store would ignore, and names the fix.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), LockError> {
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
