//! Which node a lock lives on, and the way of a command there.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::alarm::{Alarm, Alarms};
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::StoredName;
use distlock_core::store::WakeUps;
use distlock_core::store::{BackendKind, Fault, Listener, Outage};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, Line};
use crate::connection::connection::Connection;
use crate::connection::link::Link;
use crate::node::Node;
use crate::record::Keeper;
use crate::redirect::{Said, Step, Way};
use crate::slots::Slot;

const SENT_ABOUT: &str = "the nodes of the cluster send this lock's commands from one to another";

const APART: &str = "the slot of this lock is on its way to another node of the cluster";
const DOWN: &str = "the node of the cluster that has the slot of this lock does not serve it now";

/// A node has no more links for commands than this.
const MOST_CONNECTIONS: usize = 64;

/// The nodes of one manager.
pub(crate) enum Layout {
    /// All locks are on one.
    One(Arc<Node>),
    /// Each has some of the slots.
    Cluster(Arc<Cluster>),
}

/// A node: borrowed where there is one, because counting its users would cost every lock something.
pub(crate) enum Found<'a> {
    One(&'a Arc<Node>),
    Of(Arc<Node>),
}

impl Deref for Found<'_> {
    type Target = Arc<Node>;

    fn deref(&self) -> &Arc<Node> {
        match self {
            Self::One(node) => node,
            Self::Of(node) => node,
        }
    }
}

impl Layout {
    /// The node of this lock, if it is known.
    #[inline]
    pub(crate) fn node(&self, lock: &StoredName) -> Option<Found<'_>> {
        match self {
            Self::One(node) => Some(Found::One(node)),
            Self::Cluster(cluster) => cluster.owner(Slot::of(lock)).map(Found::Of),
        }
    }

    /// A number for it: renewals of locks with different ones are sent to different servers.
    pub(crate) fn part(&self, lock: &StoredName) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.owner(Slot::of(lock)).map_or(0, |node| node.number),
        }
    }

    /// The cluster, if it is one.
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// The outage, if no node can be reached.
    #[inline]
    pub(crate) fn outage(&self) -> Option<Outage> {
        match self {
            Self::One(node) => node.pool.outage(),
            Self::Cluster(cluster) => cluster.outage(),
        }
    }

    /// Over which connection goes what may free this lock.
    pub(crate) fn lane(&self, lock: &StoredName) -> usize {
        let Some(node) = self.node(lock) else { return 0 };
        node.number * MOST_CONNECTIONS + node.pool.lane(lock)
    }

    /// Passes to `listener` what is sent to the channels of this process.
    pub(crate) fn listen(&self, process: &str, listener: Listener, handle: &Handle) {
        match self {
            Self::One(node) => node.listen(process, listener, handle),
            Self::Cluster(cluster) => cluster.listen(process, listener.into()),
        }
    }

    /// How waiters learn that a lock is theirs.
    pub(crate) fn wake_ups(&self) -> WakeUps {
        match self {
            Self::One(node) => node.subscription.state(),
            Self::Cluster(cluster) => cluster.wake_ups(),
        }
    }

    /// Where the records of processes are kept.
    pub(crate) fn keeper(&self) -> Keeper {
        match self {
            Self::One(node) => Keeper::Link(node.any_link().clone()),
            Self::Cluster(cluster) => Keeper::Cluster(cluster.clone()),
        }
    }

    /// Every link for commands there is.
    pub(crate) fn all_commands(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(node) => node.pool.all_commands().to_vec(),
            Self::Cluster(cluster) => {
                let of = |node: &Arc<Node>| node.pool.all_commands().to_vec();
                cluster.all().iter().flat_map(of).collect()
            }
        }
    }
}

/// The way of one command about a lock to the node that has it.
pub(crate) struct Route<'a> {
    layout: &'a Layout,
    alarms: &'a Alarms,
    lock: &'a StoredName,
    answer_by: Moment,
    /// It was sent to another node in vain.
    detour: Option<Box<Detour>>,
}

struct Detour {
    way: Way,
    next: Step,
}

