//! A Redis Cluster: its nodes, the map of its slots, and how both are discovered.
//!
//! [`Cluster`] gives callers connections to the node that has a slot. A background task reads the map of slots with
//! `CLUSTER SLOTS` from whichever node replies first. It does so on first use, when a node reports or shows that the
//! map has changed, and every minute. The map may be outdated. Then the node that gets a command says so, and
//! [`redirect`](crate::redirect) decides what to do next.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll::{Pending, Ready};
use std::time::Duration;

use distlock_core::back_off::jittered;
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::StoredName;
use distlock_core::select::until;
use distlock_core::store::{BackendKind, Fault, Notification, Outage, WakeUps};
use distlock_core::timers::{Alarm, Alarms};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::addr::Addr;
use crate::connection::connect::connect;
use crate::connection::discover::{Address, Discover, Discovering};
use crate::connection::error::{KNOWS_NO_CLUSTER, NO_CLUSTER, fault, unexpected};
use crate::connection::handshake::why_not;
use crate::connection::link::{Link, LinkConfig};
use crate::connection::live::ConnectionHandle;
use crate::connection::server_info::Mode;
use crate::connection::tls::TlsClient;
use crate::node::Node;
use crate::pubsub::subscription::{Channels, Subscription};
use crate::slots::{Slot, SlotMap};

/// The shortest time between two reads of the map.
const BETWEEN_REFRESHES: Duration = Duration::from_millis(100);
const NO_NODE: &str = "no node of the cluster has the slot of this lock";

/// How often the map is read if nothing else requests it.
const REFRESH_EVERY: Duration = Duration::from_secs(60);
/// How long one node may take to report the map.
const ANSWER: Duration = Duration::from_millis(500);
const NO_SLOTS: &str = "the cluster has no slots yet";

/// The settings that all nodes of a cluster share.
pub(crate) struct ClusterConfig {
    /// The settings of links. `target` is replaced for each node.
    pub(crate) link: LinkConfig,
    pub(crate) connections: usize,
    /// The prefix of all names in the store.
    pub(crate) prefix: String,
    pub(crate) handle: Handle,
    pub(crate) alarms: Arc<Alarms>,
}

/// A cluster.
pub(crate) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    config: ClusterConfig,
    topology: watch::Sender<Arc<Topology>>,
    /// Notified when the map must be read again.
    wanted: Notify,
    /// Counters that number links and nodes.
    links: AtomicU64,
    nodes: AtomicUsize,
    /// Selects the node that is asked first the next time.
    turn: AtomicUsize,
    /// Whether messages are sent within a shard, which needs Redis 7.
    pub(crate) sharded: Arc<AtomicBool>,
    listener: OnceLock<NodeListener>,
    /// The subscription to messages to this process that are not about a lock. It may be at any node.
    own_subscription: Arc<Subscription>,
}

/// The slots and nodes, as nodes have reported them.
pub(crate) struct Topology {
    pub(crate) slots: SlotMap,
    /// The nodes of the map, in its order.
    nodes: Vec<Arc<Node>>,
    /// Since when no node replies, and why.
    pub(crate) outage: Option<(Moment, Fault)>,
    /// How often the map was requested.
    pub(crate) asked: u64,
}

impl Topology {
    fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        self.node(self.slots.owner(slot)?)
    }

    fn node(&self, addr: &Addr) -> Option<&Arc<Node>> {
        let at = self.slots.nodes().iter().position(|known| known == addr)?;
        self.nodes.get(at)
    }
}

/// The receiver of messages to this process.
struct NodeListener {
    process: String,
    listener: Arc<dyn Fn(Notification<'_>) + Send + Sync>,
}

/// The kind of a link to a node.
#[derive(Clone, Copy)]
pub(crate) enum LinkKind<'a> {
    /// For commands that may create or free this lock.
    Commands(&'a StoredName),
    Renewals,
    /// For commands that are not about a lock.
    Any,
}

impl LinkKind<'_> {
    fn of(self, node: &Node) -> &Arc<Link> {
        match self {
            Self::Commands(lock) => node.pool.commands(lock),
            Self::Renewals => node.pool.renewals(),
            Self::Any => node.pool.any(),
        }
    }
}

