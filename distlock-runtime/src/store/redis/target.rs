//! Where a link finds the server that it connects to.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;

use super::sentinels::{Missing, Sentinels};
use crate::store::Fault;

/// Where the server of a link is.
#[derive(Clone)]
pub(crate) enum Target {
    /// Always at this address.
    Fixed(ConnectionInfo),
    /// Whichever is the primary.
    Primary(Arc<Sentinels>),
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
            Self::Primary(sentinels) => sentinels.find().await,
        }
    }

    /// Resolves when another server has taken the place of this one, which may still answer.
    pub(super) async fn moved_from(&self, address: &Address) {
        match self {
            Self::Fixed(_) => pending().await,
            Self::Primary(sentinels) => sentinels.moved_from(address.server).await,
        }
    }

    /// A connection is missing until what this returns is dropped.
    pub(super) fn missing(&self) -> Option<Missing> {
        match self {
            Self::Fixed(_) => None,
            Self::Primary(sentinels) => Some(sentinels.missing()),
        }
    }

    /// How long a link waits at most before it tries again.
    pub(super) fn longest_pause(&self) -> Duration {
        match self {
            Self::Fixed(_) => Duration::from_millis(500),
            Self::Primary(_) => Duration::from_millis(100),
        }
    }
}
