//! Where a link finds the server that it connects to.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::store::{BackendKind, Fault};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::sentinel::sentinels::{Missing, Sentinels};
use crate::slots::Addr;

/// Where the server of a link is.
#[derive(Clone)]
pub enum Target {
    /// Always at this address.
    Fixed(ConnectionInfo),
    /// Whichever is the primary.
    Primary(Arc<Sentinels>),
    /// At this address, for as long as it is a node of its cluster that has slots.
    Member(Arc<Member>),
    /// At one node of this cluster or another.
    Any(Arc<Cluster>),
}

/// A node of a cluster.
pub(crate) struct Member {
    info: ConnectionInfo,
    addr: Addr,
    /// It has no slots any more.
    has_left: watch::Sender<bool>,
}

impl Member {
    /// The node at `addr`, where users sign in as the settings of another one say.
    pub(crate) fn new(addr: Addr, like: &ConnectionInfo) -> Arc<Self> {
        let at = ConnectionAddr::Tcp(addr.host.to_string(), addr.port);
        let info = like.clone().set_addr(at);
        Arc::new(Self { info, addr, has_left: watch::Sender::new(false) })
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// It is not asked any more: its links end.
    pub(crate) fn leave(&self) {
        self.has_left.send_replace(true);
    }

    fn is_gone(&self) -> bool {
        *self.has_left.borrow()
    }
}

/// The server that was found.
pub(crate) struct Address {
    pub(crate) info: ConnectionInfo,
    /// Another number is another server: what was sent to the one before runs there, if at all.
    pub(crate) server: u64,
}

impl Address {
    /// `host:port`, or the path of a socket.
    pub(crate) fn node(&self) -> String {
        self.info.addr().to_string()
    }
}

impl Target {
    /// `host:port`, or a path, if it is known beforehand.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Fixed(info) => Some(info.addr().to_string()),
            Self::Member(member) => Some(member.address()),
            Self::Primary(_) | Self::Any(_) => None,
        }
    }

    /// The server to connect to now.
    pub(crate) async fn find(&self) -> Result<Address, Fault> {
        match self {
            Self::Fixed(info) => Ok(Address { info: info.clone(), server: 0 }),
            Self::Primary(sentinels) => sentinels.find().await,
            Self::Any(cluster) => Ok(Address { info: cluster.some_node(), server: 0 }),
            Self::Member(member) if member.is_gone() => Err(gone()),
            Self::Member(member) => Ok(Address { info: member.info.clone(), server: 0 }),
        }
    }

    /// Resolves when another server has taken the place of this one, which may still answer.
    pub(crate) async fn moved_from(&self, address: &Address) {
        match self {
            Self::Fixed(_) | Self::Any(_) => pending().await,
            Self::Primary(sentinels) => sentinels.moved_from(address.server).await,
            Self::Member(_) => self.is_left().await,
        }
    }

    /// Resolves when there will be no server any more.
    pub(crate) async fn is_left(&self) {
        match self {
            Self::Member(member) => {
                let mut has_left = member.has_left.subscribe();
                let _ = has_left.wait_for(|gone| *gone).await;
            }
            Self::Fixed(_) | Self::Primary(_) | Self::Any(_) => pending().await,
        }
    }

    /// There will be no server any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Member(member) if member.is_gone())
    }

    /// Which node of a cluster it is.
    pub(crate) fn node(&self) -> Option<Addr> {
        match self {
            Self::Member(member) => Some(member.addr.clone()),
            Self::Fixed(_) | Self::Primary(_) | Self::Any(_) => None,
        }
    }

    /// A connection is missing until what this returns is dropped.
    pub(crate) fn missing(&self) -> Option<Missing> {
        match self {
            Self::Fixed(_) | Self::Member(_) | Self::Any(_) => None,
            Self::Primary(sentinels) => Some(sentinels.missing()),
        }
    }

    /// How long a link waits at most before it tries again.
    pub(crate) fn longest_pause(&self) -> Duration {
        match self {
            Self::Fixed(_) | Self::Member(_) | Self::Any(_) => Duration::from_millis(500),
            Self::Primary(_) => Duration::from_millis(100),
        }
    }
}

fn gone() -> Fault {
    Fault::passing(BackendKind::Unreachable, "the node has left its cluster")
}
