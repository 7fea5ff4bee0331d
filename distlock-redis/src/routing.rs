//! The node that has a lock, and the route of a command to that node.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::{LockName, StoredName};
use distlock_core::store::{BackendKind, Fault, Listener, Outage, WakeUps};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, LinkKind};
use crate::connection::link::Link;
use crate::connection::live::ConnectionHandle;
use crate::node::Node;
use crate::redirect::{Redirect, RedirectHistory, RedirectTarget};
use crate::slots::Slot;

const TOO_MANY_REDIRECTS: &str =
    "the nodes of the cluster send this lock's commands from one to another";

const MIGRATING: &str = "the slot of this lock is on its way to another node of the cluster";
const UNAVAILABLE: &str =
    "the node of the cluster that has the slot of this lock does not serve it now";

/// The most links for commands to one node.
const MOST_CONNECTIONS: usize = 64;

/// The nodes of one manager.
pub(crate) enum Routing {
    /// One node has all locks.
    One(Arc<Node>),
    /// Each node has the locks of some slots.
    Cluster(Arc<Cluster>),
}

impl Routing {
    /// Calls `use_node` with the node that has this lock, if it is known.
    #[inline]
    pub(crate) fn with_node<T>(
        &self,
        lock: &StoredName,
        use_node: impl FnOnce(&Node) -> T,
    ) -> Option<T> {
        match self {
            Self::One(node) => Some(use_node(node)),
            Self::Cluster(cluster) => cluster.owner(Slot::of(lock)).map(|node| use_node(&node)),
        }
    }

    /// Whether a process that reserves this lock for a token of ours can notify us.
    pub(crate) fn is_notified(&self, lock: &LockName) -> bool {
        let covers = |node: &Node| node.subscription.covers(lock);
        self.with_node(lock.stored(), covers).unwrap_or(false)
    }

    /// Returns a number for the node that has a lock. Renewals of locks with different numbers are sent to different
    /// servers.
    pub(crate) fn part(&self, lock: &StoredName) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.owner(Slot::of(lock)).map_or(0, |node| node.number),
        }
    }

    /// Returns the route of a command to the node that has this lock.
    #[inline]
    pub(crate) fn route<'a>(
        &'a self,
        alarms: &'a Alarms,
        lock: &'a StoredName,
        answer_by: Moment,
    ) -> Route<'a> {
        Route { routing: self, alarms, lock, answer_by, detour: None }
    }

    /// Returns the cluster, if it is one.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// Returns the outage, if no node can be reached.
    #[inline]
    pub(crate) fn outage(&self) -> Option<Outage> {
        match self {
            Self::One(node) => node.pool.outage(),
            Self::Cluster(cluster) => cluster.outage(),
        }
    }

    /// Returns the number of the connection over which commands that may free this lock are sent.
    pub(crate) fn lane(&self, lock: &StoredName) -> usize {
        let lane = |node: &Node| node.number * MOST_CONNECTIONS + node.pool.lane(lock);
        self.with_node(lock, lane).unwrap_or(0)
    }

    /// Passes messages to this process to `listener`.
    pub(crate) fn listen(&self, process: &str, listener: Listener, handle: &Handle) {
        match self {
            Self::One(node) => node.listen(process, listener, handle),
            Self::Cluster(cluster) => cluster.listen(process, listener.into()),
        }
    }

    /// Returns how waiters learn that they have the lock.
    pub(crate) fn wake_ups(&self) -> WakeUps {
        match self {
            Self::One(node) => node.subscription.state(),
            Self::Cluster(cluster) => cluster.wake_ups(),
        }
    }

    /// Returns all links for commands.
    pub(crate) fn all_commands(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(node) => node.pool.all().to_vec(),
            Self::Cluster(cluster) => {
                let of = |node: &Arc<Node>| node.pool.all().to_vec();
                cluster.all().iter().flat_map(of).collect()
            }
        }
    }
}

/// The route of one command about a lock to the node that has it.
pub(crate) struct Route<'a> {
    routing: &'a Routing,
    alarms: &'a Alarms,
    lock: &'a StoredName,
    answer_by: Moment,
    /// Present once another node has refused the command.
    detour: Option<Box<Detour>>,
}

/// The redirections of a command.
struct Detour {
    history: RedirectHistory,
    next: RedirectTarget,
}

