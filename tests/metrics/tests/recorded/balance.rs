use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use distlock::tower::LockLayer;
use distlock::{Leader, LockError, LockKey, LockManager, LockMode};
use distlock_testkit::{
    Cluster, LONG, Quorum, RedisServer, SECOND, dropped_after, in_own_process, ms, this_test,
    wait_for, wait_until,
};
use tokio::runtime::Runtime;
use tower::{Layer, ServiceExt, service_fn};

use crate::text::{install, sum};

/// So many calls, in runtimes that are dropped one after the other.
const CALLS: u64 = 100_000;
/// Of these on a server, on a cluster, and on a quorum of servers.
const ON_A_SERVER: u64 = 12_000;
const ON_A_CLUSTER: u64 = 8_000;
const ON_A_QUORUM: u64 = 4_000;
const OF_RUNTIME: u64 = 4_000;
/// Most of a call is waiting: many at a time, on so many keys that each has two or three that want it.
const TASKS: u64 = 96;
const KEYS: u64 = 40;

/// A number that looks random.
fn random(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x2545_f491_4f6c_dd1d);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Calls, of many kinds. Each is counted in the poll that it begins in.
async fn call(manager: &LockManager, n: u64, begun: &Arc<AtomicU64>) -> Result<(), LockError> {
    let random = random(n);
    let key = format!("key-{}", random % KEYS);
    let wait = match random >> 8 & 3 {
        0 => Duration::ZERO,
        some => ms(some * 4),
    };
    let count = || _ = begun.fetch_add(1, Relaxed);
    let lock = || {
        count();
        manager.lock(key.clone()).name("work").wait(wait)
    };
    let outer = || {
        count();
        manager.lock(key.clone()).name("outer").wait(wait)
    };
    match random >> 16 & 15 {
        // Without a word of the hook.
        0 => lock().run(async { std::panic::resume_unwind(Box::new("the body")) }).await,
        1 => lock().max_hold(ms(10)).run(std::future::pending()).await,
        2 => {
            let lost = lock().run(async {
                let _ = manager.force_release(key.clone()).await;
                tokio::time::sleep(ms(1)).await;
            });
            lost.await
        }
        3 => lock().acquire().await.map(drop),
        4 => lock().acquire().await?.release().await,
        5 => {
            let keys = (0..3).map(|at| format!("key-{}", (random >> 24 >> at) % KEYS));
            count();
            manager.lock_all(keys).name("work").wait(wait).acquire().await.map(drop)
        }
        6 => {
            count();
            manager.lock("").name("work").acquire().await.map(drop)
        }
        7 => lock().ttl(Duration::ZERO).acquire().await.map(drop),
        8 => {
            let nested = async { lock().reentrant(true).acquire().await.map(drop) };
            outer().run(nested).await?
        }
        9 => {
            let nested = async { lock().acquire().await.map(drop) };
            outer().run(nested).await?
        }
        10 => lock().mode(LockMode::Read).run(tokio::task::yield_now()).await,
        11 => lock().permits(2).run(tokio::task::yield_now()).await,
        12 => lock().mode(LockMode::Write).acquire().await?.downgrade().await?.release().await,
        13 => {
            let (request, begun) = (manager.lock(key).name("work").wait(wait), begun.clone());
            // The runtime may end before it gets to it.
            let parked = tokio::task::spawn_blocking(move || {
                begun.fetch_add(1, Relaxed);
                request.run_blocking(|_| ())
            });
            parked.await.unwrap_or(Ok(()))
        }
        14 => {
            count();
            layered(manager, random, wait).oneshot(key).await
        }
        _ => lock().run(tokio::task::yield_now()).await,
    }
}

/// A service behind the layer of tower, whose requests are keys.
fn layered(
    manager: &LockManager,
    random: u64,
    wait: Duration,
) -> impl tower::Service<String, Response = (), Error = LockError, Future: Send> + Send {
    let layer = LockLayer::new(manager.clone())
        .key_fn(|key: &String| LockKey::from(key.clone()))
        .with(move |request| request.name("layer").wait(wait).max_hold(ms(10)));
    layer.layer(service_fn(move |_: String| async move {
        match random >> 24 & 3 {
            0 => std::panic::resume_unwind(Box::new("the service")),
            1 => std::future::pending().await,
            _ => tokio::task::yield_now().await,
        }
        Ok(())
    }))
}

