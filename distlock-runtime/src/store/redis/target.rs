//! Where a link finds the server that it connects to.

use std::future::pending;

use redis::ConnectionInfo;

use crate::store::Fault;

/// Where the server of a link is.
#[derive(Clone)]
pub(crate) enum Target {
    /// Always at this address.
    Fixed(ConnectionInfo),
}

/// The server that was found.
pub(super) struct Address {
    pub(super) info: ConnectionInfo,
    /// Another number is another server: what was sent to the one before runs there, if at all.
    pub(super) server: u64,
}

impl Target {
    /// The server to connect to now.
    pub(super) async fn find(&self) -> Result<Address, Fault> {
        match self {
            Self::Fixed(info) => Ok(Address { info: info.clone(), server: 0 }),
        }
    }

    /// Resolves when another server has taken the place of this one, which may still answer.
    pub(super) async fn moved_from(&self, _address: &Address) {
        match self {
            Self::Fixed(_) => pending().await,
        }
    }
}
