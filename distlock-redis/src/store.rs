//! The store on one Redis or Valkey deployment: a server, a primary behind Sentinel, or a cluster.
//!
//! [`RedisStore`] implements the core's traits. Each operation routes a command of [`commands`](crate::commands) to the
//! node that has the lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::admin::{Glance, StoreAdmin, StoreCommand, StoreReply, Walked};
use distlock_core::store::owner::Owner;
use distlock_core::store::record::ProcessRecord;
use distlock_core::store::{
    Answer, Attempt, DrivenBy, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Listener,
    Op, OpOn, Outage, ProcessDirectory, ProcessMessage, Records, Renewal, Renewed, Store,
    StoreEvents, StoreStatus, WakeUps,
};
use distlock_core::timers::Alarms;
use redis::ConnectionInfo;
use tokio::runtime::Handle;

use crate::cluster::{Cluster, ClusterConfig};
use crate::commands::fence::{FENCES_PER_DRAW, Fences};
use crate::commands::first_contact::first_contact;
use crate::commands::queue::Queue;
use crate::commands::raise_counters::raise_counters;
use crate::commands::release::Releases;
use crate::commands::renew::Renewals;
use crate::commands::run_script::Exchanges;
use crate::commands::server::{ScriptTrials, Server};
use crate::commands::{acquire, admin, inspect};
use crate::connection::discover::{Discover, FixedServer};
use crate::connection::link::{Link, LinkConfig};
use crate::connection::replicas::Replicas;
use crate::connection::server_info::{ExpectedServer, Mode};
use crate::connection::tls::TlsClient;
use crate::node::Node;
use crate::pubsub::messages;
use crate::pubsub::subscription::Channels;
use crate::record::RedisRecordKeeper;
use crate::routing::{Routing, routed};
use crate::script::Wakes;
use crate::sentinel::sentinels::{PrimaryServer, Sentinels};

/// The servers that keep the locks.
pub enum RedisServers {
    /// The server at this address.
    Single(ConnectionInfo),
    /// The server that sentinels name as the primary.
    Primary(Arc<Sentinels>),
    /// The cluster that these nodes belong to.
    Cluster(Vec<ConnectionInfo>),
}

/// The settings of a [`RedisStore`].
pub struct RedisConfig {
    /// The servers that keep the locks.
    pub servers: RedisServers,
    /// Makes connections with TLS; `None` for plain text.
    pub tls: Option<Arc<TlsClient>>,
    /// The replicas that must confirm grants and renewals.
    pub replicas: Option<Replicas>,
    /// How long to wait for a reply.
    pub command_timeout: Duration,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// The number of connections for commands to each server.
    pub connections: usize,
    /// Whether tasks on callers' runtimes may drive connections.
    pub io_on_caller_runtime: bool,
    /// The key of the counter of fencing tokens.
    pub fence: String,
    /// The prefix of all names in the store, with its separator.
    pub prefix: String,
    /// Receives reports on the servers.
    pub events: Arc<dyn StoreEvents>,
}

impl RedisConfig {
    /// Returns the address of the server, or of one of several: `host:port`, or the path of a socket.
    pub(crate) fn address(&self) -> String {
        match &self.servers {
            RedisServers::Single(info) => Some(info.addr().to_string()),
            RedisServers::Primary(_) => None,
            RedisServers::Cluster(nodes) => nodes.first().map(|info| info.addr().to_string()),
        }
        .unwrap_or_default()
    }
}

/// A store of locks on one Redis deployment.
pub struct RedisStore {
    pub(crate) server: Server,
    pub(crate) queue: Queue,
    renewals: Renewals,
    releases: Releases,
    exchanges: Exchanges,
    /// The sentinels that name the primary, if there are any.
    pub(crate) sentinels: Option<Arc<Sentinels>>,
    /// The link for commands that are not about a lock; `None` for a cluster.
    pub(crate) link: Option<Arc<Link>>,
    handle: Handle,
}

impl RedisStore {
    /// Starts a store, which connects to its servers on first use. `handle` is of the engine's runtime.
    pub fn start(config: RedisConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let (command_timeout, replicas) = (config.command_timeout, config.replicas);
        let prefix = config.prefix.clone();
        let sentinels = match &config.servers {
            RedisServers::Primary(sentinels) => Some(sentinels.clone()),
            RedisServers::Single(_) | RedisServers::Cluster(_) => None,
        };
        let (routing, fences, wakes) = start_nodes(config, handle, alarms);
        let link = match &routing {
            Routing::One(node) => Some(node.pool.any().clone()),
            Routing::Cluster(_) => None,
        };
        let server = Server {
            record: Arc::new(ProcessRecord::new(prefix)),
            records: RedisRecordKeeper::new(&routing, command_timeout),
            routing,
            fences,
            alarms: alarms.clone(),
            command_timeout,
            replicas,
            trials: ScriptTrials::default(),
        };
        Self {
            server,
            queue: Queue::new(wakes),
            renewals: Renewals::new(),
            releases: Releases::new(wakes),
            exchanges: Exchanges::new(wakes),
            sentinels,
            link,
            handle: handle.clone(),
        }
    }
}

