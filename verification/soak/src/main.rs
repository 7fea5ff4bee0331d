//! `cargo run --release -p soak -- NAME [--seconds N]`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures are its answer")]

use std::process::ExitCode;
use std::time::Duration;

use distlock_testkit::{
    Etcd, EtcdServer, PostgresServer, RedisServer, ZooKeeper, ZooKeeperServer, in_fork,
};
use soak::faults::Kind;
use soak::{
    Effort, Report, cancel, capacity, chaos, ensembles, failover, faults, handoffs, held, idle,
    kept, leaders, outage, pairs, redlock, refused, reshard, scripts, shards, sharing, stages,
    storm, suspend, waiters,
};

const USAGE: &str = "usage: soak NAME [--seconds N] [--seed N]

capacity  what a server carries, and two and three of a cluster (100,000 locks each)
cancel    acquisitions cancelled at random awaits behind a slow network (100,000)
outage    servers and networks that fail while bodies run (60 seconds)
failover  primaries under Sentinel that are killed or paused until another follows (20)
suspend   a holder that is stopped past its lease and goes on (100 times)
held      10,000 locks held and renewed (30 seconds)
idle      two managers that are not used (120 seconds)
many      the same with 150,000
refused   2,000 locks given back to a server that refuses (6 seconds)
kept      100,000 calls with `min_hold`
chaos     waiting and holding processes that are killed at random (60 seconds)
ensembles_etcd, ensembles_zookeeper
          processes at a store of three servers whose leaders are killed, stopped and cut off (60 seconds)
faults_redlock, faults_sentinel, faults_replicas, faults_cluster
          random faults of servers and networks, fail-overs, slots that move (60 seconds)
leaders   a leader that is killed, stopped, cut off or resigns (200 times)
handoffs  a lock that many tasks of several processes want all the time (1,000,000)
waiters   10,000 waiters of one process (30 seconds)
pairs     two locks of four for 200 tasks a process, until their waits run out (90 seconds)
redlock   a lock on a quorum whose servers restart without their data, for eight processes (100,000)
reshard   slots of a cluster that move while their locks are used (1,000)
shards    primaries of a cluster that are killed until their replicas follow (20)
scripts   random processes that send scripts for one lock (60 seconds)
sharing   writers behind readers of three processes that overlap without a pause (500)
stages    from a release to the next process's body, in round trips (2,000)
storm_redis, storm_postgres, storm_etcd, storm_zookeeper
          readers, writers and permits in processes that are killed, stopped and cut off, at a server that is
          stopped, killed and robbed of its data (60 seconds)";

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let Some((name, Options { effort, seed })) = read(&args) else { return usage() };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let report: Report = runtime
        .block_on(async {
            let or = |default| effort.unwrap_or(default);
            match name {
                "capacity" => Some(capacity::run(or(Effort::Times(100_000))).await),
                "cancel" => Some(cancel::run(or(Effort::Times(100_000))).await),
                "outage" => Some(outage::run(or(Effort::Time(Duration::from_secs(60)))).await),
                "failover" => Some(failover::run(or(Effort::Times(20))).await),
                "suspend" => Some(suspend::run(or(Effort::Times(100))).await),
                "held" => Some(held::run(10_000, held::TTL, or(Effort::Time(held::WHILE))).await),
                "many" => Some(held::run(150_000, held::TTL, or(Effort::Time(held::WHILE))).await),
                "idle" => Some(idle::run(or(Effort::Time(idle::WHILE))).await),
                "refused" => Some(refused::run(2_000, or(Effort::Time(refused::WHILE))).await),
                "kept" => Some(kept::run(100_000).await),
                "chaos" => Some(chaos::run(or(Effort::Time(Duration::from_secs(60)))).await),
                "ensembles_etcd" => {
                    let name = "ensembles_etcd";
                    Some(ensembles::run::<Etcd>(name, or(ensembles::WHILE), seed).await)
                }
                "ensembles_zookeeper" => {
                    let name = "ensembles_zookeeper";
                    Some(ensembles::run::<ZooKeeper>(name, or(ensembles::WHILE), seed).await)
                }
                "faults_redlock" => Some(faults::run(Kind::Redlock, or(faults::WHILE), seed).await),
                "faults_sentinel" => {
                    Some(faults::run(Kind::Sentinel, or(faults::WHILE), seed).await)
                }
                "faults_replicas" => {
                    Some(faults::run(Kind::Replicas, or(faults::WHILE), seed).await)
                }
                "faults_cluster" => Some(faults::run(Kind::Cluster, or(faults::WHILE), seed).await),
                "leaders" => Some(leaders::run(or(Effort::Times(200))).await),
                "handoffs" => Some(handoffs::run(or(Effort::Times(1_000_000))).await),
                "waiters" => Some(waiters::run(10_000, or(Effort::Time(waiters::WHILE))).await),
                "pairs" => Some(pairs::run(200, or(Effort::Time(Duration::from_secs(90)))).await),
                "redlock" => Some(redlock::run(or(Effort::Times(100_000))).await),
                "reshard" => Some(reshard::run(or(Effort::Times(1_000))).await),
                "shards" => Some(shards::run(or(Effort::Times(20))).await),
                "scripts" => Some(scripts::run(or(Effort::Time(Duration::from_secs(60)))).await),
                "sharing" => Some(sharing::run(or(Effort::Times(500))).await),
                "stages" => Some(stages::run(or(Effort::Times(2_000))).await),
                "storm_redis" => {
                    Some(storm::run::<RedisServer>("storm_redis", or(storm::WHILE), seed).await)
                }
                "storm_postgres" => {
                    let name = "storm_postgres";
                    Some(storm::run::<PostgresServer>(name, or(storm::WHILE), seed).await)
                }
                "storm_etcd" => {
                    Some(storm::run::<EtcdServer>("storm_etcd", or(storm::WHILE), seed).await)
                }
                "storm_zookeeper" => {
                    let name = "storm_zookeeper";
                    Some(storm::run::<ZooKeeperServer>(name, or(storm::WHILE), seed).await)
                }
                _ => None,
            }
        })
        .unwrap_or_default();
    if report.is_empty() {
        return usage();
    }
    print!("{report}");
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How a program is run.
struct Options {
    effort: Option<Effort>,
    /// Of the faults, where a program has them at random.
    seed: u64,
}

/// The program's name, and its options.
fn read<'a>(args: &[&'a str]) -> Option<(&'a str, Options)> {
    let (name, mut rest) = args.split_first()?;
    let mut options = Options { effort: None, seed: 1 };
    // The arguments of a test's child are not ours.
    while let ([option, value, others @ ..], false) = (rest, in_fork()) {
        let number = value.parse().ok()?;
        match *option {
            "--seconds" => options.effort = Some(Effort::Time(Duration::from_secs(number))),
            "--seed" => options.seed = number,
            _ => return None,
        }
        rest = others;
    }
    (rest.is_empty() || in_fork()).then_some((name, options))
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
