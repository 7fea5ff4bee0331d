//! TLS in a program that was built without the feature `tls`.

use distlock_core::tls::TlsOptions;

use crate::error::LockError;

/// There is none.
pub(crate) enum TlsSetup {}

impl TlsSetup {
    /// Refuses it, and names the feature.
    pub(crate) fn new(_options: &TlsOptions) -> Result<Self, LockError> {
        Err(LockError::invalid_option(
            "url: this program was built without TLS; enable the feature `tls` of distlock",
        ))
    }
}
