//! What a store reports without being asked.

use std::fmt;

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