impl Cluster {
    pub(crate) fn start(seeds: Vec<ConnectionInfo>, config: ClusterConfig) -> Arc<Self> {
        let nothing =
            Topology { slots: SlotMap::empty(), nodes: Vec::new(), outage: None, asked: 0 };
        let handle = config.handle.clone();
        let own_subscription = Subscription::new(config.prefix.clone(), Channels::OfPrefixes);
        let cluster = Arc::new(Self {
            seeds,
            config,
            topology: watch::Sender::new(Arc::new(nothing)),
            wanted: Notify::new(),
            links: AtomicU64::new(0),
            nodes: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            sharded: Arc::new(AtomicBool::new(true)),
            listener: OnceLock::new(),
            own_subscription: Arc::new(own_subscription),
        });
        handle.spawn(supervise(cluster.clone()));
        cluster
    }

    /// Passes messages to this process to `listener`.
    pub(crate) fn listen(
        self: &Arc<Self>,
        process: &str,
        listener: Arc<dyn Fn(Notification<'_>) + Send + Sync>,
    ) {
        let ears = NodeListener { process: process.to_owned(), listener: listener.clone() };
        if self.listener.set(ears).is_err() {
            return;
        }
        self.all().iter().for_each(|node| self.listen_at(node));
        let target: Arc<dyn Discover> = Arc::new(AnyNode(self.clone()));
        let link = LinkConfig { target, ..self.config.link.clone() };
        let listener = Box::new(move |said: Notification<'_>| listener(said));
        self.own_subscription.start(process, listener, link, Vec::new(), &self.config.handle);
    }

    /// Returns how waiters learn that they have the lock.
    pub(crate) fn wake_ups(&self) -> WakeUps {
        match self.sharded.load(Ordering::Relaxed) {
            true => self.own_subscription.state(),
            false => WakeUps::Polling,
        }
    }

    fn listen_at(&self, node: &Node) {
        if let Some(NodeListener { process, listener }) = self.listener.get() {
            let listener = listener.clone();
            let listener = Box::new(move |said: Notification<'_>| listener(said));
            node.listen(process, listener, &self.config.handle);
        }
    }

    /// Requests the map, because it may be outdated.
    pub(crate) fn request_refresh(&self) {
        self.wanted.notify_one();
    }

    /// Returns the node that has a slot, if it is known.
    pub(crate) fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.topology.borrow().owner(slot).cloned()
    }

    /// Returns all known nodes.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.topology.borrow().nodes.clone()
    }

    /// Returns the outage, if there are links and none is connected.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let known = self.topology.borrow().clone();
        if known.nodes.is_empty() {
            let (since, fault) = known.outage.clone()?;
            return Some(Outage { since, fault });
        }
        if known.nodes.iter().any(|node| node.pool.is_connected()) {
            return None;
        }
        let outages = known.nodes.iter().filter_map(|node| node.pool.outage());
        outages.min_by_key(|outage| outage.since)
    }

    /// Notes that another node has a slot.
    pub(crate) fn moved(&self, slot: Slot, to: &Addr) {
        if self.topology.borrow().slots.owner(slot) != Some(to) {
            self.change(|slots| slots.moved(slot, to.clone()));
        }
        self.request_refresh();
    }

    /// Returns the node at an address, and adds it if it is new.
    pub(crate) fn node_at(&self, addr: &Addr) -> Arc<Node> {
        loop {
            if let Some(node) = self.topology.borrow().node(addr) {
                return node.clone();
            }
            self.change(|slots| slots.add_node(addr.clone()));
        }
    }

    fn change(&self, change: impl FnOnce(&mut SlotMap)) {
        self.topology.send_modify(|known| {
            let mut slots = known.slots.clone();
            change(&mut slots);
            *known = Arc::new(self.topology_of(slots, known, known.outage.clone()));
        });
    }

