//! What is sent to the server, counted there: the same with and without an observer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use distlock::LockManager;
use distlock_testkit::{LONG, RedisServer, SECOND, in_own_process, stand, this_test, wait_for};

use crate::text::{install, sum};

const LOCKS: u64 = 200;
/// How often a process sends its record while it takes locks.
const RECORD: Duration = Duration::from_secs(20);

/// How often the server has run each command, those of the test itself aside.
fn sent(server: &RedisServer) -> BTreeMap<String, u64> {
    let info: String = server.cli(&["INFO", "commandstats"]);
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse().ok()?;
        let is_asking = ["info", "hello", "client|setinfo", "select"].contains(&name);
        (!is_asking).then(|| (name.to_owned(), calls))
    };
    info.lines().filter_map(line).collect()
}

/// What uncontended locks cost.
async fn work(server: &RedisServer, identify: bool) -> BTreeMap<String, u64> {
    let builder = LockManager::builder().url(server.url()).identify(identify);
    let manager = builder.connect().await.expect("a manager");
    // Connections, subscriptions and scripts have been seen to.
    manager.lock("first").run(async {}).await.expect("free");
    wait_for("it is subscribed", async || manager.status().wake_ups == distlock::WakeUps::Notified)
        .await;
    wait_for("all is quiet", async || {
        let before = sent(server);
        tokio::time::sleep(SECOND / 5).await;
        sent(server) == before
    })
    .await;
    let (before, began) = (sent(server), Instant::now());
    for n in 0..LOCKS {
        manager.lock(format!("k-{n}")).name("pay").run(async {}).await.expect("free");
    }
    let mut sent = sent(server);
    for (name, calls) in &mut sent {
        *calls -= before.get(name).copied().unwrap_or(0);
    }
    sent.retain(|_, calls| *calls > 0);
    // Neither the record of the process is part of a lock, nor that the counter of fencing tokens follows the
    // clock, which the server is asked for then.
    let raised = sent.remove("time").unwrap_or(0);
    // Not every try has its answers checked.
    assert!(sent.remove("echo").unwrap_or(0) <= LOCKS);
    let records = 1 + began.elapsed().as_secs() / RECORD.as_secs();
    for (name, more) in [("evalsha", 0), ("get", 0), ("set", if identify { records } else { 0 })] {
        let calls = sent.entry(name.to_owned()).or_default();
        assert!(
            (LOCKS..=LOCKS + more).contains(&(*calls - raised)),
            "{calls} times {name}, {raised}"
        );
        *calls = LOCKS;
    }
    manager.close(LONG).await;
    sent
}

#[test]
fn a_lock_takes_the_same_commands_whoever_observes_it() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = RedisServer::start();
        let unobserved = work(&server, false).await;
        // One to take a lock, one to give it back, with what the script of that runs.
        let each = ["set", "incr", "evalsha", "get", "del"].map(|name| unobserved.get(name));
        assert_eq!(each, [Some(&LOCKS); 5], "{unobserved:?}");
        assert_eq!(work(&server, true).await, unobserved, "with a record of the process");
        let prometheus = install();
        assert_eq!(work(&server, false).await, unobserved, "with metrics");
        assert_eq!(work(&server, true).await, unobserved, "with both");
        let calls = sum(&prometheus.render(), "distlock_acquisitions_total", &[("lock", "pay")]);
        assert_eq!(calls, 2.0 * LOCKS as f64, "they were recorded");
    });
}

/// Of one lock and of several, free and held elsewhere.
#[test]
fn each_try_is_timed_once() {
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let prometheus = install();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = RedisServer::start();
        let manager = async || {
            let builder = LockManager::builder().url(server.url()).identify(false);
            builder.connect().await.expect("a manager")
        };
        let (one, other) = (manager().await, manager().await);
        let keys = ["a", "b", "c"];
        for _ in 0..20 {
            one.lock("a").run(async {}).await.expect("free");
            one.lock_all(keys).run(async {}).await.expect("free");
        }
        let [held, behind] = ["b", "c"].map(|key| one.lock(key).acquire());
        let (held, behind) = (held.await.expect("free"), behind.await.expect("free"));
        for _ in 0..5 {
            other.lock("b").acquire().await.expect_err("held");
        }
        let waits = tokio::spawn(other.lock_all(keys).wait(LONG).acquire());
        stand(&server, "b", 1);
        // The last one is tried by itself, once it is the only one that is missing.
        behind.release().await.expect("held");
        held.release().await.expect("held");
        waits.await.expect("no panic").expect("free").release().await.expect("held");
        let text = prometheus.render();
        let timed = sum(&text, "distlock_command_seconds_count", &[("command", "set")]);
        // What are free, the two that are held, those that find one held, the three at once, and the last one.
        assert_eq!(timed, f64::from(20 * 4 + 2 + 5 + 3 + 1), "{text}");
    });
}
