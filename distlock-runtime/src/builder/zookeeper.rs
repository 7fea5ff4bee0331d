//! What a URL of ZooKeeper comes to.

use distlock_zookeeper::Address;

use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::options::Options;
use crate::settings::Settings;
use crate::store::zookeeper::ZooKeeperConfig;

pub(super) fn zookeeper_config(
    address: Address,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> ZooKeeperConfig {
    ZooKeeperConfig {
        address,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        ttl: settings.options.ttl.unwrap_or(Options::TTL),
        prefix: namespace.prefix().to_owned(),
        observers: observers.clone(),
    }
}
