//! A few seconds of each soak program: order and outcome only. For figures, run them on a quiet
//! machine: `cargo run --release -p soak -- NAME`.

use std::time::Duration;

use distlock_testkit::{Etcd, EtcdServer, PostgresServer, RedisServer, ZooKeeper, ZooKeeperServer};
use soak::faults::Kind;
use soak::{
    Effort, Report, cancel, capacity, chaos, ensembles, failover, faults, handoffs, held, idle,
    kept, leaders, outage, pairs, redlock, refused, reshard, scripts, shards, sharing, stages,
    storm, suspend, waiters,
};

#[track_caller]
fn clean(report: &Report) {
    assert!(report.violations().is_empty(), "\n{report}");
    assert!(!report.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capacity() {
    clean(&capacity::run(Effort::Times(1_000)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel() {
    clean(&cancel::run(Effort::Times(2_000)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage() {
    // Each fault once.
    clean(&outage::run(Effort::Times(7)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover() {
    clean(&failover::run(Effort::Times(1)).await);
}

/// The name by which the holder's process finds this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspend() {
    clean(&suspend::run(Effort::Times(3)).await);
}

/// Fault: I3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held() {
    let ttl = Duration::from_secs(10);
    clean(&held::run(500, ttl, Effort::Time(ttl)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle() {
    clean(&idle::run(Effort::Time(Duration::from_secs(5))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused() {
    clean(&refused::run(200, Effort::Time(Duration::from_secs(2))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept() {
    clean(&kept::run(1_000).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock() {
    clean(&redlock::run(Effort::Times(500)).await);
}

/// Fault: D5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reshard() {
    clean(&reshard::run(Effort::Times(20)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards() {
    clean(&shards::run(Effort::Times(1)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts() {
    clean(&scripts::run(Effort::Times(1_000)).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharing() {
    clean(&sharing::run(Effort::Times(10)).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_redis() {
    clean(&storm::run::<RedisServer>("storm_redis", Effort::Times(10), 13).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_etcd() {
    clean(&storm::run::<EtcdServer>("storm_etcd", Effort::Times(10), 13).await);
}

/// Fault: P1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_postgres() {
    clean(&storm::run::<PostgresServer>("storm_postgres", Effort::Times(10), 13).await);
}

/// Fault: Z1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_zookeeper() {
    clean(&storm::run::<ZooKeeperServer>("storm_zookeeper", Effort::Times(10), 13).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos() {
    clean(&chaos::run(Effort::Times(6)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_redlock() {
    clean(&faults::run(Kind::Redlock, Effort::Times(2), 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_sentinel() {
    clean(&faults::run(Kind::Sentinel, Effort::Times(1), 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_replicas() {
    clean(&faults::run(Kind::Replicas, Effort::Times(1), 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_cluster() {
    clean(&faults::run(Kind::Cluster, Effort::Times(1), 1).await);
}

/// The name by which the processes find this test.
/// Fault: ET8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensembles_etcd() {
    clean(&ensembles::run::<Etcd>("ensembles_etcd", Effort::Times(2), 1).await);
}

/// Fault: Z4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensembles_zookeeper() {
    clean(&ensembles::run::<ZooKeeper>("ensembles_zookeeper", Effort::Times(2), 1).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders() {
    clean(&leaders::run(Effort::Times(8)).await);
}

/// The name by which the processes find this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs() {
    clean(&handoffs::run(Effort::Times(20_000)).await);
}

/// Fault: I1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters() {
    clean(&waiters::run(1_000, Effort::Time(Duration::from_secs(6))).await);
}

/// Fault: WH1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs() {
    clean(&pairs::run(200, Effort::Time(Duration::from_secs(12))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages() {
    clean(&stages::run(Effort::Times(20)).await);
}
