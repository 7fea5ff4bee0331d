//! The configuration of the ZooKeeper store from its URL and the manager's settings.

use distlock_zookeeper::{ZooKeeperAddress, ZooKeeperConfig};

use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::options::Options;
use crate::settings::Settings;

/// Returns the configuration of the store at this address.
pub(super) fn zookeeper_config(
    address: ZooKeeperAddress,
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
        events: observers.events(),
    }
}
