//! Independent redis-servers that keep locks together.

use std::net::SocketAddr;

use distlock_runtime::LockManager;

use crate::conformance::{Remote, Subject};
use crate::{RedisServer, RedisServerBuilder, connect};

/// So many servers, each of which knows nothing of the others.
pub struct Quorum {
    /// They are killed, stopped and restarted by the test.
    pub nodes: Vec<RedisServer>,
    /// Which one is crashed next.
    next: usize,
}

impl Quorum {
    /// Starts them at the same time.
    pub fn of(nodes: usize) -> Self {
        Self::with(vec![RedisServer::builder(); nodes])
    }

    /// Starts servers with these settings at the same time.
    pub fn with(nodes: Vec<RedisServerBuilder>) -> Self {
        let start = |node: RedisServerBuilder| std::thread::spawn(|| node.start());
        let starting: Vec<_> = nodes.into_iter().map(start).collect();
        let started = starting.into_iter().map(|node| node.join().expect("it starts"));
        Self { nodes: started.collect(), next: 0 }
    }

    /// The URL for managers that count every node at once, however new it is.
    pub fn url(&self) -> String {
        self.url_with("guard=0s")
    }

    /// With these options.
    pub fn url_with(&self, options: &str) -> String {
        Self::url_over(self.nodes.iter().map(RedisServer::addr), options)
    }

    /// The URL of nodes as seen through these addresses.
    pub fn url_over(addrs: impl IntoIterator<Item = SocketAddr>, options: &str) -> String {
        let hosts: Vec<_> = addrs.into_iter().map(|addr| addr.to_string()).collect();
        format!("redlock://{}?{options}", hosts.join(","))
    }
}

impl Subject for Quorum {
    const PERMITS: bool = false;

    fn start() -> Self {
        Self::of(3)
    }

    async fn manager(&self) -> LockManager {
        connect(&Self::url(self)).await
    }

    fn left(&self) -> Vec<String> {
        self.nodes.iter().flat_map(RedisServer::lock_keys).collect()
    }

    fn stand_everywhere(&self, key: &str, waiters: usize) -> bool {
        let queue = format!("distlock:queue:{{{key}}}");
        self.nodes.iter().all(|node| node.cli::<usize>(&["ZCARD", &queue]) == waiters)
    }
}

impl Remote for Quorum {
    fn addr(&self) -> SocketAddr {
        self.nodes[0].addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        let others = self.nodes[1..].iter().map(RedisServer::addr);
        Self::url_over(std::iter::once(addr).chain(others), "guard=0s")
    }

    /// One node after the other, without its data.
    fn crash(&mut self) {
        self.nodes[self.next].restart_empty();
        self.next = (self.next + 1) % self.nodes.len();
    }

    /// All nodes.
    fn crash_empty(&mut self) {
        self.nodes.iter_mut().for_each(RedisServer::restart_empty);
    }

    /// A majority.
    fn freeze(&self) {
        self.nodes[..self.nodes.len() / 2 + 1].iter().for_each(RedisServer::stop);
    }

    fn thaw(&self) {
        self.nodes[..self.nodes.len() / 2 + 1].iter().for_each(RedisServer::cont);
    }
}
