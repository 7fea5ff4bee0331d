//! F26: more calls want one lock than should wait for it.

use std::time::Duration;

use distlock::{LockManager, LockRequest};
use distlock_testkit::{
    LONG, RedisServer, assert_busy, held, in_line, ms, patient_builder, runs, stand, wait_for,
};

use crate::support::works_again;

const MOST: u32 = 3;

/// What the server was asked so far.
fn commands(server: &RedisServer) -> u64 {
    ["set", "eval", "evalsha", "pttl", "incr"].iter().map(|command| runs(server, command)).sum()
}

/// The lock is held elsewhere, or in the same process: a caller beyond `max_waiters` is refused at once, and
/// nothing is sent for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_who_comes_when_enough_wait_is_told_at_once_and_nothing_is_sent() {
    let server = RedisServer::start();
    let builder = || patient_builder(&server.url()).max_waiters(MOST);
    let manager = builder().connect().await.expect("connect");
    let other = builder().connect().await.expect("connect");
    for holder in [&other, &manager] {
        let guard = held(holder, "k").await;
        let request = || manager.lock("k").ttl(LONG).renew(false).wait(LONG);
        let mut waiting = Vec::new();
        for _ in 0..MOST {
            waiting.push(tokio::spawn(in_line(request().run(async {})).await));
            stand(&server, "k", usize::from(!std::ptr::eq(holder, &manager)));
        }
        let before = commands(&server);
        for _ in 0..20 {
            let told = tokio::time::timeout(LONG / 4, request().acquire());
            assert_busy(told.await.expect("it does not wait"));
        }
        assert_eq!(commands(&server), before, "something was sent");
        // Each lock is counted by itself, and so is each process.
        held(&manager, "another").await.release().await.expect("it was held");
        let elsewhere = tokio::spawn(other.lock("k").ttl(LONG).wait(LONG).run(async {}));
        wait_for("it waits", async || other.status().waiting > 0).await;
        // The request has the last word.
        let more = tokio::spawn(in_line(request().max_waiters(MOST + 1).run(async {})).await);
        waiting.push(more);
        wait_for("it waits", async || manager.status().waiting == waiting.len()).await;
        guard.release().await.expect("it was held");
        waiting.push(elsewhere);
        for one in waiting {
            one.await.expect("no panic").expect("its turn comes");
        }
    }
    works_again(&manager, &server).await;
}

/// A waiter that leaves makes room.
#[tokio::test(start_paused = true)]
async fn f26_places_are_free_again_when_those_who_waited_are_gone() {
    let builder = LockManager::builder().url("memory://").max_waiters(1);
    let manager = builder.build().expect("settings");
    let guard = manager.lock("k").acquire().await.expect("free");
    let request = || -> LockRequest { manager.lock("k").wait(ms(1000)) };
    for _ in 0..5 {
        let first = in_line(request().acquire()).await;
        assert_busy(request().acquire().await);
        drop(first);
        let first = tokio::spawn(in_line(request().acquire()).await);
        assert_busy(request().acquire().await);
        // Its own time.
        assert_busy(first.await.expect("no panic"));
    }
    // Not even one.
    let start = tokio::time::Instant::now();
    assert_busy(request().max_waiters(0).acquire().await);
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(guard);
    request().max_waiters(0).acquire().await.expect("free").release().await.expect("held");
}

/// One of several locks has its crowd.
#[tokio::test(start_paused = true)]
async fn f26_a_call_for_several_is_busy_of_the_lock_that_has_its_crowd() {
    let builder = LockManager::builder().url("memory://").max_waiters(1);
    let manager = builder.build().expect("settings");
    let guard = manager.lock("b").acquire().await.expect("free");
    let first = tokio::spawn(in_line(manager.lock("b").wait(LONG).acquire()).await);
    let error = manager.lock_all(["a", "b"]).wait(LONG).acquire().await.expect_err("too many");
    assert_eq!((error.is_busy(), error.key()), (true, Some("b")), "{error}");
    manager.lock("a").acquire().await.expect("given back").release().await.expect("held");
    drop(guard);
    drop(first.await.expect("no panic").expect("its turn"));
}
