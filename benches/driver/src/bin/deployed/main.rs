//! What a deployment costs beside a plain server, in turns in one run: a cluster, TLS, a replica that confirms, a
//! quorum.
//!
//! ```sh
//! cargo run --release -p distlock-bench --features tls --bin deployed
//! cargo run --release -p distlock-bench --features tls --bin deployed -- quorum
//! ```
//!
//! Each is named by `plain`, `cluster`, `tls`, `replica` or `quorum`, and takes a minute or less. What a quorum takes
//! while one of its servers stands still is a figure of `soak redlock`.
#![allow(clippy::print_stdout, reason = "figures are its answer")]

mod locker;
mod pace;

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{Certificates, Cluster, Quorum, RedisServer, connect, wait_until};
use locker::{Locker, Raw};
use pace::{keys, spread, turns};

/// How often connections are made, and how often it is pinged.
const CONNECTS: usize = 50;
const PINGS: usize = 2_000;
/// Tasks that take locks together.
const MANY: usize = 100;
const TOGETHER: usize = 64;

#[tokio::main]
async fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for name in &wanted {
        assert!(
            ["plain", "cluster", "tls", "replica", "quorum"].contains(&&**name),
            "plain, cluster, tls, replica or quorum, not {name}"
        );
    }
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    if is_wanted("plain") {
        plain().await;
    }
    if is_wanted("cluster") {
        cluster().await;
    }
    if is_wanted("tls") {
        tls().await;
    }
    if is_wanted("replica") {
        replica().await;
    }
    if is_wanted("quorum") {
        quorum().await;
    }
}

/// The rates and times of each, the first as the measure.
async fn measure(title: &str, ways: &[(&str, Locker)], tasks: usize, keys: &[String]) {
    let paces = turns(ways, tasks, keys).await;
    println!("{title}:");
    for ((name, _), pace) in ways.iter().zip(&paces) {
        println!("  {name:24} {}", pace.beside(&paces[0]));
    }
}

/// Bare commands at these servers, in turn, and distlock at `url`.
async fn beside_raw(
    servers: impl IntoIterator<Item = String>,
    url: &str,
) -> [(&'static str, Locker); 3] {
    let raw = Raw::to(servers).await;
    [
        ("SET NX and DEL", Locker::Raw(raw.clone())),
        ("with a check and a fence", Locker::Checked(raw)),
        ("distlock", Locker::Manager(connect(url).await)),
    ]
}

async fn plain() {
    let server = RedisServer::start();
    let ways = beside_raw([server.url()], &server.url()).await;
    measure("One server, one task", &ways, 1, &keys(MANY)).await;
    measure("The same, 100 tasks", &ways, MANY, &keys(MANY)).await;
}

async fn cluster() {
    const SHARDS: usize = 3;
    let cluster = tokio::task::block_in_place(|| Cluster::start(SHARDS, 0));
    let keys: Vec<String> = (0..3 * MANY).map(|n| cluster.key_at(n % SHARDS)).collect();
    let nodes = (0..SHARDS).map(|node| format!("redis://{}", cluster.addr(node)));
    let ways = beside_raw(nodes, &cluster.url()).await;
    measure("A cluster of three shards, one task", &ways, 1, &keys).await;
    measure("The same, 100 tasks", &ways, MANY, &keys).await;
}

async fn tls() {
    let authority = Certificates::new();
    let certificate = authority.issue("server", &["DNS:localhost", "IP:127.0.0.1"]);
    let plain = RedisServer::start();
    let secured = RedisServer::builder().tls(&certificate).start();
    let urls = [("plain", plain.url()), ("TLS", secured.tls_url("localhost"))];
    let mut ways = Vec::new();
    for (name, url) in &urls {
        ways.push((*name, Locker::Manager(connect(url).await)));
    }
    measure("TLS, one task", &ways, 1, &keys(MANY)).await;
    measure("TLS, 100 tasks", &ways, MANY, &keys(MANY)).await;
    println!("TLS, a connection and its greeting; a ping:");
    let mut connects = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTS {
        for ((_, url), connects) in urls.iter().zip(&mut connects) {
            let begun = Instant::now();
            let manager = LockManager::connect(url).await.expect("connect");
            connects.push(begun.elapsed());
            manager.close(Duration::from_secs(1)).await;
        }
    }
    for ((name, way), connects) in ways.iter().zip(connects) {
        let mut pings = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            pings.push(way.manager().ping().await.expect("an answer"));
        }
        println!("  {name:24} {}; {}", spread(connects), spread(pings));
    }
}

async fn replica() {
    let primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    let port = primary.addr().port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    wait_until("the replica follows", || {
        replica.cli::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let ways = [
        ("one server", Locker::Manager(connect(&primary.url()).await)),
        (
            "confirmed by a replica",
            Locker::Manager(connect(&format!("{}?replicas=1", primary.url())).await),
        ),
    ];
    measure("Replicas, one task", &ways, 1, &keys(MANY)).await;
    measure("Replicas, 64 tasks", &ways, TOGETHER, &keys(TOGETHER)).await;
}

async fn quorum() {
    let (one, three) = (RedisServer::start(), Quorum::of(3));
    let all = Locker::Manager(connect(&three.url()).await);
    let ways = [("one server", Locker::Manager(connect(&one.url()).await)), ("three", all.clone())];
    measure("A quorum, one task", &ways, 1, &keys(MANY)).await;
    measure("A quorum, 100 tasks", &ways, MANY, &keys(MANY)).await;
}