impl<'a> Route<'a> {
    #[inline]
    pub(crate) fn new(
        layout: &'a Layout,
        alarms: &'a Alarms,
        lock: &'a StoredName,
        answer_by: Moment,
    ) -> Self {
        Self { layout, alarms, lock, answer_by, detour: None }
    }

    /// The connection for everything that may create or free the lock.
    pub(crate) async fn commands(&mut self) -> Result<Connection, Fault> {
        match self.layout {
            Layout::One(node) => {
                let link = node.pool.commands(self.lock);
                match link.up() {
                    Some(live) => Ok(live),
                    // What is rare is on the heap, and not in the future of every command.
                    None => Box::pin(link.live(self.answer_by)).await,
                }
            }
            Layout::Cluster(cluster) => {
                let (slot, line) = (Slot::of(self.lock), Line::Commands(self.lock));
                match cluster.up(slot, line).filter(|_| self.detour.is_none()) {
                    Some(live) => Ok(live),
                    None => Box::pin(self.of_cluster(cluster, slot, line)).await,
                }
            }
        }
    }

    async fn of_cluster(
        &self,
        cluster: &Cluster,
        slot: Slot,
        line: Line<'_>,
    ) -> Result<Connection, Fault> {
        let Some(detour) = &self.detour else {
            return cluster.reach(slot, line, self.answer_by).await;
        };
        let mut live = match &detour.next {
            Step::Owner(pause) => {
                self.rest(*pause).await;
                cluster.reach(slot, line, self.answer_by).await?
            }
            Step::Asking(to) => {
                let node = cluster.node_at(to);
                let mut live = node.pool.commands(self.lock).live(self.answer_by).await?;
                live.asking = true;
                live
            }
            Step::Nowhere => return Err(Fault::passing(BackendKind::Other, SENT_ABOUT)),
        };
        live.again = true;
        Ok(live)
    }

    async fn rest(&self, pause: Duration) {
        if !pause.is_zero() {
            let until = Clock::Boottime.now().after(pause).min(self.answer_by);
            Alarm::at(self.alarms, Clock::Boottime, until).await;
        }
    }

    /// Whether the slot was on its way, key by key, when the command was last refused.
    pub(crate) fn is_apart(&self) -> bool {
        self.detour.as_ref().is_some_and(|detour| detour.way.is_apart())
    }

    /// Whether the command is to be sent again: a node of a cluster has said that it did not carry it out, and
    /// there is time left.
    #[inline]
    pub(crate) fn goes_on<T>(
        &mut self,
        live: &mut Connection,
        answer: &mut Result<T, Fault>,
    ) -> bool {
        let (Layout::Cluster(cluster), Err(fault)) = (self.layout, answer) else { return false };
        let Some(said) = live.said.take() else {
            if matches!(fault.kind, BackendKind::Unreachable | BackendKind::TimedOut) {
                cluster.doubt();
            }
            return false;
        };
        match &said {
            Said::Moved { slot, to } => cluster.moved(*slot, to),
            Said::Down => cluster.doubt(),
            Said::Ask { .. } | Said::Apart => {}
        }
        let passing = match &said {
            Said::Moved { .. } | Said::Ask { .. } => SENT_ABOUT,
            Said::Apart => APART,
            Said::Down => DOWN,
        };
        *fault = Fault::passing(BackendKind::Other, passing);
        let mut way = self.detour.take().map_or_else(Way::default, |detour| detour.way);
        let next = way.next(said);
        let goes_on = next != Step::Nowhere && Clock::Boottime.now() < self.answer_by;
        self.detour = Some(Box::new(Detour { way, next }));
        goes_on
    }
}

/// Sends a command about a lock to the node that has it; in a cluster, where it may be another one by then, again and
/// again until one carries it out, or the time is over.
macro_rules! routed {
    ($server:expr, $lock:expr, $answer_by:expr, |$live:ident| $sent:expr) => {{
        let mut route = $server.route($lock.stored(), $answer_by);
        loop {
            let mut connection = route.commands().await?;
            let $live = &mut connection;
            let mut answer = $sent.await;
            if !route.goes_on(&mut connection, &mut answer) {
                break answer;
            }
        }
    }};
}
pub(crate) use routed;
