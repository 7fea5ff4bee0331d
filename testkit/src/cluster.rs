//! A Redis Cluster of the test's own: real servers, each behind a proxy if asked.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult, Value};

use crate::{Certificate, LONG, Proxy, RedisServer, major_version, wait_until};

const SLOTS: usize = 16_384;
/// How long a node may be silent before others take it for dead, where a replica can take its place; and where
/// none can, and a busy machine must not look like a dead node.
const NODE_TIMEOUT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20)];
const LOOK: Duration = Duration::from_millis(5);
/// How long moving one key may take.
const MOVE: &str = "30000";

/// Servers that share the slots of one cluster, on free ports of 127.0.0.1. The first nodes are primaries,
/// each with an equal part of the slots in order; behind them come the replicas of the first, of the second and so on.
///
/// A node with a replica that is silent for a second fails over if most primaries are left: of three, not of
/// two. All of them are killed when this is
/// dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    primaries: usize,
    replicas: usize,
    /// For names that hash to a wanted slot.
    tried: AtomicU64,
    /// A slot changes hands.
    moving: Mutex<()>,
    /// A key changes hands. A server does nothing else until the other one has it: two of them that send each
    /// other keys would wait for each other.
    migrating: Mutex<()>,
}

#[derive(Debug)]
struct Node {
    server: RedisServer,
    proxy: Option<Proxy>,
    id: String,
}

/// What a cluster is started with; see [`Cluster::builder`].
#[derive(Debug, Clone, Default)]
pub struct ClusterBuilder {
    primaries: usize,
    replicas: usize,
    proxied: bool,
    args: Vec<String>,
    tls: Option<Certificate>,
}

impl ClusterBuilder {
    /// Every node speaks TLS and nothing else, with clients and with each other, by this certificate.
    pub fn tls(mut self, certificate: &Certificate) -> Self {
        self.tls = Some(certificate.clone());
        self
    }

    /// Gives each primary so many replicas. Default: none.
    pub fn replicas(mut self, each: usize) -> Self {
        self.replicas = each;
        self
    }

    /// Puts each node behind a [`Proxy`], whose port is the one that the cluster announces to clients. Nodes
    /// talk to each other past it.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// More arguments for each `redis-server`.
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts it; returns when every node serves its slots and every replica has its primary's data.
    pub fn start(self) -> Cluster {
        let count = self.primaries * (1 + self.replicas);
        let start = || {
            thread::spawn({
                let settings = self.clone();
                move || settings.start_node()
            })
        };
        let starting: Vec<_> = (0..count).map(|_| start()).collect();
        let nodes = starting.into_iter().map(|node| node.join().expect("a node starts")).collect();
        let Self { primaries, replicas, .. } = self;
        let cluster = Cluster {
            nodes,
            primaries,
            replicas,
            tried: AtomicU64::new(0),
            moving: Mutex::default(),
            migrating: Mutex::default(),
        };
        cluster.join();
        cluster
    }

    fn start_node(&self) -> Node {
        let timeout = NODE_TIMEOUT[usize::from(self.replicas == 0)].as_millis().to_string();
        let mut builder = RedisServer::builder();
        if let Some(certificate) = &self.tls {
            builder =
                builder.tls(certificate).args(["--tls-cluster", "yes", "--tls-replication", "yes"]);
        }
        let server = builder
            .cluster()
            .args(["--cluster-node-timeout", &timeout])
            // A replica that waits for others before it copies the data is not elected meanwhile.
            .args(["--repl-diskless-sync-delay", "0"])
            // A replica whose questions a broken network has lost asks again, before anybody gives up on it.
            .args(["--repl-timeout", "10", "--repl-ping-replica-period", "1"])
            .args(self.args.iter().cloned())
            .start();
        let proxy = self.proxied.then(|| Proxy::to(server.addr()));
        let id = server.cli(&["CLUSTER", "MYID"]);
        let node = Node { server, proxy, id };
        node.announce();
        node
    }
}

/// Before 7.0 each slot is given by itself.
fn takes_ranges() -> bool {
    major_version() >= 7
}

