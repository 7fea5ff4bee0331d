//! The holders of a lock, its waiters, and which processes there are.

use std::collections::HashMap;
use std::process;
use std::time::{Duration, Instant};

use distlock::{Holder, LockManager, LockStatus, Process, Waiter, key};
use distlock_testkit::{
    Fork, LONG, RedisServer, connect, connect_all, fork_self, held, in_fork, in_line,
    patient_builder, runs, served, stand, wait_for, wait_until, waits,
};

/// The holders and waiters of a lock that is held.
async fn inspected(by: &LockManager, key: &str) -> (Vec<Holder>, Vec<Waiter>) {
    match by.inspect(key).await.expect("an answer") {
        LockStatus::Held { holders, waiters, .. } => (holders, waiters),
        other => panic!("it is held, not {other:?}"),
    }
}

async fn holder(by: &LockManager, key: &str) -> Holder {
    let (holders, _) = inspected(by, key).await;
    assert_eq!(holders.len(), 1);
    holders[0].clone()
}

fn of(process: Option<&Process>) -> String {
    process.map_or("nobody known".to_owned(), |process| process.app.clone())
}

/// A process that holds the lock that is named after it, and waits for `k`.
fn start(server: &RedisServer, app: &str) -> Fork {
    let env = [("DISTLOCK_APP", app), ("SERVER", &server.url())];
    fork_self("inspect::of_four_processes_the_right_one_is_named", &env)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_processes_the_right_one_is_named() {
    if in_fork() {
        let url = std::env::var("SERVER").expect("a server");
        let app = std::env::var("DISTLOCK_APP").expect("a name");
        let manager = connect(&url).await;
        let id = app.clone();
        let own = manager.lock(key!("own:{id}")).name("sitting").acquire().await;
        let k = manager.lock("k").wait(20 * LONG).name("standing").acquire().await;
        tokio::time::sleep(20 * LONG).await;
        drop((own, k));
        return;
    }
    let server = RedisServer::start();
    let apps = ["till", "cellar", "a kitchen", "yard"];
    let mut forks = Vec::new();
    let started = Instant::now();
    for (n, app) in apps.iter().enumerate() {
        forks.push(start(&server, app));
        match n {
            0 => {
                wait_until("it holds", || server.cli::<i64>(&["EXISTS", "distlock:lock:{k}"]) == 1)
            }
            n => stand(&server, "k", n),
        }
    }
    let operator = connect(&server.url()).await;
    for app in apps {
        let holder = holder(&operator, &format!("own:{app}")).await;
        let process = holder.process.expect("it is known");
        assert_eq!((process.app.as_str(), holder.name.as_deref()), (app, Some("sitting")));
        assert_eq!(holder.template.as_deref(), Some("own:{id}"));
        assert!(process.pid != process::id() && !process.host.is_empty());
        assert_eq!(process.version, env!("CARGO_PKG_VERSION"));
        let since = holder.since.expect("it says since when");
        assert!(since <= started.elapsed(), "{since:?}");
        assert!(process.since >= since, "{process:?}");
        assert!(holder.fencing_token.is_some());
    }
    let (holders, waiters) = inspected(&operator, "k").await;
    assert_eq!(of(holders[0].process.as_ref()), "till");
    let order: Vec<String> = waiters.iter().map(|waiter| of(waiter.process.as_ref())).collect();
    assert_eq!(order, apps[1..]);
    let is_told = |waiter: &Waiter| {
        waiter.name.as_deref() == Some("standing")
            && waiter.calls == Some(1)
            && waiter.since.is_some()
    };
    assert!(waiters.iter().all(is_told), "{waiters:?}");
    let known = |processes: Vec<Process>| {
        let others = processes.into_iter().filter(|process| process.pid != process::id());
        others.map(|process| process.app).collect::<Vec<_>>()
    };
    let mut sorted = apps;
    sorted.sort_unstable();
    assert_eq!(known(operator.processes().await.expect("an answer")), sorted);

    // A killed process is gone with its record, which is not renewed any more.
    let id = operator.processes().await.expect("an answer");
    let id = id.into_iter().find(|process| process.app == "yard").expect("listed").id;
    forks.pop().expect("the last one").kill9();
    let record = format!("distlock:process:{id}");
    let left: i64 = server.cli(&["PTTL", &record]);
    assert!((1..=60_000).contains(&left), "{left}");
    server.cli::<()>(&["PEXPIRE", &record, "1"]);
    wait_for("it is gone", async || {
        known(operator.processes().await.expect("an answer")) == sorted[..3]
    })
    .await;
    assert_eq!(server.cli::<i64>(&["EXISTS", &record]), 0);
}

/// Its own locks as well, and those that wait behind the holder in one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_in_the_order_in_which_they_will_be_served() {
    let server = RedisServer::start();
    let [a, b, c] = connect_all(&server.url()).await;
    let id = |waiter: &Waiter| waiter.process.as_ref().map(|process| process.id.clone());
    let guard = held(&a, "k").await;
    let call = |manager: &LockManager, name: &'static str| {
        in_line(manager.lock("k").ttl(LONG).wait(LONG).name(name).acquire())
    };
    let mut waiting =
        vec![tokio::spawn(call(&a, "one").await), tokio::spawn(call(&a, "two").await)];
    waiting.push(tokio::spawn(call(&b, "three").await));
    stand(&server, "k", 1);
    waiting.push(tokio::spawn(call(&c, "four").await));
    stand(&server, "k", 2);
    let processes = a.processes().await.expect("an answer");
    let me = processes[0].pid;
    assert!(processes.len() == 3 && processes.iter().all(|process| process.pid == me));
    for by in [&a, &b, &c] {
        let (_, waiters) = inspected(by, "k").await;
        let names: Vec<_> = waiters.iter().filter_map(|waiter| waiter.name.as_deref()).collect();
        assert_eq!(names, ["one", "three", "four"], "{waiters:?}");
        assert_eq!(waiters[0].calls, Some(2));
        assert!(id(&waiters[0]) != id(&waiters[1]) && id(&waiters[1]) != id(&waiters[2]));
    }
    drop(guard);
    for next in waiting {
        drop(served(next).await);
    }
}

