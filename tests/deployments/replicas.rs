//! `replicas(n)`: a grant or a renewal counts once so many replicas have it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockError, LockManager};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, SECOND, assert_lost, backend, held, ms, notified, served,
    wait_for, wait_until, waits, whole_text,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A primary, its replica, and the network between them.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    network: Proxy,
}

impl Pair {
    fn start() -> Self {
        let primary = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
        let network = Proxy::to(primary.addr());
        let port = network.addr().port().to_string();
        let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
        let pair = Self { primary, replica, network };
        wait_until("the replica is in step", || {
            pair.primary.cli::<i64>(&["WAIT", "1", "100"]) == 1
                && pair.primary.cli::<String>(&["INFO", "replication"]).contains("state=online")
        });
        pair
    }

    /// Each grant and renewal takes this long to be confirmed, twice.
    fn far(self, delay: Duration) -> Self {
        self.network.set(Mode::Delay(delay));
        self
    }

    async fn manager(&self, replica_timeout: Duration) -> LockManager {
        self.manager_that_asks(1, replica_timeout).await
    }

    async fn manager_that_asks(&self, replicas: u32, replica_timeout: Duration) -> LockManager {
        let builder = LockManager::builder().url(self.primary.url()).command_timeout(5 * SECOND);
        let builder = builder.replicas(replicas).replica_timeout(replica_timeout);
        notified(builder.connect().await.expect("connect")).await
    }

    /// How often `WAIT` was called.
    fn asked(&self) -> u64 {
        let stats: String = self.primary.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
        calls.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }
}

/// Without what `replicas` does, the replica would learn of a lock a while after its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_granted_is_on_the_replica() {
    let pair = Pair::start().far(ms(30));
    let (one, other) = (pair.manager(2 * SECOND).await, pair.manager(2 * SECOND).await);
    for turn in 0..5 {
        // Alone, and behind another process.
        let guard = held(&one, "k").await;
        assert_eq!(pair.replica.held_locks().len(), 1, "turn {turn}: not on the replica");
        let token: String = pair.replica.cli(&["GET", "distlock:lock:{k}"]);
        let next = waits(&other, "k");
        wait_for("it waits", async || other.status().waiting == 1).await;
        guard.release().await.expect("it was held");
        let guard = served(next).await;
        let next: String = pair.replica.cli(&["GET", "distlock:lock:{k}"]);
        assert_ne!(token, next, "turn {turn}: the second is not on the replica");
        guard.release().await.expect("it was held");
    }
}

/// One `WAIT` is for many tries, and not for those that are sent behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_locks_each_that_was_granted_is_on_the_replica() {
    let pair = Pair::start().far(ms(10));
    let manager = pair.manager(2 * SECOND).await;
    let replica = redis::Client::open(pair.replica.url()).expect("a URL");
    let replica = replica.get_multiplexed_async_connection().await.expect("connect");
    let mut tasks = JoinSet::new();
    for task in 0..24 {
        let (manager, mut replica) = (manager.clone(), replica.clone());
        tasks.spawn(async move {
            for round in 0..15 {
                // Not all in step.
                tokio::time::sleep(ms(task % 5)).await;
                let key = format!("{task}:{round}");
                let guard = held(&manager, &key).await;
                let mut exists = redis::cmd("EXISTS");
                exists.arg(format!("distlock:lock:{{{key}}}"));
                let there: u32 = exists.query_async(&mut replica).await.expect("an answer");
                assert_eq!(there, 1, "{key} was granted and is not on the replica");
                guard.release().await.expect("it was held");
            }
        });
    }
    tasks.join_all().await;
    wait_until("nothing is left", || pair.primary.lock_keys().is_empty());
}

/// Fault: D2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_replica_no_lock_is_given_and_none_is_left() {
    let pair = Pair::start();
    let manager = pair.manager(ms(200)).await;
    served(waits(&manager, "before")).await.release().await.expect("it was held");
    pair.network.set(Mode::Freeze);
    for mode in [distlock::LockMode::Exclusive, distlock::LockMode::Read] {
        let error =
            manager.lock("k").mode(mode).ttl(LONG).acquire().await.expect_err("unconfirmed");
        assert!(!error.is_busy());
        assert!(whole_text(&error).contains("0 of 1 replicas confirmed"), "{error:?}");
        assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
        wait_until("it is free again", || pair.primary.lock_keys().is_empty());
    }
    let patient = tokio::spawn(manager.lock("k").ttl(LONG).wait(LONG).acquire());
    let refused = manager.lock("other").ttl(LONG).wait(SECOND).acquire().await;
    assert!(matches!(refused, Err(LockError::Backend { .. })), "{refused:?}");
    pair.network.set(Mode::Pass);
    served(patient).await.release().await.expect("it was held");
    wait_until("nothing is left", || pair.primary.lock_keys().is_empty());
}

/// Fault: FC8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_fewer_replicas_than_asked_for_no_lock_is_given_and_none_is_extended() {
    let pair = Pair::start();
    let manager = pair.manager_that_asks(2, ms(500)).await;
    for mode in [distlock::LockMode::Exclusive, distlock::LockMode::Read] {
        let error =
            manager.lock("k").mode(mode).ttl(LONG).acquire().await.expect_err("one is missing");
        assert!(whole_text(&error).contains("of 2 replicas confirmed"), "{error:?}");
        wait_until("it is free again", || pair.primary.lock_keys().is_empty());
    }
    let port = pair.primary.addr().port().to_string();
    let second = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    wait_until("both are in step", || pair.primary.cli::<i64>(&["WAIT", "2", "100"]) == 2);
    let ttl = 6 * SECOND;
    let guard = manager.lock("k").ttl(ttl).wait(LONG).acquire().await.expect("both confirm");
    drop(second);
    let alone = Instant::now();
    timeout(LONG, guard.lost()).await.expect("it is lost");
    assert!(alone.elapsed() <= ttl + 3 * SECOND, "after {:?}", alone.elapsed());
}