/// Starts the links to the nodes. Returns them, their fence counters, and how scripts wake waiters there.
fn start_nodes(
    config: RedisConfig,
    handle: &Handle,
    alarms: &Arc<Alarms>,
) -> (Routing, Fences, Wakes) {
    let RedisConfig { servers, tls, replicas, command_timeout, connect_timeout, .. } = config;
    let RedisConfig { connections, io_on_caller_runtime, fence, prefix, events, .. } = config;
    let mode = match servers {
        RedisServers::Single(_) | RedisServers::Primary(_) => Mode::Standalone,
        RedisServers::Cluster(_) => Mode::Cluster,
    };
    let link = |target: Arc<dyn Discover>| LinkConfig {
        target,
        tls,
        expects: ExpectedServer { mode, replicas: replicas.is_some() },
        command_timeout,
        connect_timeout,
        by_callers: io_on_caller_runtime,
        events,
    };
    let target: Arc<dyn Discover> = match servers {
        RedisServers::Single(info) => Arc::new(FixedServer(info)),
        RedisServers::Primary(sentinels) => Arc::new(PrimaryServer(sentinels)),
        RedisServers::Cluster(seeds) => {
            let link = link(Arc::new(FixedServer(seeds[0].clone())));
            let (handle, alarms) = (handle.clone(), alarms.clone());
            let cluster = ClusterConfig { link, connections, prefix, handle, alarms };
            let routing = Routing::Cluster(Cluster::start(seeds, cluster));
            return (routing, Fences::of_slots(fence), Wakes::Shards);
        }
    };
    let named = (0, prefix, Channels::OfPrefixes);
    let node = Node::start(link(target), connections, named, &AtomicU64::new(0), handle, alarms);
    (Routing::One(node), Fences::new(fence), Wakes::Channels)
}

impl Store for RedisStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { first_contact(&self.server, answer_by).await })
    }

    fn is_notified(&self, lock: &LockName) -> bool {
        self.server.routing.is_notified(lock)
    }

    fn hears_answers(&self, lock: &LockName) -> bool {
        let of_all = |cluster: &Arc<Cluster>| cluster.wake_ups() == WakeUps::Notified;
        self.server.routing.cluster().map_or_else(|| self.is_notified(lock), of_all)
    }

    fn outage(&self) -> Option<Outage> {
        self.server.routing.outage()
    }

    fn listen(&self, process: &str, listener: Listener) {
        self.server.routing.listen(process, listener, &self.handle);
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        if !attempt.owner.limit.is_alone() {
            return Box::pin(async move {
                let Self { server, queue, .. } = self;
                routed!(server, attempt.owner.lock, answer_by, |connection| {
                    queue.try_share(server, &attempt, connection, answer_by)
                })
            });
        }
        on_heap(|| async move {
            let Self { server, queue, renewals, .. } = self;
            routed!(server, attempt.owner.lock, answer_by, |connection| {
                acquire::try_acquire(server, (queue, renewals), &attempt, connection, answer_by)
            })
        })
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        on_heap(|| async move {
            let Self { server, queue, .. } = &*self;
            routed!(server, entry.owner.lock, answer_by, |connection| {
                queue.enter(server, &entry, connection, answer_by)
            })
        })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        on_heap(|| async move {
            let Self { server, releases, .. } = &*self;
            releases.release(server, &owner, keep, answer_by).await
        })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move {
            let Self { server, exchanges, .. } = &*self;
            routed!(server, exchange.new.lock, answer_by, |connection| {
                exchanges.exchange(server, &exchange, connection, answer_by)
            })
        })
    }

    fn lane(&self, lock: &LockName) -> usize {
        self.server.routing.lane(lock.stored())
    }

    fn part(&self, lock: &LockName) -> usize {
        self.server.routing.part(lock.stored())
    }

    fn fences_per_draw(&self) -> u64 {
        FENCES_PER_DRAW
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let Self { server, renewals: of_server, .. } = &*self;
            of_server.renew(server, &renewals).await
        })
    }

    fn has_many_counters(&self) -> bool {
        self.server.routing.cluster().is_some()
    }

    fn lift(self: Arc<Self>, locks: Vec<Arc<LockName>>, fence: u64, answer_by: Moment) -> Op<()> {
        Box::pin(async move { raise_counters(&self.server, &locks, fence, answer_by).await })
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let server = &self.server;
            let Some(unused) = server.unused() else { return Err(Fault::given_up()) };
            routed!(server, unused, answer_by, |connection| {
                inspect::ping(&server.fences, &unused, connection, answer_by)
            })
        })
    }

    fn status(&self) -> StoreStatus {
        let links = self.server.routing.all_commands();
        let mut connected = links.iter().filter_map(|link| link.driven_by());
        let first = connected.next();
        let by_callers = first.into_iter().chain(connected).any(|by| by == DrivenBy::Callers);
        StoreStatus {
            connected: first.is_some(),
            wake_ups: self.server.routing.wake_ups(),
            driven_by: if by_callers { DrivenBy::Callers } else { DrivenBy::Manager },
        }
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            let server = &self.server;
            routed!(server, lock, answer_by, |connection| inspect::inspect(
                &lock, connection, answer_by
            ))
        })
    }
}