impl Node {
    /// Clients get the proxy's address.
    fn announce(&self) {
        if let Some(proxy) = &self.proxy {
            let port = proxy.addr().port().to_string();
            self.server.cli::<()>(&["CONFIG", "SET", "cluster-announce-port", &port]);
        }
    }
}

impl Cluster {
    /// So many primaries, each with so many replicas.
    pub fn start(primaries: usize, replicas: usize) -> Self {
        Self::builder(primaries).replicas(replicas).start()
    }

    /// A cluster with other settings.
    pub fn builder(primaries: usize) -> ClusterBuilder {
        ClusterBuilder { primaries, ..ClusterBuilder::default() }
    }

    fn join(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            node.server.cli::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
        for at in 0..self.primaries {
            let (from, to) = self.range(at);
            let slots: Vec<String> = match takes_ranges() {
                true => vec!["ADDSLOTSRANGE".to_owned(), from.to_string(), to.to_string()],
                false => ["ADDSLOTS".to_owned()]
                    .into_iter()
                    .chain((from..=to).map(|slot| slot.to_string()))
                    .collect(),
            };
            let slots = slots.iter().map(String::as_str);
            self.cli::<()>(at, &["CLUSTER"].into_iter().chain(slots).collect::<Vec<_>>());
        }
        for (at, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[at + 1..] {
                // Past the proxy.
                let addr = other.server.addr();
                let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
                let bus: Vec<String> = other.server.cli(&["CONFIG", "GET", "cluster-port"]);
                let bus = bus.get(1).map(String::as_str);
                let meet = ["CLUSTER", "MEET", &ip, &port].into_iter().chain(bus);
                node.server.cli::<()>(&meet.collect::<Vec<_>>());
            }
        }
        for replica in self.primaries..self.nodes.len() {
            self.replicate(replica, (replica - self.primaries) / self.replicas);
        }
        self.wait_until_whole();
    }

    /// Makes a node the replica of another, as soon as it knows that.
    fn replicate(&self, replica: usize, of: usize) {
        wait_until("a replica knows its primary", || {
            self.try_cli::<()>(replica, &["CLUSTER", "REPLICATE", &self.nodes[of].id]).is_ok()
        });
    }

    /// Waits until all nodes agree that all slots are served, and all replicas have their data. Longer than for other
    /// things: on a busy machine nodes miss each other again and again, and an election that fails is held again
    /// seconds later.
    pub fn wait_until_whole(&self) {
        let begun = Instant::now();
        while let Some(missing) = self.missing() {
            assert!(begun.elapsed() < LONG, "the cluster is not whole: {missing}");
            thread::sleep(LOOK);
        }
        let took = begun.elapsed();
        tracing::debug!(?took, "the cluster is whole");
    }

    /// What keeps the cluster from being whole, as a node sees it that runs.
    fn missing(&self) -> Option<String> {
        let running = || self.nodes.iter().filter(|node| node.server.is_running());
        running().find_map(|node| {
            // One that is busy does not answer in time.
            let ask = |question: &[&str]| node.server.try_cli::<String>(question);
            let asked = [
                ask(&["CLUSTER", "INFO"]),
                ask(&["CLUSTER", "NODES"]),
                ask(&["INFO", "replication"]),
            ];
            let [Ok(info), Ok(list), Ok(replication)] = asked else {
                return Some(format!("{:?} does not answer", node.server));
            };
            let is_known = |other: &Node| list.contains(&other.id);
            let is_primary = |line: &&str| line.contains("master") && !line.contains("fail");
            let primaries = list.lines().filter(is_primary).count();
            let is_whole = info.contains("cluster_state:ok")
                && running().all(is_known)
                && !list.contains("handshake")
                && primaries <= self.primaries
                && !replication.contains("master_link_status:down")
                && !replication.contains("master_sync_in_progress:1");
            (!is_whole).then(|| format!("{:?} says\n{info}\n{list}\n{replication}", node.server))
        })
    }

    /// The first and the last of the slots that a primary has at the start.
    fn range(&self, primary: usize) -> (usize, usize) {
        (SLOTS * primary / self.primaries, SLOTS * (primary + 1) / self.primaries - 1)
    }

