//! Where a link finds the server that it connects to.

use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::time::Duration;

use distlock_core::store::Fault;
use redis::ConnectionInfo;

use crate::addr::Addr;

/// A future that borrows what it asks.
pub(crate) type Discovering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Finds the server of a link: one address, the primary that sentinels name, or a node of a cluster.
pub(crate) trait Discover: Send + Sync {
    /// Finds the server to connect to now.
    fn find(&self) -> Discovering<'_, Result<Address, Fault>>;

    /// Returns `host:port`, or a path, if it is known without asking.
    fn address(&self) -> Option<String> {
        None
    }

    /// Resolves when another server has taken the place of this one, which may still answer.
    fn moved_from<'a>(&'a self, _address: &'a Address) -> Discovering<'a, ()> {
        Box::pin(pending())
    }

    /// Resolves when some server is known to answer.
    fn is_known(&self) -> Discovering<'_, ()> {
        Box::pin(ready(()))
    }

    /// Resolves when there will be no server any more.
    fn until_gone(&self) -> Discovering<'_, ()> {
        Box::pin(pending())
    }

    /// Whether there will be no server any more.
    fn is_gone(&self) -> bool {
        false
    }

    /// Ends the links to this server: it is asked nothing any more.
    fn leave(&self) {}

    /// Which node of a cluster it is.
    fn node(&self) -> Option<Addr> {
        None
    }

    /// Looks for the server more often until what this returns is dropped: a connection is missing.
    fn search(&self) -> Option<Box<dyn Send>> {
        None
    }

    /// How long a link waits at most before it tries again.
    fn longest_pause(&self) -> Duration {
        Duration::from_millis(500)
    }
}

/// The server that was found.
pub(crate) struct Address {
    pub(crate) info: ConnectionInfo,
    /// Another number is another server: what was sent to the one before runs there, if at all.
    pub(crate) server: u64,
}

impl Address {
    /// Returns `host:port`, or the path of a socket.
    pub(crate) fn node(&self) -> String {
        self.info.addr().to_string()
    }
}

/// A server that is always at one address.
pub(crate) struct FixedServer(pub(crate) ConnectionInfo);

impl Discover for FixedServer {
    fn find(&self) -> Discovering<'_, Result<Address, Fault>> {
        Box::pin(ready(Ok(Address { info: self.0.clone(), server: 0 })))
    }

    fn address(&self) -> Option<String> {
        Some(self.0.addr().to_string())
    }
}
