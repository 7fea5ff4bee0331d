//! The stores that the tests are run on.

use std::future::Future;
use std::net::SocketAddr;

use distlock_runtime::LockManager;

use crate::{RedisServer, connect};

/// A place that keeps locks, of the test's own.
pub trait Subject: Sized + Send + Sync + 'static {
    /// Whether it has permits.
    const PERMITS: bool = true;

    /// Starts it, empty.
    fn start() -> Self;

    /// A manager of it that is ready: a process of its own to all the others, if the store has any.
    fn manager(&self) -> impl Future<Output = LockManager>;

    /// What is stored of locks, their holders and their waiters.
    fn left(&self) -> Vec<String>;

    /// Whether this number of waiters stands in the queue of the lock at every server. The answer of a majority is all
    /// that a waiter needs; its commands to the other servers may still be on their way.
    fn stand_everywhere(&self, _key: &str, _waiters: usize) -> bool {
        true
    }
}

/// A store in a process of its own.
pub trait Remote: Subject {
    /// Where it listens.
    fn addr(&self) -> SocketAddr;

    /// The URL for managers, as seen through another address.
    fn url_at(&self, addr: SocketAddr) -> String;

    /// Kills it and starts it again, with whatever data it has then.
    fn crash(&mut self);

    /// Kills it and starts it again without any data.
    fn crash_empty(&mut self);

    /// Has it stand still: connections stay open, and nothing is answered.
    fn freeze(&self);

    /// Has it go on.
    fn thaw(&self);

    /// The URL for managers.
    fn url(&self) -> String {
        self.url_at(self.addr())
    }
}

/// The store of one manager, in memory.
pub struct InMemory(LockManager);

impl Subject for InMemory {
    fn start() -> Self {
        Self(LockManager::in_memory())
    }

    async fn manager(&self) -> LockManager {
        self.0.clone()
    }

    fn left(&self) -> Vec<String> {
        let status = self.0.status();
        let left = [("held", status.held), ("waiting", status.waiting)];
        let left = left.into_iter().filter(|(_, n)| *n > 0);
        left.map(|(what, n)| format!("{n} {what}")).collect()
    }
}

impl Subject for RedisServer {
    fn start() -> Self {
        Self::start()
    }

    async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }

    fn left(&self) -> Vec<String> {
        self.lock_keys()
    }
}

impl Remote for RedisServer {
    fn addr(&self) -> SocketAddr {
        self.addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        self.url_at(addr)
    }

    /// Its data is gone, unless it is [durable](crate::RedisServerBuilder::durable).
    fn crash(&mut self) {
        self.restart();
    }

    fn crash_empty(&mut self) {
        self.restart_empty();
    }

    fn freeze(&self) {
        self.stop();
    }

    fn thaw(&self) {
        self.cont();
    }
}
