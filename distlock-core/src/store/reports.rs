//! The reports of a store about itself.
//!
//! - [`Notification`]: messages and interruptions, for locks. The store calls a [`Listener`].
//! - [`StoreEvents`]: connections and servers, for observers. The store calls the manager's.
//! - [`StoreStatus`]: the present state, for the manager's status. The manager asks the store.

use std::fmt;
use std::time::Duration;

use crate::name::{LockName, StoredName};

/// A callback for the notifications of a store. It does not block.
pub type Listener = Box<dyn Fn(Notification<'_>) + Send + Sync>;

/// A message of the store or of another process. It is only a hint, which may be lost, late or forged: only the answer to
/// a command grants a lock.
#[derive(Debug, Clone, Copy)]
pub enum Notification<'a> {
    /// A lock may have been reserved for this token.
    Reserved(Message<'a>),
    /// Another process waits after this token.
    WaiterBehind(Message<'a>),
    /// An operator took the lock away from this token.
    TakenAway(Message<'a>),
    /// The connection was lost or made again. Notifications may have been missed, and places in the queue lost.
    Interrupted,
    /// The connection for some locks was lost or made again.
    InterruptedFor(LockFilter<'a>),
    /// Another process asks which locks this one holds and waits for (R15).
    Question {
        /// The prefix under which it asks, with its separator.
        prefix: &'a str,
        /// The question.
        text: &'a str,
    },
    /// Another process answers which locks it holds and waits for (R15).
    Answer(&'a str),
}

/// A predicate that selects some locks.
#[derive(Clone, Copy)]
pub struct LockFilter<'a>(pub &'a dyn Fn(&LockName) -> bool);

impl fmt::Debug for LockFilter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockFilter")
    }
}

/// The lock and the token of a message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The name of the lock in the store.
    pub stored: &'a StoredName,
    /// The token.
    pub token: &'a str,
}

/// A receiver of events of a store: the observers of the manager that uses it.
pub trait StoreEvents: fmt::Debug + Send + Sync {
    /// Begins to watch one connection, of which nothing is known yet.
    fn watch_link(&self) -> Box<dyn LinkWatch>;

    /// Reports that the server does not let this process subscribe or publish, with the server's text.
    fn denied(&self, error: String);

    /// Reports that the server evicts keys, locks among them, when its memory is full. `policy` is its `maxmemory-policy`.
    fn may_evict(&self, policy: String);

    /// Reports that a quorum grants no lock for this long, because its servers may have restarted.
    fn quorum_waits(&self, wait: Duration);
}

/// A watch over one connection. The store drops it when the connection is not wanted any more.
pub trait LinkWatch: fmt::Debug + Send {
    /// Reports that the connection to this node is up.
    fn up(&mut self, node: &str);

    /// Reports that the connection is down, because it was lost or because the last attempt failed.
    fn down(&mut self, node: &str, why: &dyn fmt::Display);
}

/// How waiters of a manager learn that they hold a lock.
///
/// `LockManager::status` returns it:
///
/// ```
/// # use distlock_core::store as distlock;
/// use distlock::WakeUps;
///
/// fn describe(wake_ups: WakeUps) -> &'static str {
///     match wake_ups {
///         WakeUps::Notified => "notified",
///         WakeUps::Polling => "polling: does the server permit subscriptions?",
///         _ => "unknown",
///     }
/// }
/// # assert_eq!(describe(WakeUps::Notified), "notified");
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeUps {
    /// They are notified: by a message on the manager's subscription, or within the process. A message may be lost, so
    /// they also poll every five seconds.
    Notified,
    /// They poll the store, at least once a second. There is no subscription: not yet, not at present, or the server does
    /// not permit one.
    Polling,
}

/// The runtime that reads and writes a manager's connections.
///
/// `LockManager::status` returns it:
///
/// ```
/// # use distlock_core::store as distlock;
/// use distlock::DrivenBy;
///
/// fn is_on_our_runtime(driven_by: DrivenBy) -> bool {
///     driven_by == DrivenBy::Callers
/// }
/// # assert!(!is_on_our_runtime(DrivenBy::Manager));
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrivenBy {
    /// The manager's own thread.
    Manager,
    /// The runtime of its callers. A connection that is used often moves there. The manager's thread takes it back if that
    /// runtime does not keep up.
    Callers,
}

/// The store's part of a manager's status.
#[derive(Debug, Clone, Copy)]
pub struct StoreStatus {
    /// Whether a connection for commands is up.
    pub connected: bool,
    /// How waiters learn that they hold a lock.
    pub wake_ups: WakeUps,
    /// The runtime that reads and writes the connections.
    pub driven_by: DrivenBy,
}

impl StoreStatus {
    /// The status of a store in this process.
    pub const LOCAL: Self =
        Self { connected: true, wake_ups: WakeUps::Notified, driven_by: DrivenBy::Manager };
}
