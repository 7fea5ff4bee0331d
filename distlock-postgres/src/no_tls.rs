//! Stands in for `tls` if the crate is built without it. It is a file of its own so that no other file asks for
//! the feature.

use tokio_postgres::NoTls;

use crate::error::PostgresError;

/// A TLS configuration. No store has one.
pub type PostgresTls = NoTls;

/// Converts an error of a connection. No connection uses TLS.
pub(crate) fn explain(error: &tokio_postgres::Error) -> PostgresError {
    PostgresError::of(error)
}
