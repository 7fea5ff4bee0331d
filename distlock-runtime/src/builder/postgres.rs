//! What a URL of Postgres comes to.

use distlock_core::tls::{Pem, TlsOptions};
use distlock_postgres::Address;

use super::tls::tls_setup;
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::postgres::PostgresConfig;
use crate::tls::TlsSetup;

pub(super) fn postgres_config(
    address: Address,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<PostgresConfig, LockError> {
    Ok(PostgresConfig {
        address: postgres_address(address, settings)?,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        connections: settings.connections,
        prefix: namespace.prefix().to_owned(),
        observers: observers.clone(),
    })
}

/// With the TLS that the URL asks for.
fn postgres_address(address: Address, settings: &Settings) -> Result<Address, LockError> {
    let Some(files) = address.encrypted() else {
        return match settings.tls {
            None => Ok(address),
            Some(_) => Err(LockError::invalid_option(
                "tls: the URL is one without TLS; write postgres://…?sslmode=require",
            )),
        };
    };
    let distlock_postgres::Files { roots, certificate, key } = files.clone();
    let client = certificate.zip(key).map(|(cert, key)| (Pem::File(cert), Pem::File(key)));
    let url = TlsOptions { ca: roots.map(Pem::File), client, ..TlsOptions::default() };
    Ok(match tls_setup(Some(url), settings)? {
        Some(tls) => encrypted(address, tls),
        None => address,
    })
}

fn encrypted(address: Address, tls: TlsSetup) -> Address {
    #[cfg(feature = "tls")]
    return address.with(distlock_postgres::Tls::new(tls.config, tls.server_name));
    #[cfg(not(feature = "tls"))]
    match tls {}
}
