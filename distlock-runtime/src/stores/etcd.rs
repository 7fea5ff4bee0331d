//! Stores that URLs of etcd name.

use std::sync::Arc;

use distlock_core::store::StoreEvents;
use distlock_etcd::{EtcdAddress, EtcdConfig, EtcdStore};

use super::kind::{Offers, PLAIN, StartStore, StoreKind};
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::settings::Settings;

/// Returns the store at this URL.
pub(super) fn parse(url: &str) -> Result<Box<dyn StoreKind>, LockError> {
    match EtcdAddress::parse(url) {
        Ok(address) => Ok(Box::new(Etcd(address))),
        Err(why) => Err(LockError::invalid_option(format!(
            "url: {why}; write etcd://[user:password@]host[:port],host[:port]"
        ))),
    }
}

struct Etcd(EtcdAddress);

impl StoreKind for Etcd {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn offers(&self) -> Offers {
        Offers::nothing("etcd://", PLAIN)
    }

    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        let config = EtcdConfig {
            address: self.0,
            command_timeout: settings.command_timeout,
            connect_timeout: settings.connect_timeout,
            fence: namespace.fence(),
            prefix: namespace.prefix().to_owned(),
            events,
        };
        Ok(Box::new(|handle, alarms| Arc::new(EtcdStore::start(config, handle, alarms))))
    }
}
