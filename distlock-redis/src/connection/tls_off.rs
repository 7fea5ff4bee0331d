//! Replaces `tls.rs` without the feature `tls`: no connection uses TLS.

use std::convert::Infallible;
use std::sync::Arc;

use distlock_core::store::Fault;
use redis::{ConnectionInfo, RedisError};

/// A TLS client, of which there is none.
pub struct TlsClient(Infallible);

impl TlsClient {
    pub(crate) fn as_host(self: &Arc<Self>, _: &str) -> Arc<Self> {
        match self.0 {}
    }

    pub(crate) async fn wrap<S>(&self, _: &ConnectionInfo, _: S) -> Result<S, RedisError> {
        match self.0 {}
    }
}

/// Explains an error of TLS, of which there is none.
pub(crate) fn refusal(_: &RedisError) -> Option<Fault> {
    None
}
