//! What tools ask a store that no lock needs: the listing, the walk and the plain commands of an administrator.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::{BackendKind, Fault, Held, Holder, Op};
use crate::clock::Moment;
use crate::name::LockName;

/// A command as it is sent to the store: its name and arguments.
pub type StoreCommand = Vec<Vec<u8>>;

/// What the store answers to one command.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq)]
pub enum StoreReply {
    /// There is nothing.
    Nil,
    /// An integer.
    Number(i64),
    /// A text; it need not be UTF-8.
    Text(Vec<u8>),
    /// A list; maps are lists in which each key stands in front of its value.
    List(Vec<StoreReply>),
    /// The server refused this command; its words, without keys and other arguments.
    Error(String),
}

/// A step of a walk through the names of locks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// Names in the store; a lock may be met more than once, and need not be held any more.
    pub names: Vec<String>,
    /// Where the walk goes on; `None` at its end.
    pub next: Option<String>,
    /// A node whose locks are not seen in this walk, and why.
    pub missed: Option<(String, String)>,
}

/// A lock that is held, at a glance.
#[derive(Debug)]
pub struct Glance {
    /// At least one, unless something is amiss.
    pub holders: Vec<Holder>,
    /// How many places of its queue are taken.
    pub waiting: u64,
    /// Something else has written under the name of the lock or of its queue: what stands there.
    pub amiss: Option<String>,
}

/// What operators need of a store. A store that cannot do it keeps the defaults.
pub trait StoreAdmin {
    /// The servers that take commands, by their addresses; `None` for one of which that is not known.
    fn nodes(&self) -> Vec<Option<String>> {
        Vec::new()
    }

    /// Sends commands as they are, to the server of that address or to any; a store that takes none says so.
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

    /// The next names of locks under a prefix, from a cursor on; it begins with an empty one.
    fn walk(self: Arc<Self>, _prefix: String, _cursor: String, _answer_by: Moment) -> Op<Walked> {
        refused("locks of this kind cannot be listed")
    }

    /// The holder of each of these; `None` where it is no quicker than to ask for one after the other.
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

impl From<Held> for Glance {
    fn from(held: Held) -> Self {
        Self { waiting: held.queue.len() as u64, holders: held.holders, amiss: None }
    }
}

impl Glance {
    /// Until the last lease ends; `None` if one has no end.
    pub fn remaining(&self) -> Option<Duration> {
        super::remaining(&self.holders)
    }
}
