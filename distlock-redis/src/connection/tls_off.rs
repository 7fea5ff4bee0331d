//! Without the feature `tls` no connection has it.

use std::convert::Infallible;
use std::sync::Arc;

use distlock_core::store::Fault;
use redis::{ConnectionInfo, RedisError};

/// There is none.
pub struct TlsClient(Infallible);

impl TlsClient {
    pub(crate) fn as_host(self: &Arc<Self>, _: &str) -> Arc<Self> {
        match self.0 {}
    }

    pub(crate) async fn wrap<S>(&self, _: &ConnectionInfo, _: S) -> Result<S, RedisError> {
        match self.0 {}
    }
}

/// What TLS says of an error.
pub(crate) fn refusal(_: &RedisError) -> Option<Fault> {
    None
}