impl<'a> Route<'a> {
    /// Connects to the node for a command that may create or free the lock.
    pub(crate) async fn commands(&mut self) -> Result<ConnectionHandle, Fault> {
        match self.routing {
            Routing::One(node) => {
                let link = node.pool.commands(self.lock);
                match link.up() {
                    Some(connection) => Ok(connection),
                    // Rare cases are on the heap, and not in the future of every command.
                    None => Box::pin(link.connection(self.answer_by)).await,
                }
            }
            Routing::Cluster(cluster) => {
                let (slot, kind) = (Slot::of(self.lock), LinkKind::Commands(self.lock));
                match cluster.up(slot, kind).filter(|_| self.detour.is_none()) {
                    Some(connection) => Ok(connection),
                    None => Box::pin(self.of_cluster(cluster, slot, kind)).await,
                }
            }
        }
    }

    async fn of_cluster(
        &self,
        cluster: &Cluster,
        slot: Slot,
        kind: LinkKind<'_>,
    ) -> Result<ConnectionHandle, Fault> {
        let Some(detour) = &self.detour else {
            return cluster.reach(slot, kind, self.answer_by).await;
        };
        let mut connection = match &detour.next {
            RedirectTarget::Owner(pause) => {
                self.rest(*pause).await;
                cluster.reach(slot, kind, self.answer_by).await?
            }
            RedirectTarget::Asking(to) => {
                let node = cluster.node_at(to);
                let mut connection =
                    node.pool.commands(self.lock).connection(self.answer_by).await?;
                connection.asking = true;
                connection
            }
            RedirectTarget::GiveUp => {
                return Err(Fault::passing(BackendKind::Other, TOO_MANY_REDIRECTS));
            }
        };
        connection.resent = true;
        Ok(connection)
    }

    async fn rest(&self, pause: Duration) {
        if !pause.is_zero() {
            let until = Clock::Boottime.now().after(pause).min(self.answer_by);
            Alarm::at(self.alarms, Clock::Boottime, until).await;
        }
    }

    /// Whether the slot was being migrated when the command was last refused.
    pub(crate) fn is_migrating(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.history.is_migrating())
    }

    /// Whether to send the command again: a node of a cluster has said that it did not run the command, and there is
    /// time left.
    #[inline]
    pub(crate) fn should_retry<T>(
        &mut self,
        connection: &mut ConnectionHandle,
        answer: &mut Result<T, Fault>,
    ) -> bool {
        let (Routing::Cluster(cluster), Err(fault)) = (self.routing, answer) else { return false };
        let Some(redirect) = connection.redirect.take() else {
            if matches!(fault.kind, BackendKind::Unreachable | BackendKind::TimedOut) {
                cluster.request_refresh();
            }
            return false;
        };
        match &redirect {
            Redirect::Moved { slot, to } => cluster.moved(*slot, to),
            Redirect::Unavailable => cluster.request_refresh(),
            Redirect::Ask { .. } | Redirect::TryAgain => {}
        }
        let passing = match &redirect {
            Redirect::Moved { .. } | Redirect::Ask { .. } => TOO_MANY_REDIRECTS,
            Redirect::TryAgain => MIGRATING,
            Redirect::Unavailable => UNAVAILABLE,
        };
        *fault = Fault::passing(BackendKind::Other, passing);
        let mut history =
            self.detour.take().map_or_else(RedirectHistory::default, |detour| detour.history);
        let next = history.next(redirect);
        let should_retry = next != RedirectTarget::GiveUp && Clock::Boottime.now() < self.answer_by;
        self.detour = Some(Box::new(Detour { history, next }));
        should_retry
    }
}

/// Sends a command about a lock to the node that has it. In a cluster that may change meanwhile, so the command is sent
/// again until a node runs it or the time is over.
macro_rules! routed {
    ($server:expr, $lock:expr, $answer_by:expr, |$connection:ident| $sent:expr) => {{
        let mut route = $server.routing.route(&$server.alarms, $lock.stored(), $answer_by);
        loop {
            let mut reached = route.commands().await?;
            let $connection = &mut reached;
            let mut answer = $sent.await;
            if !route.should_retry(&mut reached, &mut answer) {
                break answer;
            }
        }
    }};
}
pub(crate) use routed;