#[tokio::test]
async fn in_memory_the_answers_are_the_same() {
    let locks = LockManager::in_memory();
    let guard = locks.lock(key!("order:{n}", n = 7)).name("pay").acquire().await.expect("free");
    let holder = holder(&locks, "order:7").await;
    assert_eq!(holder.fencing_token, Some(guard.fencing_token()));
    assert_eq!(
        (holder.name.as_deref(), holder.template.as_deref()),
        (Some("pay"), Some("order:{n}"))
    );
    assert!(holder.since.is_some_and(|since| since < LONG));
    assert_eq!(holder.process.as_ref().map(|process| process.pid), Some(process::id()));
    let processes = locks.processes().await.expect("an answer");
    assert_eq!(processes.len(), 1);
    assert_eq!(Some(&processes[0].id), holder.process.as_ref().map(|process| &process.id));
    let request = locks.lock("order:7").name("refund").wait(LONG);
    let waiting = tokio::spawn(in_line(request.acquire()).await);
    let (_, waiters) = inspected(&locks, "order:7").await;
    assert!(waiters.len() == 1 && waiters[0].name.as_deref() == Some("refund"), "{waiters:?}");
    waiting.abort();
}

/// What the guide says that a user with an ACL needs, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_locks_need_are_enough() {
    let page = include_str!("../../docs/guide/production.md");
    let (_, rights) = page.split_once("```text\n").expect("the rights");
    let rights = rights.split("```").next().expect("their end");
    let server = RedisServer::start();
    let mut rule = vec!["ACL", "SETUSER", "app", "reset", "on", ">secret"];
    rule.extend(rights.split_whitespace());
    server.cli::<()>(&rule);
    let url = format!("redis://app:secret@{}", server.addr());
    let [a, b] = connect_all(&url).await;
    let _guard = a.lock("k").name("mine").acquire().await.expect("allowed");
    let holder = holder(&b, "k").await;
    assert_eq!(holder.name.as_deref(), Some("mine"));
    let processes = async || b.processes().await.expect("allowed").len() == 2;
    wait_for("both are listed", processes).await;
    a.close(LONG).await;
    assert_eq!(b.processes().await.expect("allowed").len(), 1, "who has closed is gone at once");
    // Nothing else was refused than what the guide says is spared.
    let log: Vec<HashMap<String, redis::Value>> = server.cli(&["ACL", "LOG"]);
    let refused = |entry: &HashMap<String, redis::Value>| match &entry["object"] {
        redis::Value::BulkString(name) => String::from_utf8_lossy(name).into_owned(),
        other => panic!("{other:?}"),
    };
    let mut refused: Vec<String> = log.iter().map(refused).collect();
    refused.retain(|command| !["info", "client|info"].contains(&command.as_str()));
    assert!(refused.is_empty(), "{refused:?}");
}

