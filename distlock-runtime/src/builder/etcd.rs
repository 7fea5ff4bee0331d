//! The settings of the store that a URL of etcd names.

use distlock_etcd::{EtcdAddress, EtcdConfig};

use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;

pub(super) fn etcd_config(
    address: EtcdAddress,
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
        events: observers.events(),
    }
}
