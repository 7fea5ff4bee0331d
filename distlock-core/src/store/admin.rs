//! The commands of operators, which no lock needs: listing locks, a glance at their holders, and plain commands.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::fault::{BackendKind, Fault};
use super::operation::{Held, Holder, Op};
use crate::clock::Moment;
use crate::name::LockName;

/// A plain command for the store: its name and arguments.
pub type StoreCommand = Vec<Vec<u8>>;

/// The store's reply to one plain command.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq)]
pub enum StoreReply {
    /// No value.
    Nil,
    /// An integer.
    Number(i64),
    /// A text, which need not be UTF-8.
    Text(Vec<u8>),
    /// A list. A map is a list in which each key comes before its value.
    List(Vec<StoreReply>),
    /// The server refused this command. The text is the server's, without keys and other arguments.
    Error(String),
}

/// The operations of operators. A store keeps the defaults of those that it cannot do. The rules of
/// [`Store`](super::Store) about deadlines, cancellation and faults hold here, too. No operation but [`ask`](Self::ask)
/// changes anything.
pub trait StoreAdmin {
    /// Returns the addresses of the servers that take commands; `None` for a server whose address is not known.
    fn nodes(&self) -> Vec<Option<String>> {
        Vec::new()
    }

    /// Sends plain commands in their order, each once, to the server of that address, or to any server. Returns one reply
    /// for each command. The default fails.
    fn ask(
        self: Arc<Self>,
        _node: Option<String>,
        _commands: Vec<StoreCommand>,
        _answer_by: Moment,
    ) -> Op<Vec<StoreReply>> {
        refused("this store takes no commands as they are")
    }

    /// Returns each sentinel's answers about the primary and about a failover (`SENTINEL MASTER`, `SENTINEL
    /// CKQUORUM`), by the sentinel's address, or a single error. Empty if no sentinels name the primary.
    fn sentinels(self: Arc<Self>) -> Op<Vec<(String, Vec<StoreReply>)>> {
        Box::pin(ready(Ok(Vec::new())))
    }

    /// Returns the next names of locks under a prefix, from a cursor on. The first cursor is empty. The default fails.
    fn walk(self: Arc<Self>, _prefix: String, _cursor: String, _answer_by: Moment) -> Op<Walked> {
        refused("locks of this kind cannot be listed")
    }

    /// Returns the holders of each of these locks, in their order; `None` for a free lock. The default returns no
    /// operation: the caller then [inspects](super::Store::inspect) one lock after the other.
    fn glance(
        self: Arc<Self>,
        _locks: &[Arc<LockName>],
        _answer_by: Moment,
    ) -> Option<Op<Vec<Option<Glance>>>> {
        None
    }
}

fn refused<T: Send + 'static>(why: &'static str) -> Op<T> {
    Box::pin(ready(Err(Fault::lasting(BackendKind::Other, why))))
}

/// One step of a walk through the names of locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Names in the store. A walk may return a lock more than once, and the lock need not be held any more.
    pub names: Vec<String>,
    /// The cursor of the next step; `None` at the end of the walk.
    pub next: Option<String>,
    /// A node whose locks are missing in this walk, and why.
    pub missed: Option<(String, String)>,
}

/// A short description of a lock that is held.
#[derive(Debug)]
pub struct Glance {
    /// The holders, at least one unless [`amiss`](Self::amiss) is set.
    pub holders: Vec<Holder>,
    /// How many tokens stand in its queue.
    pub waiting: u64,
    /// A description of the value, if a program other than distlock has written under the name of the lock or of its queue.
    pub amiss: Option<String>,
}

impl From<Held> for Glance {
    fn from(held: Held) -> Self {
        Self { waiting: held.queue.len() as u64, holders: held.holders, amiss: None }
    }
}

impl Glance {
    /// Returns how long it takes until the last lease ends; `None` if one has no end.
    pub fn remaining(&self) -> Option<Duration> {
        Holder::last_remaining(&self.holders)
    }
}
