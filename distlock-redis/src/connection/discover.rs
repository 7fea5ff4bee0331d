//! Finds the server that a link connects to.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::time::Duration;

use distlock_core::store::Fault;
use redis::ConnectionInfo;

use crate::addr::Addr;

/// A future that borrows the object it asks.
pub(crate) type Discovering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Finds the server of a link: a fixed address, the primary that sentinels name, or a node of a cluster.
pub(crate) trait Discover: Send + Sync {
    /// Finds the server to connect to now.
    fn find(&self) -> Discovering<'_, Result<Address, Fault>>;

    /// Returns `host:port`, or a path, if it is known without asking.
    fn address(&self) -> Option<String> {
        None
    }

    /// Resolves when another server has replaced this one, which may still reply.
    fn moved_from<'a>(&'a self, _address: &'a Address) -> Discovering<'a, ()> {
        Box::pin(pending())
    }

    /// Resolves when some server is known to answer.
    fn is_known(&self) -> Discovering<'_, ()> {
        Box::pin(ready(()))
    }

    /// Resolves when the server is gone for good.
    fn until_gone(&self) -> Discovering<'_, ()> {
        Box::pin(pending())
    }

    /// Whether the server is gone for good.
    fn is_gone(&self) -> bool {
        false
    }

    /// Ends the links to this server.
    fn leave(&self) {}

    /// Returns the address of the node; `None` without a cluster.
    fn node(&self) -> Option<Addr> {
        None
    }

    /// Searches more often until the returned value is dropped, because a connection is missing.
    fn search(&self) -> Option<Box<dyn Send>> {
        None
    }

    /// Returns the longest pause between two attempts of a link to connect.
    fn longest_pause(&self) -> Duration {
        Duration::from_millis(500)
    }
}

/// The address of a server that was found.
pub(crate) struct Address {
    pub(crate) info: ConnectionInfo,
    /// The number of the server. Commands that were sent to a server with another number run there, if at all.
    pub(crate) server: u64,
}

impl Address {
    /// Returns `host:port`, or the path of a socket.
    pub(crate) fn node(&self) -> String {
        self.info.addr().to_string()
    }
}

/// A server with a fixed address.
pub(crate) struct FixedServer(pub(crate) ConnectionInfo);

impl Discover for FixedServer {
    fn find(&self) -> Discovering<'_, Result<Address, Fault>> {
        Box::pin(ready(Ok(Address { info: self.0.clone(), server: 0 })))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.addr().to_string())
    }
}
