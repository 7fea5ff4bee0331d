//! Whether TLS is wanted, by the URL and by the builder.

use distlock_core::tls::TlsOptions;

use crate::error::LockError;
use crate::settings::Settings;
use crate::tls::TlsSetup;

/// Options of TLS say that it is wanted: without it in the URL all would go in plain text.
pub(super) fn check_tls(encrypted: bool, settings: &Settings) -> Result<(), LockError> {
    if settings.tls.is_some() && !encrypted {
        return Err(LockError::invalid_option(
            "tls: the URL is one without TLS; write rediss:// (or `tls=true`)",
        ));
    }
    Ok(())
}

/// Returns the TLS that the URL asks for, with what the builder says of it.
pub(super) fn tls_setup(
    url: Option<TlsOptions>,
    settings: &Settings,
) -> Result<Option<TlsSetup>, LockError> {
    let options = match (url, &settings.tls) {
        (None, _) => return Ok(None),
        (Some(url), Some(_)) if url != TlsOptions::default() => {
            Err("tls: given twice, in the URL and on the builder; say all of it in one place")
        }
        (Some(_), Some(options)) => Ok(options.clone()),
        (Some(url), None) => Ok(url),
    };
    TlsSetup::new(&options.map_err(LockError::invalid_option)?).map(Some)
}