fn run(manager: &LockManager, from: u64, calls: u64, begun: &Arc<AtomicU64>) {
    let runtime = Runtime::new().expect("a runtime");
    for task in 0..TASKS {
        let (manager, begun) = (manager.clone(), begun.clone());
        runtime.spawn(async move {
            for n in (from..from + calls).skip(task as usize).step_by(TASKS as usize) {
                let (manager, begun) = (manager.clone(), begun.clone());
                let one = async move { call(&manager, n, &begun).await };
                match random(n) >> 40 & 7 {
                    0 => {
                        let polls = (random(n) >> 44 & 3) as usize;
                        drop(tokio::spawn(dropped_after(polls, one)).await);
                    }
                    _ => drop(tokio::spawn(one).await),
                }
            }
        });
    }
    let end = begun.load(Relaxed) + calls * 9 / 10;
    wait_until("most calls have begun", || begun.load(Relaxed) >= end);
    // Whatever is under way ends with it.
    drop(runtime);
}

#[test]
fn sums_are_right_and_gauges_zero_whatever_becomes_of_calls() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let prometheus = install();
    let (server, cluster, quorum) = (RedisServer::start(), Cluster::start(3, 0), Quorum::of(3));
    let begun = Arc::new(AtomicU64::new(0));
    for (url, calls) in [
        ("memory://".to_owned(), CALLS - ON_A_SERVER - ON_A_CLUSTER - ON_A_QUORUM),
        (server.url(), ON_A_SERVER),
        (cluster.url(), ON_A_CLUSTER),
        (quorum.url(), ON_A_QUORUM),
    ] {
        let manager = LockManager::connect_lazy(&url).expect("a manager");
        for from in (0..calls).step_by(OF_RUNTIME as usize) {
            run(&manager, from, OF_RUNTIME, &begun);
        }
        let runtime = Runtime::new().expect("a runtime");
        assert!(runtime.block_on(manager.close(LONG)).is_complete());
    }
    let text = prometheus.render();
    let all = |name, labels: &[(&str, &str)]| sum(&text, name, labels);
    for gauge in ["distlock_held", "distlock_waiting", "distlock_longest_hold_seconds"] {
        assert_eq!(all(gauge, &[]), 0.0, "{gauge}: {text}");
    }
    let calls = all("distlock_acquisitions_total", &[]);
    assert_eq!(calls, begun.load(Relaxed) as f64, "{text}");
    assert!(calls >= CALLS as f64 * 0.9, "{calls}");
    let acquired = all("distlock_acquisitions_total", &[("outcome", "acquired")]);
    assert_eq!(all("distlock_wait_seconds_count", &[("outcome", "acquired")]), acquired);
    let cancelled = all("distlock_acquisitions_total", &[("outcome", "cancelled")]);
    let answered = all("distlock_wait_seconds_count", &[]);
    assert_eq!(answered, calls - cancelled);
    // On a busy machine few get a lock within their wait.
    for outcome in ["acquired", "busy", "deadlock", "invalid", "cancelled"] {
        let calls = all("distlock_acquisitions_total", &[("outcome", outcome)]);
        assert!(calls > 10.0, "{outcome}: {text}");
    }
    for name in ["work", "outer", "layer"] {
        let labels = [("lock", name), ("outcome", "acquired")];
        assert!(all("distlock_acquisitions_total", &labels) > 10.0, "{name}: {text}");
    }
    for reason in ["forced", "max_hold"] {
        assert!(all("distlock_lost_total", &[("reason", reason)]) > 10.0, "{reason}: {text}");
    }
}

/// Each term is one call that had its lock, and the last one leaves nothing held.
#[test]
fn terms_of_leaders_are_counted_and_leave_nothing() {
    const CAMPAIGNS: usize = 3;
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let prometheus = install();
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let manager = LockManager::in_memory();
        let campaign = |_| manager.leader("job").name("lead").ttl(SECOND).start();
        let mut campaigns: Vec<_> = (0..CAMPAIGNS).map(campaign).collect();
        while !campaigns.is_empty() {
            let leads = || campaigns.iter().position(Leader::is_leader);
            wait_for("one leads", async || leads().is_some()).await;
            let held = sum(&prometheus.render(), "distlock_held", &[("lock", "lead")]);
            assert_eq!(held, 1.0, "{}", prometheus.render());
            drop(campaigns.remove(leads().expect("one leads")));
        }
        assert!(manager.close(LONG).await.is_complete());
    });
    let text = prometheus.render();
    for gauge in ["distlock_held", "distlock_waiting"] {
        assert_eq!(sum(&text, gauge, &[("lock", "lead")]), 0.0, "{gauge}: {text}");
    }
    let labels = [("lock", "lead"), ("outcome", "acquired")];
    assert_eq!(sum(&text, "distlock_acquisitions_total", &labels), CAMPAIGNS as f64, "{text}");
}
