//! What makes connections with TLS, by a URL and what the builder says.

use std::sync::Arc;

use crate::error::LockError;
use crate::settings::Settings;
use crate::store::redis::TlsClient;
use crate::tls::TlsOptions;

/// Options of TLS say that it is wanted: without it in the URL all would go in plain text.
pub(super) fn check_tls(encrypted: bool, settings: &Settings) -> Result<(), LockError> {
    #[cfg(feature = "tls")]
    if settings.tls.is_some() && !encrypted {
        return Err(LockError::invalid_option(
            "tls: the URL is one without TLS; write rediss:// (or `tls=true`)",
        ));
    }
    let _ = (encrypted, settings);
    Ok(())
}

/// What makes connections with TLS, if the URL asks for it.
#[cfg(feature = "tls")]
pub(super) fn tls_client(
    url: Option<TlsOptions>,
    settings: &Settings,
) -> Result<Option<Arc<TlsClient>>, LockError> {
    let options = match (url, &settings.tls) {
        (None, _) => return Ok(None),
        (Some(url), Some(_)) if url != TlsOptions::default() => {
            Err("tls: given twice, in the URL and on the builder; say all of it in one place")
        }
        (Some(_), Some(options)) => Ok(options.clone()),
        (Some(url), None) => Ok(url),
    };
    TlsClient::new(&options.map_err(LockError::invalid_option)?).map(Some)
}

#[cfg(not(feature = "tls"))]
pub(super) fn tls_client(
    url: Option<TlsOptions>,
    _settings: &Settings,
) -> Result<Option<Arc<TlsClient>>, LockError> {
    match url {
        None => Ok(None),
        Some(_) => Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        )),
    }
}
