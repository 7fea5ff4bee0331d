//! What a URL of etcd comes to.

use distlock_etcd::Address;

use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::etcd::EtcdConfig;

pub(super) fn etcd_config(
    address: Address,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> EtcdConfig {
    EtcdConfig {
        address,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        fence: namespace.fence(),
        prefix: namespace.prefix().to_owned(),
        observers: observers.clone(),
    }
}