    /// Builds the topology for a map. Nodes that exist already are kept.
    fn topology_of(
        &self,
        slots: SlotMap,
        before: &Topology,
        outage: Option<(Moment, Fault)>,
    ) -> Topology {
        let node = |addr: &Addr| match before.node(addr) {
            Some(node) => node.clone(),
            None => self.new_node(addr.clone()),
        };
        let nodes = slots.nodes().iter().map(node).collect();
        Topology { slots, nodes, outage, asked: before.asked }
    }

    fn new_node(&self, addr: Addr) -> Arc<Node> {
        let ClusterConfig { link, connections, prefix, handle, alarms } = &self.config;
        let target: Arc<dyn Discover> = Arc::new(Member::new(addr.clone(), &self.seeds[0]));
        let link = LinkConfig { target, tls: self.tls_for(&addr), ..link.clone() };
        let number = self.nodes.fetch_add(1, Ordering::Relaxed) + 1;
        let shard = Channels::OfShard { sharded: self.sharded.clone() };
        let named = (number, prefix.clone(), shard);
        let node = Node::start(link, *connections, named, &self.links, handle, alarms);
        self.listen_at(&node);
        node
    }

    /// Returns the TLS client for a node. If the cluster names the node by its IP address, the certificate must be for
    /// the host name under which the cluster is known.
    fn tls_for(&self, node: &Addr) -> Option<Arc<TlsClient>> {
        let tls = self.config.link.tls.as_ref()?;
        let named = self.seeds.iter().map(Addr::of).find(|seed| !seed.is_ip());
        match named.filter(|_| node.is_ip()) {
            Some(seed) => Some(tls.as_host(&seed.host)),
            None => Some(tls.clone()),
        }
    }

    /// Connects to the node that has a slot. Waits until a connection is up.
    pub(crate) async fn reach(
        &self,
        slot: Slot,
        kind: LinkKind<'_>,
        answer_by: Moment,
    ) -> Result<ConnectionHandle, Fault> {
        if let Some(connection) = self.up(slot, kind) {
            return Ok(connection);
        }
        Box::pin(self.reach_later(Some(slot), kind, answer_by)).await
    }

    /// Returns a connection to the node that has a slot, if one is up now.
    pub(crate) fn up(&self, slot: Slot, kind: LinkKind<'_>) -> Option<ConnectionHandle> {
        kind.of(self.topology.borrow().owner(slot)?).up()
    }

    /// Connects to any node, for commands that are not about a lock.
    pub(crate) async fn reach_any(&self, answer_by: Moment) -> Result<ConnectionHandle, Fault> {
        let up = self.all().iter().find_map(|node| node.pool.any().up());
        match up {
            Some(connection) => Ok(connection),
            None => Box::pin(self.reach_later(None, LinkKind::Any, answer_by)).await,
        }
    }

    async fn reach_later(
        &self,
        slot: Option<Slot>,
        kind: LinkKind<'_>,
        answer_by: Moment,
    ) -> Result<ConnectionHandle, Fault> {
        let mut changes = self.topology.subscribe();
        loop {
            let known = changes.borrow_and_update().clone();
            self.request_refresh();
            let now = Clock::Boottime.now();
            let alarm = Alarm::at(
                &self.config.alarms,
                Clock::Boottime,
                answer_by.min(now.after(BETWEEN_REFRESHES)),
            );
            let node = match slot {
                Some(slot) => known.owner(slot).cloned(),
                None => self.next(&known.nodes).cloned(),
            };
            let Some(node) = node else {
                match &known.outage {
                    Some((_, fault)) if !fault.passing || now >= answer_by => {
                        return Err(fault.clone());
                    }
                    None if now >= answer_by => {
                        return Err(Fault::passing(BackendKind::Unreachable, NO_NODE));
                    }
                    _ => {}
                }
                until(changes.changed(), alarm).await;
                continue;
            };
            let elsewhere = async {
                while changes.changed().await.is_ok() {
                    let known = changes.borrow();
                    let owner = slot.and_then(|slot| known.owner(slot));
                    if owner.is_none_or(|owner| !Arc::ptr_eq(owner, &node)) {
                        return;
                    }
                }
            };
            let connection = kind.of(&node).connection(answer_by);
            match until(until(connection, elsewhere), alarm).await {
                Some(Some(connection)) => return connection,
                Some(None) => {}
                None if Clock::Boottime.now() >= answer_by => {
                    let fault = kind.of(&node).last_error();
                    return Err(fault.unwrap_or_else(Fault::timed_out));
                }
                None => {}
            }
        }
    }