/// A process that may not publish is named by its record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_pub_sub_a_holder_is_named_by_its_record() {
    let server = RedisServer::start();
    let rule = "ACL SETUSER app reset on >secret ~distlock:* resetchannels +@all";
    server.cli::<()>(&rule.split(' ').collect::<Vec<_>>());
    let url = format!("redis://app:secret@{}", server.addr());
    let (a, b) = (patient_builder(&url).connect().await, patient_builder(&url).connect().await);
    let (a, b) = (a.expect("allowed"), b.expect("allowed"));
    let _guard = held(&a, "k").await;
    let named = async || holder(&b, "k").await.process.is_some();
    wait_for("its record is there", named).await;
    assert_eq!(holder(&b, "k").await.since, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_identify_itself_has_no_name() {
    let server = RedisServer::start();
    let shy = patient_builder(&server.url()).identify(false).connect().await.expect("connect");
    let operator = connect(&server.url()).await;
    let guard = held(&shy, "k").await;
    let waiting = waits(&shy, "k");
    wait_for("it waits", async || shy.status().waiting == 1).await;
    for by in [&operator, &shy] {
        let holder = holder(by, "k").await;
        assert_eq!(holder.process, None);
        assert!(holder.remaining.is_some());
    }
    assert_eq!(holder(&operator, "k").await.name, None);
    assert_eq!(operator.processes().await.expect("an answer").len(), 1);
    wait_until("one record", || {
        server.cli::<Vec<String>>(&["KEYS", "distlock:process:*"]).len() == 1
    });
    drop(guard);
    drop(served(waiting).await);
}

/// A record is written on a connection, and again while locks are taken. An idle manager sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_costs_the_server_nothing_while_nothing_is_locked() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let records = || server.cli::<Vec<String>>(&["KEYS", "distlock:process:*"]);
    wait_until("it is written", || records().len() == 1);
    let record = records().remove(0);
    let left = || server.cli::<i64>(&["PTTL", &record]);
    // For as long as it is good, locks cost what they cost without it.
    const LOCKS: u64 = 500;
    let (before, good_for) =
        (["incr", "zadd", "publish"].map(|command| runs(&server, command)), left());
    for n in 0..LOCKS {
        drop(manager.lock(n.to_string()).acquire().await.expect("free"));
    }
    let after = ["incr", "zadd", "publish"].map(|command| runs(&server, command));
    let ran: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(ran, [LOCKS, 0, 0]);
    assert!(left() <= good_for, "it was written for a lock");
    // Longer than a record is good.
    let processed = || -> u64 {
        let commands =
            ["set", "get", "incr", "eval", "evalsha", "zadd", "exists", "ping", "publish"];
        commands.iter().map(|command| runs(&server, command)).sum()
    };
    wait_for("all is released", async || server.lock_keys().is_empty()).await;
    let sent = processed();
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(processed() - sent, 0);
    assert!(left() < 40_000, "{}", left());
    drop(held(&manager, "k").await);
    wait_until("it is written again", || left() > 50_000);
}
