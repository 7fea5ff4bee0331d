//! Calls inside calls: which of them would wait for themselves, and which only look like it.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Instant;

use distlock::{LockError, LockManager};
use distlock_testkit::{
    LONG, RedisServer, SECOND, assert_busy, assert_lost, connect, ms, nothing_is_left, owner,
    stored, ttl_of, wait_for,
};

#[track_caller]
fn assert_would_deadlock<T: std::fmt::Debug>(result: Result<T, LockError>) {
    assert!(matches!(result, Err(LockError::WouldDeadlock { .. })), "{result:?}");
}

/// At once, although there is a `wait` that would last for minutes; and the outer call is none the
/// worse for it.
#[tokio::test]
async fn g14_a_call_that_would_wait_for_itself_fails_at_once() {
    let server = RedisServer::start();
    for manager in [connect(&server.url()).await, LockManager::in_memory()] {
        let start = Instant::now();
        let request = || manager.lock("k").ttl(LONG).wait(LONG);
        let body = async {
            assert_would_deadlock(request().acquire().await.map(drop));
            assert_would_deadlock(request().try_acquire().await.map(drop));
            assert_would_deadlock(request().run(async {}).await);
            let several = manager.clone().lock_all(["a", "k", "z"]).wait(LONG).acquire().await;
            let error = several.expect_err("one of them is held by the caller");
            assert_eq!(error.key(), Some("k"));
            assert_would_deadlock(Err::<(), _>(error));
            // Deeper, with another lock in between.
            let deeper = manager.lock("between").run(async { request().acquire().await });
            assert_would_deadlock(deeper.await.expect("granted").map(drop));
            // None of that has touched anything.
            manager.lock("a").acquire().await.map(drop).expect("free");
            42
        };
        assert_eq!(request().run(body).await.expect("granted"), 42);
        assert!(start.elapsed() < LONG / 2, "it waited for itself");
        request()
            .acquire()
            .await
            .expect("free, and not nested in anything")
            .release()
            .await
            .expect("held");
    }
    nothing_is_left(&server);
}

/// Branches of one body take turns, but neither is inside the other: they exclude each other as two
/// tasks would, also when both are polled from the same place.
#[tokio::test]
async fn branches_of_a_join_exclude_each_other_and_are_nested_in_what_is_around_them() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let value = AtomicU32::new(0);
    let add_one = async || {
        let body = async {
            let before = value.load(SeqCst);
            tokio::time::sleep(ms(2)).await;
            value.store(before + 1, SeqCst);
            assert_would_deadlock(manager.lock("inner").acquire().await.map(drop));
            assert_would_deadlock(manager.lock("outer").acquire().await.map(drop));
        };
        manager.lock("inner").ttl(LONG).wait(LONG).run(body).await.expect("granted");
    };
    let body = async {
        tokio::join!(add_one(), add_one(), add_one(), async {
            // Beside them, not in them: this waits for its turn.
            let guard = manager.lock("inner").ttl(LONG).wait(LONG).acquire().await;
            guard.expect("granted").release().await.expect("it was held");
            assert_would_deadlock(manager.lock("outer").acquire().await.map(drop));
        });
    };
    manager.lock("outer").ttl(LONG).run(body).await.expect("granted");
    assert_eq!(value.load(SeqCst), 3);
    nothing_is_left(&server);
}

#[tokio::test]
async fn branches_of_a_select_leave_nothing_behind_when_they_are_dropped() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let request = || manager.lock("k").ttl(LONG).wait(LONG);
    let held = async {
        tokio::select! {
            biased;
            never = request().run(std::future::pending::<()>()) => never.expect("never over"),
            () = wait_for("it is held", async || owner(&server, "k").is_some()) => {}
        }
        // The branch was dropped with its body: neither held nor nested.
        request().run(async { 42 }).await
    };
    let got = manager.lock("around").ttl(LONG).run(held).await.expect("granted");
    assert_eq!(got.expect("granted"), 42);
    nothing_is_left(&server);
}

/// A task that a body spawns is not part of the body: it waits like any other, and gets the lock when
/// the body is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spawned_task_is_not_nested() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for reentrant in [false, true] {
        let mut spawned = None;
        let body = async {
            let request = || manager.lock("k").ttl(LONG).reentrant(reentrant);
            let at_once = tokio::spawn(request().acquire()).await.expect("no panic");
            assert_busy(at_once.map(drop));
            spawned = Some(tokio::spawn(request().wait(LONG).run(async { 42 })));
        };
        manager.lock("k").ttl(LONG).run(body).await.expect("granted");
        let spawned = spawned.expect("the body ran");
        assert_eq!(spawned.await.expect("no panic").expect("its turn"), 42);
    }
    nothing_is_left(&server);
}

