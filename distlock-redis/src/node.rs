//! One server that keeps locks: the links to it, and the subscription there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use distlock_core::store::Listener;
use distlock_core::timers::Alarms;
use tokio::runtime::Handle;

use crate::connection::link::{LinkConfig, LinkPool};
use crate::pubsub::subscription::{Channels, Subscription};

/// One server.
pub(crate) struct Node {
    /// The number among the nodes of a manager; 0 if there is only one.
    pub(crate) number: usize,
    /// The links for commands and for renewals.
    pub(crate) pool: LinkPool,
    /// The subscription to messages to this process at this server.
    pub(crate) subscription: Arc<Subscription>,
    /// The settings of all connections to the server, which also finds it.
    link: LinkConfig,
}

impl Node {
    /// Starts the links to a node. `links` counts the links of the manager over all of its nodes.
    pub(crate) fn start(
        link: LinkConfig,
        connections: usize,
        (number, prefix, channels): (usize, String, Channels),
        links: &AtomicU64,
        handle: &Handle,
        alarms: &Arc<Alarms>,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            pool: LinkPool::start(&link, connections, links, handle, alarms),
            subscription: Arc::new(Subscription::new(prefix, channels)),
            link,
        })
    }

    /// Passes messages to this process to `listener`.
    pub(crate) fn listen(&self, process: &str, listener: Listener, handle: &Handle) {
        let links = self.pool.all().to_vec();
        self.subscription.start(process, listener, self.link.clone(), links, handle);
    }

    /// Returns the address; `None` if it has to be discovered.
    pub(crate) fn address(&self) -> Option<String> {
        self.link.target.address()
    }
}

impl Drop for Node {
    /// Ends the links, whose supervisors would otherwise reconnect forever.
    fn drop(&mut self) {
        self.link.target.leave();
    }
}