    /// Waits until the map is known. Fails with the first error if it cannot be read.
    pub(crate) async fn first(&self, answer_by: Moment) -> Result<(), Fault> {
        self.request_refresh();
        let mut changes = self.topology.subscribe();
        let alarm = Alarm::at(&self.config.alarms, Clock::Boottime, answer_by);
        let is_asked = changes.wait_for(|known| known.asked > 0 || !known.nodes.is_empty());
        until(async { is_asked.await.map(drop) }, alarm).await;
        let known = self.topology.borrow();
        match &known.outage {
            _ if !known.nodes.is_empty() => Ok(()),
            Some((_, fault)) => Err(fault.clone()),
            None => Err(Fault::timed_out()),
        }
    }

    /// Resolves when nodes are known.
    pub(crate) async fn is_known(&self) {
        let mut changes = self.topology.subscribe();
        let _ = changes.wait_for(|known| !known.nodes.is_empty()).await;
    }

    /// Returns one item after the other.
    fn next<'n, T>(&self, of: &'n [T]) -> Option<&'n T> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        of.get(turn.checked_rem(of.len())?)
    }

    /// Returns how to connect to some node, another one each time.
    fn some_node(&self) -> ConnectionInfo {
        let addrs = self.topology.borrow().slots.nodes().to_vec();
        match self.next(&addrs) {
            Some(addr) => addr.info(&self.seeds[0]),
            None => self.next(&self.seeds).unwrap_or(&self.seeds[0]).clone(),
        }
    }

    async fn refresh(&self) {
        let read = self.ask_around().await;
        self.topology.send_modify(|known| {
            let asked = known.asked + 1;
            let (mut known_now, outage) = match read {
                Ok(slots) => (self.topology_of(slots, known, None), None),
                Err(fault) => {
                    let since = known.outage.as_ref().map(|(since, _)| *since);
                    let since = since.unwrap_or_else(|| Clock::Boottime.now());
                    let slots = known.slots.clone();
                    (self.topology_of(slots, known, None), Some((since, fault)))
                }
            };
            known_now.outage = outage;
            known_now.asked = asked;
            *known = Arc::new(known_now);
        });
    }

    /// Asks one node after the other, two at a time, beginning with another one each time.
    async fn ask_around(&self) -> Result<SlotMap, Fault> {
        let mut nodes: Vec<_> = {
            let known = self.topology.borrow();
            known.slots.nodes().iter().map(|addr| addr.info(&self.seeds[0])).collect()
        };
        if !nodes.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(first);
        }
        for seed in &self.seeds {
            if !nodes.iter().any(|info| info.addr() == seed.addr()) {
                nodes.push(seed.clone());
            }
        }
        let mut failed = Fault::timed_out();
        for pair in nodes.chunks(2) {
            let read = match pair {
                [one, other] => first_of(self.ask(one), self.ask(other)).await,
                _ => self.ask(&pair[0]).await,
            };
            match read {
                Ok(slots) => return Ok(slots),
                Err(fault) => failed = fault,
            }
        }
        Err(failed)
    }

    /// Asks one node for the map.
    async fn ask(&self, info: &ConnectionInfo) -> Result<SlotMap, Fault> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let tls = self.tls_for(&Addr::of(info));
        let limit = ANSWER.min(self.config.link.connect_timeout);
        let asked = async {
            let connected = connect(info, tls.as_deref(), config).await;
            let (mut connection, driver) = match connected {
                Ok(connected) => connected,
                Err(error) => {
                    let why = why_not(&error, info, tls.as_deref(), Mode::Cluster).await;
                    return Err(why.at(&info.addr().to_string()));
                }
            };
            let mut slots = redis::cmd("CLUSTER");
            slots.arg("SLOTS");
            let answer = until(slots.query_async::<Value>(&mut connection), driver).await;
            answer
                .unwrap_or_else(|| Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()))
                .map_err(|error| refused(&error))
        };
        let late = |_| Fault::timed_out().at(&info.addr().to_string());
        let answer = timeout(limit, asked).await.map_err(late)??;
        let map = SlotMap::parse(&answer, &Addr::of(info)).ok_or_else(unexpected)?;
        match map.nodes() {
            [] => Err(Fault::passing(BackendKind::Other, NO_SLOTS)),
            _ => Ok(map),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.all().len()).finish_non_exhaustive()
    }
}