/// Another manager is another caller to the store: nothing can be known of it.
#[tokio::test]
async fn calls_through_different_managers_are_not_nested() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let shop = LockManager::builder().url(server.url()).prefix("shop").connect().await;
    let shop = shop.expect("connect");
    let body = async {
        assert_busy(other.lock("k").wait(ms(50)).acquire().await);
        assert_busy(other.lock("k").reentrant(true).acquire().await);
        // The same key under another prefix is another lock.
        shop.lock("k").run(async {}).await.expect("free");
        assert_would_deadlock(manager.clone().lock("k").acquire().await.map(drop));
    };
    manager.lock("k").ttl(LONG).run(body).await.expect("granted");
    nothing_is_left(&server);
}

/// A guard may be handed to any task, so it is unknown which task waits for itself.
#[tokio::test]
async fn locks_taken_by_hand_are_not_tracked() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    assert_busy(manager.lock("k").wait(ms(50)).acquire().await);
    assert_busy(manager.lock("k").reentrant(true).run(async {}).await);
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// One lease, one fencing token, the outer call's durations; and the outermost frees it.
#[tokio::test]
async fn a_reentrant_call_joins_and_leaves_the_lock_to_the_outermost() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let request = || manager.lock("k").ttl(LONG).reentrant(true);
    let commands = || -> usize {
        let stats: String = server.cli(&["INFO", "commandstats"]);
        let sets = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
        sets.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let body = async {
        let (before, sets) = (owner(&server, "k"), commands());
        // The durations of a call that joins are ignored: all of these would be over at once.
        let inner = request().ttl(ms(20)).renew(false).max_hold(ms(20));
        let deeper = async {
            let guard = request().acquire().await.expect("joined");
            let another = request().acquire().await.expect("joined");
            assert_eq!(guard.fencing_token(), another.fencing_token());
            tokio::time::sleep(ms(100)).await;
            assert!(guard.is_held() && guard.remaining() > LONG / 2);
            guard.release().await.expect("it goes on to be held");
            drop(another);
            assert_eq!(owner(&server, "k"), before);
        };
        inner.run(deeper).await.expect("joined");
        let min = request().min_hold(LONG).run(async { 42 }).await;
        assert_eq!(min.expect("joined"), 42);
        assert_eq!(owner(&server, "k"), before, "an inner call freed it");
        assert_eq!(commands(), sets, "the store was asked again");
        assert!(ttl_of(&server, "k") > 60_000);
    };
    request().run(body).await.expect("granted");
    // Not kept for the inner call's `min_hold`.
    nothing_is_left(&server);
}

#[tokio::test]
async fn a_reentrant_call_that_finds_the_lease_lost_is_lost_too() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let request = || manager.lock("k").ttl(ms(600)).reentrant(true);
    let body = async {
        server.cli::<()>(&["DEL", &stored("k")]);
        request().run(std::future::pending::<()>()).await
    };
    // The outer call ends first, and its body, the inner call, with it.
    assert_lost(request().run(body).await);

    // With one that goes on, the inner one is notified.
    let request = || request().on_lost(distlock::OnLost::Continue);
    let body = async {
        server.cli::<()>(&["DEL", &stored("k")]);
        let inner = manager.lock("k").reentrant(true);
        inner.run(std::future::pending::<()>()).await
    };
    assert_lost(request().run(body).await.expect("it runs to its end"));
    nothing_is_left(&server);
}

/// Some are joined, the others taken and freed.
#[tokio::test]
async fn several_locks_of_which_some_are_held_already() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let body = async {
        let before = owner(&server, "b");
        let all = manager.lock_all(["a", "b", "c"]).ttl(LONG).reentrant(true);
        let guard = all.acquire().await.expect("two are free, one is ours");
        assert_eq!(guard.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(guard.fencing_tokens().count(), 3);
        assert_eq!(server.lock_keys().len(), 3);
        guard.release().await.expect("it was held");
        assert_eq!(server.lock_keys(), [stored("b")]);
        assert_eq!(owner(&server, "b"), before);
    };
    manager.lock("b").ttl(LONG).run(body).await.expect("granted");
    nothing_is_left(&server);
    let start = Instant::now();
    // Twice the same key in one call is one lock, not two that wait for each other.
    let twice = manager.lock_all(["x", "y", "x"]).wait(LONG).run(async { 42 }).await;
    assert_eq!(twice.expect("granted"), 42);
    assert!(start.elapsed() < 30 * SECOND);
}
