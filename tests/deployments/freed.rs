//! A manager that is dropped leaves nothing behind in its process, wherever it keeps its locks.

use std::fs;

use distlock::LockManager;
use distlock_testkit::{
    Certificates, Cluster, EtcdServer, LONG, PostgresServer, Quorum, RedisServer, SECOND,
    Sentinels, ZooKeeperServer, in_own_process, ms, this_test, wait_for,
};

/// As many managers of each store.
const MANAGERS: usize = 200;
/// Opened at the same time.
const AT_ONCE: usize = 20;

/// Descriptors, threads, and memory in kB of this process.
fn owned() -> (usize, usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").expect("/proc").count();
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
    };
    (descriptors, number("Threads:"), number("VmRSS:"))
}

/// Opens managers, uses half of them, and drops them, some of them closed before.
async fn opened_and_dropped(url: &str, managers: usize) {
    let mut left = managers;
    while left > 0 {
        let tasks: Vec<_> = (0..AT_ONCE.min(left))
            .map(|number| {
                let builder = LockManager::builder().url(url).connect_timeout(LONG);
                let builder = builder.command_timeout(LONG).ttl(10 * SECOND);
                tokio::spawn(async move {
                    if number % 4 == 1 {
                        return drop(builder.build().expect("no I/O"));
                    }
                    let manager = builder.connect().await.expect("connect");
                    if number % 2 == 0 {
                        let guard = manager.lock(format!("k{number}")).wait(LONG).acquire().await;
                        guard.expect("a lock").release().await.expect("it was held");
                    }
                    if number % 3 == 0 {
                        manager.close(LONG).await;
                    }
                })
            })
            .collect();
        left -= tasks.len();
        for task in tasks {
            task.await.expect("no panic");
        }
    }
}

async fn leaves_nothing(scheme: &str, url: &str) {
    assert!(url.starts_with(&format!("{scheme}:")), "{url} is not of {scheme}");
    // What is made once, whatever is opened: pools of the allocator, roots of certificates.
    opened_and_dropped(url, MANAGERS / 4).await;
    let mut before = (0, 0, 0);
    wait_for("it is quiet", async || {
        let last = std::mem::replace(&mut before, owned());
        tokio::time::sleep(ms(100)).await;
        last.0 == before.0 && last.1 == before.1
    })
    .await;
    opened_and_dropped(url, MANAGERS).await;
    let mut after = before;
    wait_for(&format!("{scheme}: {before:?} again, of {MANAGERS} managers"), async || {
        after = owned();
        after.0 <= before.0 + 8 && after.1 <= before.1 + 2
    })
    .await;
    // 15 MB where managers are kept.
    assert!(after.2 < before.2 + 8_000, "{scheme}: {before:?} became {after:?}");
}

#[test]
fn fc10_managers_that_are_dropped_leave_nothing_behind() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let certificates = Certificates::new();
    let certificate = certificates.issue("local", &["IP:127.0.0.1"]);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let server = RedisServer::start();
    let secure = RedisServer::builder().tls(&certificate).start();
    let (sentinels, cluster, quorum) = (Sentinels::start(3), Cluster::start(3, 0), Quorum::of(3));
    let (postgres, etcd, zookeeper) =
        (PostgresServer::start(), EtcdServer::start(), ZooKeeperServer::start());
    runtime.block_on(async {
        leaves_nothing("memory", "memory://").await;
        leaves_nothing("redis", &server.url()).await;
        leaves_nothing("redis+unix", &server.unix_url()).await;
        leaves_nothing("rediss", &secure.tls_url("127.0.0.1")).await;
        leaves_nothing("redis-sentinel", &sentinels.url()).await;
        leaves_nothing("redis-cluster", &cluster.url()).await;
        leaves_nothing("redlock", &quorum.url()).await;
        leaves_nothing("postgres", &postgres.url()).await;
        leaves_nothing("etcd", &etcd.url()).await;
        leaves_nothing("zookeeper", &zookeeper.url()).await;
    });
}
