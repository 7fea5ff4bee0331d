//! What all connections of a table share, and how each is made.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use crate::address::Address;
use crate::fault::Fault;
use crate::fence::Fence;

/// What all connections of a table share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) connect_timeout: Duration,
    pub(crate) fence: Fence,
    /// Connections are numbered as they are made.
    pub(crate) numbers: AtomicU64,
}

pub(crate) type Connection =
    tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>;

impl Shared {
    pub(crate) async fn connect(&self) -> Result<(Client, Connection), Fault> {
        self.address.config.connect(NoTls).await.map_err(|error| Fault::of(&error))
    }
}
