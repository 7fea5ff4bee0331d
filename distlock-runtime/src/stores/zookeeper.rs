//! Stores that URLs of ZooKeeper name.

use std::sync::Arc;

use distlock_core::store::StoreEvents;
use distlock_zookeeper::{ZooKeeperAddress, ZooKeeperConfig, ZooKeeperStore};

use super::kind::{Offers, PLAIN, StartStore, StoreKind};
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::options::LockOptions;
use crate::settings::Settings;

/// Returns the store at this URL.
pub(super) fn parse(url: &str) -> Result<Box<dyn StoreKind>, LockError> {
    match ZooKeeperAddress::parse(url) {
        Ok(address) => Ok(Box::new(ZooKeeper(address))),
        Err(why) => Err(LockError::invalid_option(format!(
            "url: {why}; write zookeeper://[user:password@]host[:port],host[:port]/path"
        ))),
    }
}

struct ZooKeeper(ZooKeeperAddress);

impl StoreKind for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn offers(&self) -> Offers {
        Offers::nothing("zookeeper://", PLAIN)
    }

    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        let config = ZooKeeperConfig {
            address: self.0,
            command_timeout: settings.command_timeout,
            connect_timeout: settings.connect_timeout,
            ttl: settings.options.ttl.unwrap_or(LockOptions::TTL),
            prefix: namespace.prefix().to_owned(),
            events,
        };
        Ok(Box::new(|handle, alarms| Arc::new(ZooKeeperStore::start(config, handle, alarms))))
    }
}
