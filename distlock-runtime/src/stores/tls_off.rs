//! TLS in a program that was built without the feature `tls`: a URL that asks for it is refused.

use distlock_core::authentication::TlsOptions;

use crate::error::LockError;
use crate::settings::Settings;

/// There is none.
pub(super) enum TlsSetup {}

/// Refuses TLS, and names the feature.
pub(super) fn tls_setup(
    url: Option<TlsOptions>,
    _settings: &Settings,
) -> Result<Option<TlsSetup>, LockError> {
    match url {
        None => Ok(None),
        Some(_) => Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        )),
    }
}