    /// Its URL: all nodes, as clients see them.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = (0..self.nodes.len()).map(|at| self.addr(at).to_string()).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has no nodes, which none has.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Where clients reach a node.
    pub fn addr(&self, node: usize) -> SocketAddr {
        let Node { server, proxy, .. } = &self.nodes[node];
        proxy.as_ref().map_or_else(|| server.addr(), Proxy::addr)
    }

    /// A node's server.
    pub fn node(&self, node: usize) -> &RedisServer {
        &self.nodes[node].server
    }

    /// A node's network, if the cluster is [proxied](ClusterBuilder::proxied).
    pub fn proxy(&self, node: usize) -> &Proxy {
        self.nodes[node].proxy.as_ref().expect("a cluster behind proxies")
    }

    /// Sends one command to a node, past its proxy.
    #[track_caller]
    pub fn cli<T: FromRedisValue>(&self, node: usize, args: &[&str]) -> T {
        self.nodes[node].server.cli(args)
    }

    /// The same for a command that may be refused.
    pub fn try_cli<T: FromRedisValue>(&self, node: usize, args: &[&str]) -> RedisResult<T> {
        self.nodes[node].server.try_cli(args)
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.any().cli(&["CLUSTER", "KEYSLOT", key])
    }

    /// The primary that has a slot, as most of the nodes that answer see it.
    pub fn primary_of(&self, slot: u16) -> usize {
        let mut votes = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            if node.server.is_running()
                && let Ok(nodes) = self.try_cli::<String>(at, &["CLUSTER", "NODES"])
                && let Some(id) = nodes.lines().find_map(|line| owner(line, slot))
                && let Some(of) = self.nodes.iter().position(|node| node.id == id)
            {
                votes[of] += 1;
            }
        }
        let most = (0..votes.len()).max_by_key(|at| votes[*at]);
        most.filter(|at| votes[*at] > 0).expect("a node has the slot")
    }

    /// A key of its own each time, in the slots that a primary has at the start.
    pub fn key_at(&self, primary: usize) -> String {
        let (from, to) = self.range(primary);
        loop {
            let key = format!("key-{}", self.tried.fetch_add(1, Relaxed));
            if (from..=to).contains(&usize::from(self.slot(&key))) {
                return key;
            }
        }
    }

    /// Step 1 of moving a slot: its new primary takes it in, and the old one redirects clients that ask for
    /// what it has not.
    pub fn open_move(&self, slot: u16, to: usize) {
        let (from, slot) = (self.primary_of(slot), slot.to_string());
        self.cli::<()>(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.nodes[from].id]);
        self.cli::<()>(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.nodes[to].id]);
    }

    /// Step 2: moves one key, if it is there.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let addr = self.nodes[to].server.addr();
        let (ip, port) = (addr.ip().to_string(), addr.port().to_string());
        let _one_at_a_time = self.migrating.lock().unwrap_or_else(PoisonError::into_inner);
        self.cli::<()>(from, &["MIGRATE", &ip, &port, key, "0", MOVE]);
    }

    /// Step 2 for all keys of the slot there are.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        loop {
            let text = slot.to_string();
            let keys: Vec<String> = self.cli(from, &["CLUSTER", "GETKEYSINSLOT", &text, "100"]);
            if keys.is_empty() {
                return;
            }
            keys.iter().for_each(|key| self.move_key(key, from, to));
        }
    }

    /// Step 3: the slot is the new primary's. `false` if a key has come to stand at the old one, which then
    /// keeps the slot open.
    pub fn close_move(&self, slot: u16, from: usize, to: usize) -> bool {
        let (text, id) = (slot.to_string(), &self.nodes[to].id);
        let is_done = |node: usize| {
            self.try_cli::<()>(node, &["CLUSTER", "SETSLOT", &text, "NODE", id]).is_ok()
        };
        // The old one behind it: it refuses while it has keys.
        // One at a time: the cluster gives every move a number, and two of the same are a conflict.
        let _one = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = is_done(to) && is_done(from);
        if moved {
            self.wait_until_all_know(slot, to);
        }
        moved
    }

    /// Waits until every node has heard that the slot is that node's. A slot that is moved on before is claimed by
    /// several nodes for good: the cluster's own tools wait as well.
    fn wait_until_all_know(&self, slot: u16, to: usize) {
        let id = &self.nodes[to].id;
        let info: String = self.cli(to, &["CLUSTER", "INFO"]);
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_my_epoch:"));
        let epoch = epoch.expect("an epoch").trim();
        let knows = |node: &Node| {
            let nodes: String = node.server.cli(&["CLUSTER", "NODES"]);
            nodes
                .lines()
                .any(|line| owner(line, slot) == Some(id) && line.split(' ').nth(6) == Some(epoch))
        };
        wait_until("all nodes know of the move", || {
            self.nodes.iter().filter(|node| node.server.is_running()).all(knows)
        });
    }

    /// Moves a slot to another primary, key by key.
    pub fn migrate(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot);
        if from == to {
            return;
        }
        self.open_move(slot, to);
        loop {
            self.move_keys(slot, from, to);
            if self.close_move(slot, from, to) {
                return;
            }
        }
    }

    /// Whether these servers move a slot as a whole, as Valkey does since 9.0.
    pub fn moves_whole_slots(&self) -> bool {
        self.any().try_cli::<Value>(&["CLUSTER", "GETSLOTMIGRATIONS"]).is_ok()
    }

    /// Moves a slot to another primary as a whole: the old one serves all of its keys until the new one does.
    pub fn migrate_whole(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot);
        if from == to {
            return;
        }
        let (text, id) = (slot.to_string(), &self.nodes[to].id);
        let _one = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        wait_until("the slot is the new primary's", || {
            // Refused while it is under way. One that has failed is begun again.
            let _ = self.try_cli::<Value>(
                from,
                &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &text, &text, "NODE", id],
            );
            self.primary_of(slot) == to
        });
        self.wait_until_all_know(slot, to);
    }

    /// SIGKILL of a node.
    pub fn kill9(&mut self, node: usize) {
        self.nodes[node].server.kill9();
    }

    /// SIGSTOP of a node.
    pub fn stop(&self, node: usize) {
        self.nodes[node].server.stop();
    }

    /// SIGCONT of a node.
    pub fn cont(&self, node: usize) {
        self.nodes[node].server.cont();
    }

    /// Starts a killed node again: it finds its place in the cluster by what it wrote to its directory.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].server.restart();
        self.nodes[node].announce();
    }

    /// Makes a replica the primary of its shard, with nothing lost. Returns when the old one is its replica.
    pub fn fail_over(&self, replica: usize) {
        self.cli::<()>(replica, &["CLUSTER", "FAILOVER"]);
        wait_until("the replica is a primary", || self.is_primary(replica));
        self.wait_until_whole();
    }

    /// Whether a node takes itself for a primary.
    pub fn is_primary(&self, node: usize) -> bool {
        self.cli::<String>(node, &["INFO", "replication"]).contains("role:master")
    }

    /// All keys of locks, queues and what else is left of them, of all primaries; see
    /// [`RedisServer::lock_keys`].
    pub fn lock_keys(&self) -> Vec<String> {
        let running = (0..self.len()).filter(|at| self.nodes[*at].server.is_running());
        let primaries = running.filter(|at| self.is_primary(*at));
        let mut keys: Vec<_> = primaries.flat_map(|at| self.node(at).lock_keys()).collect();
        keys.sort();
        keys
    }

    fn any(&self) -> &RedisServer {
        let node = self.nodes.iter().find(|node| node.server.is_running());
        &node.expect("a node that runs").server
    }
}

/// The node of a line of `CLUSTER NODES`, if it has the slot.
fn owner(line: &str, slot: u16) -> Option<&str> {
    let words: Vec<_> = line.split(' ').collect();
    let has_it = words.iter().skip(8).any(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u16>().ok();
        number(from).zip(number(to)).is_some_and(|(from, to)| (from..=to).contains(&slot))
    });
    has_it.then(|| words[0])
}
