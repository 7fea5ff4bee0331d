//! Creates the settings of the Postgres store from a URL and the builder.

use distlock_core::tls::{Pem, TlsOptions};
use distlock_postgres::{PostgresSettings, PostgresTls, PostgresUrl, TlsFiles};

use super::tls::tls_setup;
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::settings::Settings;
use crate::tls::TlsSetup;

pub(super) fn postgres_settings(
    url: PostgresUrl,
    settings: &Settings,
    namespace: &Namespace,
    observers: &Observers,
) -> Result<PostgresSettings, LockError> {
    Ok(PostgresSettings {
        tls: postgres_tls(&url, settings)?,
        url,
        command_timeout: settings.command_timeout,
        connect_timeout: settings.connect_timeout,
        connections: settings.connections,
        prefix: namespace.prefix().to_owned(),
        events: observers.events(),
    })
}

/// Returns the TLS configuration that the URL asks for.
fn postgres_tls(url: &PostgresUrl, settings: &Settings) -> Result<Option<PostgresTls>, LockError> {
    let Some(TlsFiles { roots, certificate, key }) = url.tls_files().cloned() else {
        return match settings.tls {
            None => Ok(None),
            Some(_) => Err(LockError::invalid_option(
                "tls: the URL is one without TLS; write postgres://…?sslmode=require",
            )),
        };
    };
    let client = certificate.zip(key).map(|(cert, key)| (Pem::File(cert), Pem::File(key)));
    let of_url = TlsOptions { ca: roots.map(Pem::File), client, ..TlsOptions::default() };
    Ok(tls_setup(Some(of_url), settings)?.map(connector))
}

fn connector(tls: TlsSetup) -> PostgresTls {
    #[cfg(feature = "tls")]
    return PostgresTls::new(tls.config, tls.server_name);
    #[cfg(not(feature = "tls"))]
    match tls {}
}
