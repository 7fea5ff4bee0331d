//! Hints that come late, while the lock they are about is being given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, LostReason};
use distlock_testkit::{
    LONG, RedisServer, connect, in_line, ms, owner, patient_builder, queue, served, stand, stored,
    wait_until, waits,
};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{Ledger, works_again};
use crate::waiting::publish;

/// Keeps a lock from every client that keeps the rules.
fn taken(server: &RedisServer, key: &str) {
    server.cli::<()>(&["SET", &stored(key), "somebody's", "PX", "60000"]);
}

/// Earlier messages to the manager have had their effect: it has received another one since, and asked
/// the server, on the same two connections.
async fn caught_up(server: &RedisServer, manager: &LockManager) {
    taken(server, "marker");
    let waiting = waits(manager, "marker");
    stand(server, "marker", 1);
    let tokens = queue(server, "marker");
    server.cli::<()>(&["DEL", &stored("marker")]);
    publish(server, "g", &tokens[0], "marker");
    served(waiting).await.release().await.expect("it was held");
}

/// The guard of a caller that waited, and its token.
async fn waited_for(server: &RedisServer, manager: &LockManager) -> (LockGuard, String) {
    taken(server, "k");
    let waiting = tokio::spawn(manager.lock("k").ttl(LONG).min_hold(LONG).wait(LONG).acquire());
    stand(server, "k", 1);
    server.cli::<()>(&["DEL", &stored("k")]);
    publish(server, "g", &queue(server, "k")[0], "k");
    let guard = served(waiting).await;
    (guard, owner(server, "k").expect("held"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_a_late_hint_does_not_free_what_min_hold_keeps() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let (guard, token) = waited_for(&server, &manager).await;
    guard.release().await.expect("it was held");
    // As if it had been under way all the time.
    publish(&server, "g", &token, "k");
    caught_up(&server, &manager).await;
    assert_eq!(owner(&server, "k"), Some(token), "freed before its `min_hold`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_a_hint_that_meets_a_release_is_no_loss() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let (over, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut hand = server.eye();
    let flood = std::thread::spawn({
        let (over, told) = (over.clone(), told.clone());
        // The holder is called again, as by a hint that has been under way for long.
        let again = "local v = redis.call('GET', KEYS[1]) \
                     if not v then return 0 end \
                     return redis.call('PUBLISH', 'distlock:wake:' .. string.match(v, '^[^.]+'), \
                                       'g ' .. v .. ' ' .. KEYS[1])";
        move || {
            while !over.load(SeqCst) {
                let mut call = redis::cmd("EVAL");
                call.arg(again).arg(1).arg(stored("k"));
                told.fetch_add(call.query::<u64>(&mut hand).expect("published"), SeqCst);
            }
        }
    });
    let (mut lost, mut released, begun) = (Vec::new(), 0, Instant::now());
    while begun.elapsed() < ms(2000) || released < 500 {
        let guard = manager.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("its turn comes");
        lost.extend(guard.release().await.err());
        released += 1;
    }
    over.store(true, SeqCst);
    flood.join().expect("no panic");
    assert!(told.load(SeqCst) > 0, "nobody was told of anything");
    assert!(lost.is_empty(), "{} of {released} lost, as {}", lost.len(), lost[0]);
    works_again(&manager, &server).await;
}

/// A caller's own try was sent before others of its process came to wait, and is answered long before that
/// caller is polled: by then its token has had its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_who_looks_late_at_his_try_does_not_free_what_min_hold_keeps() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let mut first = in_line(manager.lock("k").ttl(LONG).wait(LONG).acquire()).await;
    wait_until("it is sent", || owner(&server, "k").is_some());
    // The first one does not come for it, so it is this one's after a second.
    let second = manager.lock("k").ttl(LONG).min_hold(LONG).wait(LONG).acquire();
    let second = second.await.expect("its turn comes");
    let token = owner(&server, "k").expect("held");
    second.release().await.expect("it was held");
    let early = timeout(ms(50), first.as_mut()).await;
    assert!(early.is_err(), "before its `min_hold`: {early:?}");
    caught_up(&server, &manager).await;
    assert_eq!(owner(&server, "k"), Some(token), "freed before its `min_hold`");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_a_lease_that_runs_out_during_its_release_says_so() {
    let server = RedisServer::start();
    let manager = patient_builder(&server.url()).connect().await.expect("connect");
    let guard = manager.lock("k").ttl(ms(2000)).acquire().await.expect("it is free");
    server.stop();
    assert!(guard.is_held(), "no time for the test");
    let release = in_line(guard.release()).await;
    sleep(ms(2500)).await;
    server.cont();
    let error = release.await.expect_err("it was free before the server read the release");
    let LockError::Lost { reason, .. } = error else { panic!("{error}") };
    assert_eq!(reason, LostReason::Expired);
    works_again(&manager, &server).await;
}

/// Many times a second, processes are notified, poll by themselves, and are notified again: every waiter
/// changes its token each time, beside grants, releases and waiters that give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f31_subscriptions_that_come_and_go_take_no_lock_from_its_holder() {
    const MANAGERS: usize = 3;
    let server = RedisServer::start();
    let ledger = Arc::new(Ledger::default());
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..MANAGERS {
        let manager = connect(&server.url()).await;
        for task in 0..4 {
            let (manager, ledger, over) = (manager.clone(), ledger.clone(), over.clone());
            tasks.spawn(async move {
                while !over.load(SeqCst) {
                    let call = manager.lock("k").ttl(LONG).wait(LONG).acquire();
                    let guard = match task {
                        // One of them is for ever giving up.
                        0 => match timeout(ms(20), call).await {
                            Ok(guard) => guard,
                            Err(_) => continue,
                        },
                        _ => call.await,
                    };
                    let guard = guard.expect("its turn comes");
                    ledger.add_one().await;
                    guard.release().await.expect("it was held all the time");
                }
            });
        }
    }
    let (mut cut, begun) = (0, Instant::now());
    let server = server
        .blocking(move |server| {
            while begun.elapsed() < ms(3000) || cut < 5 * MANAGERS as u64 {
                cut += server.cli::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                std::thread::sleep(Duration::from_millis(40));
            }
        })
        .await;
    over.store(true, SeqCst);
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    ledger.nothing_was_lost();
    let manager = connect(&server.url()).await;
    works_again(&manager, &server).await;
}
