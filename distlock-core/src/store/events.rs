//! What a store reports about its connections without being asked.

use std::fmt;
use std::time::Duration;

/// Receives what a store reports about its connections: the observers of the manager that uses it.
pub trait StoreEvents: fmt::Debug + Send + Sync {
    /// Begins to watch one connection, of which nothing is known yet.
    fn watch_link(&self) -> Box<dyn LinkWatch>;

    /// The server does not let this process subscribe or publish; in the server's words.
    fn denied(&self, error: String);

    /// The server evicts keys when its memory is full, locks among them, by this `maxmemory-policy`.
    fn may_evict(&self, policy: String);

    /// A quorum gives no lock before this long, because its servers may have restarted.
    fn quorum_waits(&self, wait: Duration);
}

/// Tracks whether one connection is up. Dropped, the connection is no longer wanted.
pub trait LinkWatch: fmt::Debug + Send {
    /// The connection is up, to this node.
    fn up(&mut self, node: &str);

    /// The connection is down, because it was lost or because the last attempt failed.
    fn down(&mut self, node: &str, why: &dyn fmt::Display);
}
