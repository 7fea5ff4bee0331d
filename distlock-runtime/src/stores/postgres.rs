//! Stores that URLs of Postgres name.

use std::sync::Arc;

use distlock_core::authentication::{Pem, TlsOptions};
use distlock_core::store::StoreEvents;
use distlock_postgres::{PostgresSettings, PostgresStore, PostgresTls, PostgresUrl, TlsFiles};

use super::kind::{Offers, PLAIN, StartStore, StoreKind};
use super::tls::{TlsSetup, tls_setup};
use crate::error::LockError;
use crate::namespace::Namespace;
use crate::settings::Settings;

/// Returns the store at this URL.
pub(super) fn parse(url: &str) -> Result<Box<dyn StoreKind>, LockError> {
    match PostgresUrl::parse(url) {
        Ok(url) => Ok(Box::new(Postgres(url))),
        Err(why) => Err(LockError::invalid_option(format!(
            "url: {why}; write postgres://user:password@host[:port]/database"
        ))),
    }
}

struct Postgres(PostgresUrl);

impl StoreKind for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn offers(&self) -> Offers {
        Offers { tls: Ok(()), connections: true, ..Offers::nothing("postgres://", PLAIN) }
    }

    fn prepare(
        self: Box<Self>,
        settings: &mut Settings,
        namespace: &Namespace,
        events: Arc<dyn StoreEvents>,
    ) -> Result<StartStore, LockError> {
        let Self(url) = *self;
        let config = PostgresSettings {
            tls: tls_of(&url, settings)?,
            url,
            command_timeout: settings.command_timeout,
            connect_timeout: settings.connect_timeout,
            connections: settings.connections,
            prefix: namespace.prefix().to_owned(),
            events,
        };
        Ok(Box::new(|handle, alarms| Arc::new(PostgresStore::start(config, handle, alarms))))
    }
}

/// Returns the TLS configuration that the URL asks for.
fn tls_of(url: &PostgresUrl, settings: &Settings) -> Result<Option<PostgresTls>, LockError> {
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