/// Reads the map whenever it is requested, until the engine's runtime is dropped.
async fn supervise(cluster: Arc<Cluster>) {
    cluster.wanted.notified().await;
    loop {
        cluster.refresh().await;
        tokio::time::sleep(BETWEEN_REFRESHES).await;
        until(cluster.wanted.notified(), tokio::time::sleep(jittered(REFRESH_EVERY))).await;
    }
}

/// Returns the first success of two futures, or the error of the second.
async fn first_of<T, E>(
    one: impl Future<Output = Result<T, E>>,
    other: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut failed = false;
    let first = poll_fn(|cx| {
        if !failed {
            match one.as_mut().poll(cx) {
                Ready(Ok(done)) => return Ready(Some(Ok(done))),
                Ready(Err(_)) => failed = true,
                Pending => {}
            }
        }
        match other.as_mut().poll(cx) {
            Ready(Ok(done)) => Ready(Some(Ok(done))),
            Ready(Err(error)) if failed => Ready(Some(Err(error))),
            Ready(Err(_)) => Ready(None),
            Pending => Pending,
        }
    })
    .await;
    match first {
        Some(done) => done,
        None => one.await,
    }
}

/// Returns the fault for the reply of a server that is not a node of a cluster.
fn refused(error: &RedisError) -> Fault {
    let said = error.to_string();
    if said.contains("cluster support disabled") {
        return Fault::lasting(BackendKind::Other, NO_CLUSTER);
    }
    // A sentinel replies like this, for example. Servers differ in their quotation marks.
    match said.contains("unknown command") && said.contains("CLUSTER") {
        true => Fault::lasting(BackendKind::Other, KNOWS_NO_CLUSTER),
        false => fault(error),
    }
}

/// One node of a cluster, as long as it has slots.
struct Member {
    info: ConnectionInfo,
    addr: Addr,
    /// Whether the node has lost all of its slots.
    has_left: watch::Sender<bool>,
}

impl Member {
    /// Returns the node at `addr`, which accepts the same user and password as `like`.
    fn new(addr: Addr, like: &ConnectionInfo) -> Self {
        Self { info: addr.info(like), addr, has_left: watch::Sender::new(false) }
    }
}

impl Discover for Member {
    fn find(&self) -> Discovering<'_, Result<Address, Fault>> {
        Box::pin(ready(match self.is_gone() {
            false => Ok(Address { info: self.info.clone(), server: 0 }),
            true => {
                let why = "the node has left its cluster";
                Err(Fault::passing(BackendKind::Unreachable, why))
            }
        }))
    }

    fn address(&self) -> Option<String> {
        Some(self.info.addr().to_string())
    }

    fn moved_from<'a>(&'a self, _address: &'a Address) -> Discovering<'a, ()> {
        self.until_gone()
    }

    fn until_gone(&self) -> Discovering<'_, ()> {
        Box::pin(async {
            let mut has_left = self.has_left.subscribe();
            let _ = has_left.wait_for(|gone| *gone).await;
        })
    }

    fn is_gone(&self) -> bool {
        *self.has_left.borrow()
    }

    fn leave(&self) {
        self.has_left.send_replace(true);
    }

    fn node(&self) -> Option<Addr> {
        Some(self.addr.clone())
    }
}

/// Any node of the cluster.
struct AnyNode(Arc<Cluster>);

impl Discover for AnyNode {
    fn find(&self) -> Discovering<'_, Result<Address, Fault>> {
        Box::pin(ready(Ok(Address { info: self.0.some_node(), server: 0 })))
    }

    fn is_known(&self) -> Discovering<'_, ()> {
        Box::pin(self.0.is_known())
    }
}
