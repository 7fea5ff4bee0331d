//! What a URL of Postgres comes to.

use distlock_postgres::Address;

#[cfg(feature = "tls")]
use super::tls::tls_client;
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::store::postgres::PostgresConfig;
#[cfg(feature = "tls")]
use crate::tls::{Pem, TlsOptions};

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

/// With what makes connections with TLS, if the URL asks for it.
#[cfg(feature = "tls")]
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
    let tls = tls_client(Some(url), settings)?;
    Ok(match tls.map(|tls| tls.parts()) {
        Some((config, name)) => address.with(distlock_postgres::Tls::new(config, name)),
        None => address,
    })
}

#[cfg(not(feature = "tls"))]
fn postgres_address(address: Address, _settings: &Settings) -> Result<Address, LockError> {
    match address.encrypted() {
        None => Ok(address),
        Some(_) => Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        )),
    }
}
