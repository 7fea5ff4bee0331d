//! C: the server has limits and rules of its own.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{BackendKind, LockMode, WakeUps};
use distlock_testkit::{
    LONG, Log, Quorum, RedisServer, assert_lost, backend, clients, connect, in_own_process, info,
    ms, patient, patient_builder, runs, stored, this_test, wait_for, wait_until, wait_within,
    whole_text,
};
use tokio::task::JoinSet;

use crate::support::{BACK, Ledger, Watch, renewed, works_again};

/// `CONFIG SET`.
#[track_caller]
fn config(server: &RedisServer, name: &str, value: &str) {
    server.cli::<()>(&["CONFIG", "SET", name, value]);
}

#[tokio::test]
async fn c1_out_of_memory_no_lock_is_given_and_those_held_are_kept_and_freed() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("held").ttl(ms(4500)).acquire().await.expect("granted");
    let several = [
        manager.lock("read").mode(LockMode::Read).ttl(ms(4500)).acquire().await.expect("granted"),
        manager.lock("permits").permits(3).ttl(ms(4500)).acquire().await.expect("granted"),
    ];
    config(&server, "maxmemory", "1");
    let result = manager.lock("k").run(async { panic!("a body without its lock") }).await;
    assert_eq!(backend::<()>(result), BackendKind::OutOfMemory);
    // Also managers that connect only now.
    let late = patient(&server.url()).await;
    assert_eq!(backend(late.lock("k").acquire().await), BackendKind::OutOfMemory);
    let waiter = tokio::spawn(late.lock("k").ttl(LONG).wait(LONG).acquire());
    renewed(&guard).await;
    renewed(&guard).await;
    guard.release().await.expect("it was held all the time");
    for guard in several {
        renewed(&guard).await;
        guard.release().await.expect("it was held all the time");
    }
    assert!(server.lock_keys().is_empty());
    config(&server, "maxmemory", "0");
    drop(waiter.await.expect("no panic").expect("granted as soon as there is memory"));
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn c2_an_evicted_lock_is_lost() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let watch = Watch::default();
    let call = async {
        let request = manager.lock("k").ttl(ms(8000));
        let result = request.run(watch.endless(&manager, "k")).await;
        watch.ended_in_time();
        let error = result.expect_err("it was evicted");
        assert!(error.to_string().contains("free or with another owner"), "{error}");
        assert_lost::<()>(Err(error));
    };
    let evict = async {
        watch.polled(10).await;
        config(&server, "maxmemory-policy", "allkeys-lru");
        config(&server, "maxmemory", "1");
        wait_for("it is evicted", async || {
            // Redis evicts before it runs a command that could need memory.
            server.cli::<()>(&["PING"]);
            server.lock_keys().is_empty()
        })
        .await;
        config(&server, "maxmemory", "0");
    };
    tokio::join!(call, evict);
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn c2_a_server_that_may_evict_locks_is_named() {
    // In a process of its own: what is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let said = || log.text().lines().filter(|line| line.contains("may_evict")).count();
    let of = |memory, policy| {
        RedisServer::builder().args(["--maxmemory", memory, "--maxmemory-policy", policy]).start()
    };
    let harmless = [of("0", "allkeys-lru"), of("100mb", "noeviction"), of("100mb", "allkeys-lru")];
    let silent = user(&harmless[2], "~* &* +@all -info");
    for url in [harmless[0].url(), harmless[1].url(), silent] {
        // Once it is connected, everything has been asked.
        connect(&url).await;
        assert_eq!(said(), 0, "{}", log.text());
    }
    let server = of("100mb", "volatile-ttl");
    let first = connect(&server.url()).await;
    // Not again when its connection is made again.
    let before = clients(&server);
    assert_eq!(server.cli::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"]), 1);
    wait_for("it is made again", async || !clients(&server).is_subset(&before)).await;
    wait_for("it is notified", async || first.status().wake_ups == WakeUps::Notified).await;
    let text = log.text();
    let line = text.lines().find(|line| line.contains("may_evict")).expect("a line");
    assert!(line.starts_with("WARN") && line.contains("volatile-ttl"), "{line}");
    assert_eq!(said(), 1, "once for each manager: {text}");
    works_again(&first, &server).await;
}

#[tokio::test]
async fn c3_a_server_that_cannot_save_gives_no_lock_and_says_so_of_a_release() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("held").ttl(LONG).acquire().await.expect("granted");
    config(&server, "save", "3600 1");
    // A directory where the dump should be.
    let (_, dir): (String, String) = server.cli(&["CONFIG", "GET", "dir"]);
    let dump = Path::new(&dir).join("dump.rdb");
    fs::create_dir(&dump).expect("a directory");
    server.cli::<()>(&["BGSAVE"]);
    let status = || server.cli::<String>(&["INFO", "persistence"]);
    wait_until("it could not save", || status().contains("rdb_last_bgsave_status:err"));

    let error = manager.lock("k").ttl(LONG).acquire().await.expect_err("no writes");
    assert!(whole_text(&error).contains("MISCONF"), "{error:?}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
    let waiter = tokio::spawn(manager.lock("waiter").ttl(LONG).wait(LONG).acquire());
    let error = guard.release().await.expect_err("it cannot be freed either");
    assert!(whole_text(&error).contains("MISCONF"), "{error:?}");
    assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
    assert_eq!(server.lock_keys(), [stored("held")]);

    fs::remove_dir(&dump).expect("its directory");
    server.cli::<()>(&["BGSAVE"]);
    drop(waiter.await.expect("no panic").expect("granted as soon as it can save"));
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn c4_forgotten_scripts_are_sent_again_and_no_update_is_lost() {
    let server = RedisServer::start();
    let over = Arc::new(AtomicBool::new(false));
    let flushing = thread::spawn({
        let (mut hand, over) = (server.eye(), over.clone());
        move || {
            while !over.load(SeqCst) {
                redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut hand).expect("flushed");
                thread::sleep(ms(1));
            }
        }
    });
    let ledger = Arc::new(Ledger::default());
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let manager = patient(&server.url()).await;
        // Renewed every few seconds, so that renewals meet it as well.
        let held = manager.lock(format!("held-{}", tasks.len())).ttl(ms(8000));
        let held = held.acquire().await.expect("granted");
        for n in 0..3 {
            let (manager, ledger) = (manager.clone(), ledger.clone());
            tasks.spawn(async move {
                for _ in 0..10 {
                    let request = manager.lock("k").ttl(LONG).wait(LONG);
                    request.run(ledger.add_one()).await.expect("granted");
                    let own = manager.lock(format!("own-{n}")).wait(LONG).acquire().await;
                    own.expect("granted").release().await.expect("it was held");
                }
            });
        }
        tasks.spawn(async move {
            for _ in 0..2 {
                renewed(&held).await;
            }
            held.release().await.expect("it was held all the time");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    over.store(true, SeqCst);
    flushing.join().expect("no panic");
    ledger.nothing_was_lost();
    assert_eq!(ledger.written(), 60);
    let forgotten = server.cli::<String>(&["INFO", "errorstats"]).contains("NOSCRIPT");
    assert!(forgotten, "the scripts were known all the time");
    assert_eq!(runs(&server, "script|load"), 0);
    wait_until("no key is left", || server.lock_keys().is_empty());
}

/// A user with `rights` and the manager's URL for it.
fn user(server: &RedisServer, rights: &str) -> String {
    let rule = format!("ACL SETUSER app on >secret {rights}");
    server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
    format!("redis://app:secret@{}", server.addr())
}

#[tokio::test]
async fn c5_what_an_acl_denies_is_an_error_at_the_start() {
    let server = RedisServer::start();
    for rights in ["~other:* +@all", "~distlock:* +@all -evalsha", "~distlock:* +@all -incr -set"] {
        let url = user(&server, &format!("reset on >secret {rights}"));
        let connected = patient_builder(&url).connect().await;
        assert_eq!(backend(connected), BackendKind::Refused, "{rights}");
        let manager = patient_builder(&url).build().expect("lazy");
        // It is not waited for: nothing changes by itself.
        let result =
            manager.lock("k").wait(2 * LONG).run(async { panic!("a body without its lock") });
        let result = tokio::time::timeout(LONG, result).await.expect("it is not waited for");
        assert_eq!(backend::<()>(result), BackendKind::Refused, "{rights}");
    }
    assert!(server.lock_keys().is_empty());
}

/// What is enough: nothing but the commands that locks use, on their own keys.
#[tokio::test]
async fn c5_the_commands_of_locks_on_their_keys_are_enough() {
    let server = RedisServer::start();
    let rights = [
        "~distlock:* +set +get +del +incr +pttl +pexpire +exists +time +eval +evalsha",
        "+zadd +zrem +zrange +zrank +zcard +zscore +zpopmin",
    ]
    .join(" ");
    let manager = patient(&user(&server, &format!("reset on >secret {rights}"))).await;
    manager.ping().await.expect("answered");
    let guard = manager.lock("k").ttl(ms(8000)).acquire().await.expect("granted");
    renewed(&guard).await;
    assert!(manager.lock("k").acquire().await.expect_err("it is held").is_busy());
    guard.release().await.expect("it was held");
    works_again(&manager, &server).await;
}

/// Fault: H12.
#[tokio::test]
async fn c6_changed_credentials_are_an_error_at_once_until_they_fit_again() {
    let server = RedisServer::start();
    let url = user(&server, "~* &* +@all");
    let manager = patient(&url).await;
    drop(manager.lock("k").acquire().await.expect("granted"));
    server.cli::<()>(&["ACL", "SETUSER", "app", "resetpass", ">another"]);
    server.cli::<()>(&["CLIENT", "KILL", "USER", "app"]);
    let refused = async || {
        let result = manager.lock("k").wait(2 * LONG).acquire();
        let result = tokio::time::timeout(LONG, result).await.expect("it is not waited for");
        let error = result.expect_err("the password is wrong");
        assert!(!format!("{error:?} {}", whole_text(&error)).contains("secret"), "{error:?}");
        backend::<()>(Err(error)) == BackendKind::Refused
    };
    // At first the connection may only be gone.
    wait_for("it is refused", refused).await;
    let before = info(&server, "total_connections_received");
    for _ in 0..200 {
        assert!(refused().await);
    }
    // `INFO` itself needs some.
    let tried = info(&server, "total_connections_received") - before;
    assert!(tried < 100, "{tried} connections for 200 calls");
    server.cli::<()>(&["ACL", "SETUSER", "app", "resetpass", ">secret"]);
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn c8_without_enough_replicas_nothing_is_given_and_what_is_held_is_lost_in_time() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let watch = Watch::default();
    let call = async {
        let request = manager.lock("held").ttl(ms(3000));
        let result = request.run(watch.endless(&manager, "held")).await;
        watch.ended_in_time();
        assert_lost(result);
    };
    let fault = async {
        watch.polled(10).await;
        config(&server, "min-replicas-to-write", "1");
        let error = manager.lock("k").ttl(LONG).acquire().await.expect_err("no replica");
        assert!(whole_text(&error).contains("NOREPLICAS"), "{error:?}");
        assert_eq!(backend::<()>(Err(error)), BackendKind::Other);
    };
    tokio::join!(call, fault);
    let waiter = tokio::spawn(manager.lock("waiter").ttl(LONG).wait(LONG).acquire());
    tokio::task::yield_now().await;
    // By its ttl: it can neither be extended nor freed.
    wait_for("it has expired", async || server.lock_keys().is_empty()).await;
    config(&server, "min-replicas-to-write", "0");
    drop(waiter.await.expect("no panic").expect("granted as soon as the server takes writes"));
    works_again(&manager, &server).await;
}

/// A release that the server refuses is an error, is repeated, and is done as soon as the server takes it: for each way
/// to hold a lock, with others waiting and without.
/// Fault: C8, D3.
#[tokio::test]
async fn fc2_a_refused_release_is_repeated_in_every_mode() {
    const REFUSALS: [(&str, &str); 2] = [
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    ];
    let server = RedisServer::start();
    // A replica is asked again for that long.
    let manager = patient_builder(&server.url()).command_timeout(ms(3000)).connect().await;
    let (manager, other) = (manager.expect("connect"), connect(&server.url()).await);
    let command = |words: &str| server.cli::<()>(&words.split(' ').collect::<Vec<_>>());
    for (refuse, accept) in REFUSALS {
        let exclusive = |key: &str| manager.lock(key).ttl(LONG);
        let requests = |of: &str| {
            let key = |mode: &str| format!("{of} {mode}");
            [
                exclusive(&key("exclusive")),
                exclusive(&key("write")).mode(LockMode::Write),
                exclusive(&key("read")).mode(LockMode::Read),
                exclusive(&key("permit")).permits(2),
            ]
        };
        let (mut guards, mut dropped) = (Vec::new(), Vec::new());
        for of in ["waited for", "alone"] {
            for request in requests(of) {
                guards.push(request.acquire().await.expect("free"));
            }
            let writer = exclusive(&format!("{of} downgraded")).mode(LockMode::Write);
            let writer = writer.acquire().await.expect("free");
            guards.push(writer.downgrade().await.expect("it is held"));
        }
        for request in requests("dropped") {
            dropped.push(request.acquire().await.expect("free"));
        }
        let mut waiting = JoinSet::new();
        for mode in ["exclusive", "write", "read", "permit", "downgraded"] {
            let request = other.lock(format!("waited for {mode}")).ttl(LONG).wait(LONG);
            waiting.spawn(request.acquire());
        }
        wait_for("all wait", async || server.lock_keys().len() == 14 + 5).await;
        command(refuse);
        drop(dropped);
        let mut releases = JoinSet::new();
        guards.into_iter().for_each(|guard| _ = releases.spawn(guard.release()));
        while let Some(released) = releases.join_next().await {
            // Not that it was lost.
            backend(released.expect("no panic"));
        }
        command(accept);
        while let Some(served) = waiting.join_next().await {
            drop(served.expect("no panic").expect("it is handed on when the server takes writes"));
        }
        // Long before the leases are over.
        wait_within(BACK, "all are free", || server.lock_keys().is_empty());
    }
    works_again(&manager, &server).await;
}

/// The same in a cluster, whose scripts are others, and over several servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fc2_a_refused_release_is_repeated_in_a_cluster_and_at_a_quorum() {
    let cluster = RedisServer::builder().args(["--cluster-enabled", "yes"]).start();
    cluster.cli::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    wait_until("the cluster is up", || {
        cluster.cli::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    let url = format!("redis-cluster://{}", cluster.addr());
    refused_and_repeated(&url, &[cluster], true).await;
    let quorum = Quorum::of(3);
    refused_and_repeated(&quorum.url(), &quorum.nodes, false).await;
}

async fn refused_and_repeated(url: &str, nodes: &[RedisServer], has_permits: bool) {
    let manager = patient(url).await;
    let lock = |key: &str| manager.lock(key).ttl(LONG);
    let mut guards = vec![
        lock("exclusive").acquire().await.expect("free"),
        lock("read").mode(LockMode::Read).acquire().await.expect("free"),
    ];
    if has_permits {
        guards.push(lock("permit").permits(2).acquire().await.expect("free"));
    }
    nodes.iter().for_each(|node| config(node, "min-replicas-to-write", "1"));
    for guard in guards {
        let error = guard.release().await.expect_err("no server takes writes");
        assert!(whole_text(&error).contains("NOREPLICAS"), "{error:?}");
    }
    nodes.iter().for_each(|node| config(node, "min-replicas-to-write", "0"));
    wait_for("all are free", async || nodes.iter().all(|node| node.lock_keys().is_empty())).await;
}

/// A server that refuses to read takes no lock from its holder: that is no "it is not yours".
#[tokio::test]
async fn fc2_a_server_that_refuses_to_read_takes_no_lock_from_its_holder() {
    const TTL: Duration = ms(9000);
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let start = Instant::now();
    let lock = |key: &str| manager.lock(key).ttl(TTL);
    let guards = [
        lock("exclusive").acquire().await.expect("free"),
        lock("read").mode(LockMode::Read).acquire().await.expect("free"),
        lock("permit").permits(2).acquire().await.expect("free"),
    ];
    server.cli::<()>(&["ACL", "SETUSER", "default", "-get", "-zscore"]);
    wait_for("renewals were due", async || start.elapsed() > TTL / 2).await;
    for guard in &guards {
        let ran_out = guard.remaining() == Duration::ZERO && start.elapsed() > TTL;
        assert!(guard.is_held() || ran_out, "{guard:?} was lost after {:?}", start.elapsed());
    }
    server.cli::<()>(&["ACL", "SETUSER", "default", "+@all"]);
    for guard in &guards {
        // On a busy machine its time may have run out.
        if guard.is_held() && start.elapsed() < TTL * 2 / 3 {
            renewed(guard).await;
        }
    }
    drop(guards);
    works_again(&manager, &server).await;
}

#[tokio::test]
async fn c9_a_server_without_scripts_is_refused_at_the_start_with_the_reason() {
    for forbidden in [&["EVAL"][..], &["EVAL", "EVALSHA"]] {
        let args = forbidden.iter().flat_map(|command| ["--rename-command", command, ""]);
        let server = RedisServer::builder().args(args).start();
        let builder = patient_builder(&server.url());
        let error = builder.clone().connect().await.expect_err("it cannot free locks");
        assert!(whole_text(&error).contains("unknown command"), "{error:?}");
        let manager = builder.build().expect("lazy");
        let result = manager.lock("k").wait(2 * LONG).acquire();
        let result = tokio::time::timeout(LONG, result).await.expect("it is not waited for");
        assert_eq!(backend(result), BackendKind::Other);
        assert!(server.lock_keys().is_empty());
    }
}

/// No RESP3, as behind many proxies.
#[tokio::test]
async fn c9_a_server_without_hello_will_do() {
    let server = RedisServer::builder().args(["--rename-command", "HELLO", ""]).start();
    let manager = patient(&server.url()).await;
    let guard = manager.lock("k").ttl(ms(8000)).acquire().await.expect("granted");
    renewed(&guard).await;
    guard.release().await.expect("it was held");
    wait_within(BACK, "no key is left", || server.lock_keys().is_empty());
}
