//! One server that keeps locks: the connections to it, and the subscription there.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::runtime::Handle;

use crate::connection::discover::Target;
use crate::connection::link::{Link, LinkConfig};
use crate::pool::ConnectionPool;
use crate::pubsub::subscription::{Channels, Reached, Subscription};
use crate::sentinel::sentinels::Sentinels;
use distlock_core::alarm::Alarms;
use distlock_core::store::Listener;

/// One server.
pub(crate) struct Node {
    /// Of the nodes of a manager; 0 where there is one.
    pub(crate) number: usize,
    pub(crate) pool: ConnectionPool,
    pub(crate) subscription: Arc<Subscription>,
    link: LinkConfig,
}

impl Node {
    /// `links` counts the links of the manager, over all of its nodes.
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
            pool: ConnectionPool::start(&link, connections, links, handle, alarms),
            subscription: Arc::new(Subscription::new(prefix, channels)),
            link,
        })
    }

    /// Passes to `listener` what is sent to the channels of this process.
    pub(crate) fn listen(&self, process: &str, listener: Listener, handle: &Handle) {
        let links = Reached::Links(self.pool.all_commands().to_vec());
        self.subscription.start(process, listener, self.link.clone(), links, handle);
    }

    /// Where it is; `None` where that is asked of others, or it is reached by a file.
    pub(crate) fn address(&self) -> Option<String> {
        self.link.target.address()
    }

    /// Returns the sentinels that name this node, if it is a primary behind sentinels.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.link.target {
            Target::Primary(sentinels) => Some(sentinels),
            Target::Fixed(_) | Target::Member(_) | Target::Any(_) => None,
        }
    }

    /// A link for what concerns no lock.
    pub(crate) fn any_link(&self) -> &Arc<Link> {
        &self.pool.all_commands()[0]
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Target::Member(member) = &self.link.target {
            member.leave();
        }
    }
}
