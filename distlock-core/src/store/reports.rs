//! What a store reports without being asked.

use std::fmt;
use std::time::Duration;

use crate::name::{LockName, StoredName};

/// What a store calls with its notifications.
pub type Listener = Box<dyn Fn(Notification<'_>) + Send + Sync>;

/// What a store reports. Hints, no more: a lock is held only by the answer to a command.
#[derive(Debug, Clone, Copy)]
pub enum Notification<'a> {
    /// A lock may have been reserved for this token.
    Reserved(Message<'a>),
    /// Another process stands behind this token.
    WaiterBehind(Message<'a>),
    /// An operator took the lock away from this token.
    TakenAway(Message<'a>),
    /// The connection was lost or made again: notifications may have been missed, and places in the queue.
    Interrupted,
    /// The same for some locks only.
    InterruptedFor(Which<'a>),
    /// A process asks, under this prefix, what this one holds and waits for (R15).
    Question { prefix: &'a str, text: &'a str },
    /// A process answers what it holds and waits for (R15).
    Answer(&'a str),
}

/// Tells some locks from others.
#[derive(Clone, Copy)]
pub struct Which<'a>(pub &'a dyn Fn(&LockName) -> bool);

impl fmt::Debug for Which<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Which")
    }
}

/// A lock and a token in the store's own words.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub stored: &'a StoredName,
    pub token: &'a str,
}

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

/// How waiters of a manager learn that a lock is theirs.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUps {
    /// They are notified: by a message on the manager's subscription, or within the process. A message
    /// may be lost, so they also poll every five seconds.
    Notified,
    /// There is no subscription: not yet, not at present, or the server does not permit one. Waiters
    /// poll the store, at least once a second.
    Polling,
}

/// Whose runtime reads and writes a manager's connections.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivenBy {
    /// The manager's own thread.
    Manager,
    /// The runtime of its callers: a connection that is used often moves there. The manager's thread takes
    /// it back if that runtime does not keep up.
    Callers,
}

/// The store's part of a manager's status.
#[derive(Debug, Clone, Copy)]
pub struct StoreStatus {
    /// Whether it is there.
    pub connected: bool,
    /// How waiters learn that a lock is theirs.
    pub wake_ups: WakeUps,
    /// What moves its bytes.
    pub driven_by: DrivenBy,
}

impl StoreStatus {
    /// Of a store in this process.
    pub const LOCAL: Self =
        Self { connected: true, wake_ups: WakeUps::Notified, driven_by: DrivenBy::Manager };
}
