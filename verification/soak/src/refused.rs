//! Very many locks given back to a server that refuses every write: how hard it is pressed, and how
//! soon all are free once it is well.

use std::time::{Duration, Instant};

use distlock_testkit::{RedisServer, connect, runs};
use tokio::task::JoinSet;

use crate::effort::Effort;
use crate::figures::info;
use crate::report::Report;

/// How long the server refuses.
pub const WHILE: Duration = Duration::from_secs(6);
const TTL: Duration = Duration::from_secs(600);
/// Commands in a second, those inside scripts included.
const MOST: f64 = 200.0;
const FREE_WITHIN: Duration = Duration::from_secs(2);

/// Drops `locks` guards while the server refuses.
pub async fn run(locks: usize, effort: Effort) -> Report {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let mut calls = JoinSet::new();
    for n in 0..locks {
        let request = manager.lock(format!("k-{n}")).ttl(TTL).wait(TTL);
        calls.spawn(async move { request.acquire().await.expect("granted") });
    }
    let guards = calls.join_all().await;
    let refuse = |replicas| {
        server.cli::<()>(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
    };
    let tried = || runs(&server, "evalsha") + runs(&server, "eval");
    let sent = || info::<u64>(&server, "total_commands_processed").unwrap_or_default();
    refuse("1");
    let before = tried();
    drop(guards);
    let start = Instant::now();
    while tried() < before + locks as u64 && start.elapsed() < TTL {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut report = Report::default();
    report.figure("locks given back", locks);
    report.figure("each tried once in", format!("{:.1?}", start.elapsed()));
    let (before, start) = (sent(), Instant::now());
    while effort.goes_on(0, start) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let rate = (sent() - before) as f64 / start.elapsed().as_secs_f64();
    report.figure("commands in a second after that", format!("{rate:.0}"));
    refuse("0");
    let start = Instant::now();
    while !server.lock_keys().is_empty() && start.elapsed() < TTL {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let free = start.elapsed();
    report.figure("all free after", format!("{free:.2?}"));
    report.violated_if(rate > MOST, format!("{rate:.0} commands in a second"));
    report.past_if(free > FREE_WITHIN, format!("all free only after {free:.1?}"));
    report
}
