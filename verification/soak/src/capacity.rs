//! What a server carries: how many locks a second of its processor is enough for, on one server and on shards;
//! what a lock, a waiter, a lease and a process cost it. Rates are by the processor time that servers report, not by
//! the clock: they are the same on a machine that is busy with something else.

use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{Cluster, LONG, RedisServer, connect, wait_for};
use tokio::task::{JoinSet, block_in_place};

use crate::effort::Effort;
use crate::figures::{info, server_cpu};
use crate::report::Report;

const TASKS: usize = 100;
const HELD: u64 = 10_000;
const WAITERS: u64 = 1_000;
const PROCESSES: u64 = 50;
const SHARDS: [usize; 3] = [1, 2, 3];
/// Of leases that are renewed while it is measured.
const TTL: Duration = Duration::from_secs(6);

/// Runs it; an effort of times counts locks of each measurement.
pub async fn run(effort: Effort) -> Report {
    let mut report = Report::default();
    one_server(effort, &mut report).await;
    // Also of an effort that is soon over there are enough for a figure.
    let held = match effort {
        Effort::Times(times) => times.clamp(WAITERS, HELD),
        Effort::Time(_) => HELD,
    };
    memory(held, &mut report).await;
    leases(held, &mut report).await;
    processes(&mut report).await;
    for shards in SHARDS {
        of_shards(shards, effort, &mut report).await;
    }
    report
}

/// So many uncontended locks, by many tasks; says how many.
async fn locks(manager: &LockManager, effort: Effort) -> u64 {
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    for task in 0..TASKS {
        let manager = manager.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while effort.goes_on(done * TASKS as u64, begun) {
                let key = format!("capacity-{task}-{}", done % 64);
                let guard = manager.lock(key).ttl(LONG).acquire().await.expect("it is free");
                guard.release().await.expect("it was held");
                done += 1;
            }
            done
        });
    }
    let mut all = 0;
    while let Some(task) = tasks.join_next().await {
        all += task.expect("no panic");
    }
    all
}

async fn one_server(effort: Effort, report: &mut Report) {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let version: String = info(&server, "redis_version").unwrap_or_default();
    report.figure("server", version);
    locks(&manager, Effort::Times(TASKS as u64)).await;
    let before = server_cpu(&server);
    let done = locks(&manager, effort).await;
    let rate = done as f64 / (server_cpu(&server) - before);
    report.figure("locks a second of one core", format!("{rate:.0} (of {done})"));
    report.violated_if(done == 0, "no lock was granted");
}

async fn memory(held: u64, report: &mut Report) {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let used = || info::<u64>(&server, "used_memory").unwrap_or_default();
    drop(manager.lock("first").acquire().await);
    let before = used();
    let mut guards = Vec::new();
    for n in 0..held {
        let key = format!("capacity:order:{n:08}");
        guards.push(manager.lock(key).ttl(LONG).acquire().await.expect("it is free"));
    }
    report.figure("bytes of a lock, with a key of 23", (used() - before) / held);
    let other = connect(&server.url()).await;
    let before = used();
    let mut waiting = JoinSet::new();
    for n in 0..WAITERS {
        let request = other.lock(format!("capacity:order:{n:08}")).ttl(LONG).wait(LONG);
        waiting.spawn(async move { request.acquire().await.map(drop) });
    }
    wait_for("all wait", async || server.keys().len() as u64 >= held + WAITERS).await;
    report.figure("bytes of a process that waits for one", (used() - before) / WAITERS);
    drop(guards);
    while let Some(served) = waiting.join_next().await {
        report.violated_if(!matches!(served, Ok(Ok(()))), "a waiter was not served");
    }
}

async fn leases(held: u64, report: &mut Report) {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..held {
        let key = format!("lease-{n}");
        guards.push(manager.lock(key).ttl(TTL).acquire().await.expect("it is free"));
    }
    let (before, begun) = (server_cpu(&server), Instant::now());
    tokio::time::sleep(TTL).await;
    let renewals = held as f64 * 3.0 * begun.elapsed().as_secs_f64() / TTL.as_secs_f64();
    let rate = renewals / (server_cpu(&server) - before);
    report.figure("renewals a second of one core", format!("{rate:.0}"));
    let default_ttl = 30.0;
    let busy = rate * default_ttl / 3.0;
    report.figure("held leases of 30 s that keep one core busy", format!("{busy:.0}"));
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    report.violated_if(lost > 0, format!("{lost} leases were lost"));
}

async fn processes(report: &mut Report) {
    let server = RedisServer::start();
    let used = || info::<u64>(&server, "used_memory").unwrap_or_default();
    let clients = || info::<u64>(&server, "connected_clients").unwrap_or_default();
    let first = connect(&server.url()).await;
    drop(first.lock("k").acquire().await);
    let (memory, connections) = (used(), clients());
    let mut managers = Vec::new();
    for n in 0..PROCESSES {
        let manager = connect(&server.url()).await;
        drop(manager.lock(format!("process-{n}")).acquire().await);
        managers.push(manager);
    }
    let each = |now: u64, before: u64| now.saturating_sub(before) as f64 / PROCESSES as f64;
    report.figure("connections of a process", format!("{:.1}", each(clients(), connections)));
    report.figure("bytes of a process", format!("{:.0}", each(used(), memory)));
}

async fn of_shards(shards: usize, effort: Effort, report: &mut Report) {
    let cluster = block_in_place(|| Cluster::start(shards, 0));
    let manager = connect(&cluster.url()).await;
    // The first lock of a slot draws its token by a script.
    locks(&manager, Effort::Times(64 * TASKS as u64)).await;
    let cpu = || (0..shards).map(|at| server_cpu(cluster.node(at))).collect::<Vec<_>>();
    let before = cpu();
    let done = locks(&manager, effort).await;
    // When the busiest of them is at its end.
    let busiest = cpu().iter().zip(&before).map(|(now, before)| now - before).fold(0.0, f64::max);
    let rate = done as f64 / busiest;
    report.figure(format!("locks a second of {shards} shards"), format!("{rate:.0} (of {done})"));
}