/// Fault: D2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_no_replica_confirms_extends_nothing() {
    let pair = Pair::start();
    let manager = pair.manager(ms(500)).await;
    // One renewal that counted would move the end by four seconds.
    let ttl = 12 * SECOND;
    let guard = manager.lock("k").ttl(ttl).wait(LONG).acquire().await.expect("it is free");
    pair.network.set(Mode::Freeze);
    let frozen = Instant::now();
    timeout(LONG, guard.lost()).await.expect("it is lost");
    assert!(
        frozen.elapsed() <= ttl + 3 * SECOND,
        "after {:?}: an answer was believed",
        frozen.elapsed()
    );
    assert_lost(guard.release().await);
    pair.network.set(Mode::Pass);
    drop(held(&manager, "other").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_replica_that_is_back_in_time_it_is_as_if_nothing_had_been() {
    let pair = Pair::start();
    let manager = pair.manager(ms(500)).await;
    let ttl = 12 * SECOND;
    let guard = manager.lock("k").ttl(ttl).wait(LONG).acquire().await.expect("it is free");
    pair.network.set(Mode::Freeze);
    tokio::time::sleep(ttl / 2).await;
    pair.network.set(Mode::Pass);
    tokio::time::sleep(ttl).await;
    guard.release().await.expect("it was held all the time");
}

/// The promise: a replica that had confirmed takes over, and the lock is still held.
/// Fault: D1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted_keeps_every_lock_that_was_granted() {
    for _ in 0..3 {
        let pair = Pair::start().far(ms(10));
        let manager = pair.manager(2 * SECOND).await;
        let locks = (0..20).map(|n| {
            let manager = manager.clone();
            tokio::spawn(async move { held(&manager, &format!("k{n}")).await })
        });
        let mut guards = Vec::new();
        for lock in locks.collect::<Vec<_>>() {
            guards.push(lock.await.expect("no panic"));
        }
        let highest = guards.iter().map(|guard| guard.fencing_token()).max();
        // In this moment: nothing more gets through.
        pair.network.set(Mode::Reset);
        pair.replica.cli::<()>(&["REPLICAOF", "NO", "ONE"]);
        let next = LockManager::connect(&pair.replica.url()).await.expect("a primary");
        for n in 0..20 {
            let taken = next.lock(format!("k{n}")).acquire().await;
            assert!(taken.is_err_and(|error| error.is_busy()), "k{n} was granted and is free");
        }
        let token = held(&next, "new").await.fencing_token();
        assert!(Some(token) > highest);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_taken_together_share_the_wait() {
    let pair = Pair::start().far(ms(20));
    let manager = pair.manager(2 * SECOND).await;
    let before = pair.asked();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let manager = manager.clone();
            tokio::spawn(async move { held(&manager, &format!("k{n}")).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").release().await.expect("it was held");
    }
    let (asked, took) = (pair.asked() - before, begun.elapsed());
    // By themselves: 64, one behind the other, and 2.5 s.
    assert!(asked <= 16, "{asked} times in {took:?}");
}

/// The call that asks for others may be dropped while it waits for the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_while_replicas_are_asked_holds_nobody_up() {
    let pair = Pair::start().far(ms(50));
    let manager = Arc::new(pair.manager(2 * SECOND).await);
    for round in 0..10 {
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                let manager = manager.clone();
                tokio::spawn(async move {
                    let key = format!("{round}:{n}");
                    let call = manager.lock(key).ttl(LONG).acquire();
                    match n < 6 {
                        true => drop(timeout(ms(20 * n), call).await),
                        false => call.await.map(drop).expect("granted"),
                    }
                })
            })
            .collect();
        for task in tasks {
            timeout(LONG, task).await.expect("nobody is held up").expect("no panic");
        }
    }
    wait_until("nothing is left", || pair.primary.lock_keys().is_empty());
}

#[tokio::test]
async fn a_server_that_refuses_wait_is_found_out_at_the_start() {
    let server = RedisServer::start();
    server.cli::<()>(&["ACL", "SETUSER", "app", "on", ">hush-hush", "~*", "&*", "+@all", "-wait"]);
    let url = format!("redis://app:hush-hush@{}?replicas=1", server.addr());
    let error = LockManager::connect(&url).await.expect_err("it would give no lock");
    let text = whole_text(&error);
    assert!(text.contains("+wait") && !text.contains("hush"), "{text}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Refused);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let builder = || LockManager::builder().url("redis://h?replicas=1");
    for (builder, words) in [
        (builder().replicas(1), "given twice"),
        (builder().replica_timeout(SECOND), "less than `command_timeout`"),
        (builder().replica_timeout(Duration::ZERO), "at least 1 ms"),
        (builder().sentinel_credentials("me", "hush"), "names no sentinels"),
        (
            LockManager::builder()
                .url("redis-sentinel://a/m?sentinel_pass=hush")
                .sentinel_credentials("", "hush"),
            "given twice",
        ),
    ] {
        assert!(!format!("{builder:?}").contains("hush"));
        let text = whole_text(&builder.build().expect_err("it cannot be used"));
        assert!(text.contains(words) && !text.contains("hush"), "{text}");
    }
}