impl ProcessDirectory for RedisStore {
    fn introduce(&self, itself: &ProcessInfo) {
        let Self { server, handle, .. } = self;
        handle.spawn(server.record.start(itself, &server.records));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            let Server { record, records, .. } = &self.server;
            records.remove(record, &process, answer_by).await
        })
    }

    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move {
            let mut connection = self.server.any(answer_by).await?;
            let heard = messages::tell(&mut connection, &messages, answer_by).await?;
            // A node of a cluster knows only its own subscribers.
            let anywhere = self.server.routing.cluster().is_some();
            Ok(heard.into_iter().map(|heard| heard || anywhere).collect())
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move { self.server.records.recorded(&prefix, answer_by).await })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move { self.server.records.records(&prefix, &processes, answer_by).await })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let answer_by = Clock::Boottime.now().after(self.server.command_timeout);
            let Ok(mut connection) = self
                .server
                .routing
                .route(&self.server.alarms, lock.stored(), answer_by)
                .commands()
                .await
            else {
                return;
            };
            let sharded = self.server.tag(&lock).is_some_and(|tag| !tag.is_empty());
            // The owner also notices at its next renewal.
            messages::notify_taken(&mut connection, &lock, &token, sharded, answer_by).await;
        });
    }
}

impl StoreAdmin for RedisStore {
    fn nodes(&self) -> Vec<Option<String>> {
        let nodes = self.server.nodes_named().into_keys();
        nodes.map(|node| Some(node).filter(|node| !node.is_empty())).collect()
    }

    fn ask(
        self: Arc<Self>,
        node: Option<String>,
        commands: Vec<StoreCommand>,
        answer_by: Moment,
    ) -> Op<Vec<StoreReply>> {
        Box::pin(async move {
            let mut connection = match node {
                Some(node) => self.server.at(&node, answer_by).await?,
                None => self.server.any(answer_by).await?,
            };
            admin::ask(&mut connection, &commands, answer_by).await
        })
    }

    fn sentinels(self: Arc<Self>) -> Op<Vec<(String, Vec<StoreReply>)>> {
        Box::pin(async move {
            let Some(sentinels) = &self.sentinels else { return Ok(Vec::new()) };
            let said = sentinels.survey().await.into_iter().map(|(sentinel, said)| match said {
                Ok(answers) => (sentinel, answers.into_iter().map(admin::reply).collect()),
                Err(fault) => (sentinel, vec![StoreReply::Error(fault.to_string())]),
            });
            Ok(said.collect())
        })
    }

    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move { self.server.walk(&prefix, &cursor, answer_by).await })
    }

    fn glance(
        self: Arc<Self>,
        locks: &[Arc<LockName>],
        answer_by: Moment,
    ) -> Option<Op<Vec<Option<Glance>>>> {
        let locks = locks.to_vec();
        Some(Box::pin(async move { self.server.glances(&locks, answer_by).await }))
    }
}

/// Makes an operation where it will be. `Box::pin` makes it on the stack and copies all of it: two kilobytes for a
/// command of Redis, in which there is nothing before the first poll but what it was given.
pub(crate) fn on_heap<'a, T, F>(op: impl FnOnce() -> F) -> OpOn<'a, T>
where
    F: Future<Output = Result<T, Fault>> + Send + 'a,
{
    let op = Box::write(Box::<F>::new_uninit(), op());
    Box::into_pin(op)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = self.server.routing.all_commands();
        let server = links.iter().find_map(|link| link.server_info());
        f.debug_struct("RedisStore")
            .field("server", &server)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
