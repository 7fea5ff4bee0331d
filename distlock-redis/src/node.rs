//! One server that keeps locks: the connections to it, and the subscription there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_core::alarm::Alarms;
use distlock_core::name::StoredName;
use distlock_core::store::{Listener, Outage};
use tokio::runtime::Handle;

use crate::connection::link::{Link, LinkConfig};
use crate::pubsub::subscription::{Channels, Subscription};

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
        let links = self.pool.all_commands().to_vec();
        self.subscription.start(process, listener, self.link.clone(), links, handle);
    }

    /// Where it is; `None` where that is asked of others, or it is reached by a file.
    pub(crate) fn address(&self) -> Option<String> {
        self.link.target.address()
    }

    /// A link for what concerns no lock.
    pub(crate) fn any_link(&self) -> &Arc<Link> {
        &self.pool.all_commands()[0]
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.link.target.leave();
    }
}

/// Links to one server: for commands, and one for renewals, which acquires must not starve.
pub(crate) struct ConnectionPool {
    commands: Vec<Arc<Link>>,
    renewals: Arc<Link>,
}

impl ConnectionPool {
    /// `links` counts the links of the manager.
    pub(crate) fn start(
        config: &LinkConfig,
        connections: usize,
        links: &AtomicU64,
        handle: &Handle,
        alarms: &Arc<Alarms>,
    ) -> Self {
        let start =
            |config| Link::start(config, handle, alarms, links.fetch_add(1, Ordering::Relaxed));
        // Only the engine sends renewals.
        let renewals = LinkConfig { by_callers: false, ..config.clone() };
        Self {
            commands: (0..connections).map(|_| start(config.clone())).collect(),
            renewals: start(renewals),
        }
    }

    /// The link for everything that may create or free this lock.
    #[inline]
    pub(crate) fn commands(&self, lock: &StoredName) -> &Arc<Link> {
        &self.commands[self.lane(lock)]
    }

    /// The number of that link.
    #[inline]
    pub(crate) fn lane(&self, lock: &StoredName) -> usize {
        lock.part(self.commands.len())
    }

    /// The link for renewals. They only extend a lease they find, so their order does not matter.
    pub(crate) fn renewals(&self) -> &Arc<Link> {
        &self.renewals
    }

    /// Whether a link for commands is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.commands.iter().any(|link| link.is_connected())
    }

    /// The outage, if no link for commands is connected.
    #[inline]
    pub(crate) fn outage(&self) -> Option<Outage> {
        // Nearly every call that asks finds none.
        match self.commands.iter().all(|link| link.down_since().is_none()) {
            true => None,
            false => self.outage_of_all(),
        }
    }

    fn outage_of_all(&self) -> Option<Outage> {
        let since = self.commands.iter().filter_map(|link| link.down_since()).min()?;
        if self.is_connected() {
            return None;
        }
        let fault = self.commands.iter().find_map(|link| link.last_error())?;
        Some(Outage { since, fault })
    }

    /// Every link for commands.
    pub(crate) fn all_commands(&self) -> &[Arc<Link>] {
        &self.commands
    }
}
