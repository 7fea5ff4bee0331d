//! How long a lock is held, what may end it, and what is seen of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use distlock::{LockError, LockGuard, LockManager, LockStatus, OnLost};
use distlock_runtime::testing::faults::Faults;
use distlock_testkit::{
    LONG, Log, Mode, Proxy, RedisServer, Running, SECOND, assert_busy, assert_lost, connect,
    in_own_process, ms, nothing_is_left, owner, settle, stored, this_test, ttl_of, wait_for,
    wait_until,
};

#[tokio::test]
async fn max_hold_ends_the_body_and_renewal() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let running = AtomicBool::new(false);
    let start = Instant::now();
    let body = async {
        let _running = Running::new(&running);
        std::future::pending::<()>().await;
    };
    let request = manager.lock("k").ttl(2 * SECOND).max_hold(4 * SECOND);
    let error = request.run(body).await.expect_err("it was held for long enough");
    assert!(start.elapsed() > SECOND * 36 / 10, "renewed until then: {:?}", start.elapsed());
    assert!(!running.load(SeqCst));
    assert!(error.to_string().contains("max_hold"), "{error}");
    assert_lost(Err::<(), _>(error));
    // Its release is under way; it does not take the ttl.
    let next = other.lock("k").wait(30 * SECOND).acquire().await.expect("free");
    next.release().await.expect("it was held");

    // Of the manager, where the lock does not say; and shorter than the ttl.
    let builder = LockManager::builder().url(server.url()).max_hold(3 * SECOND).ttl(LONG);
    let capped = builder.connect().await.expect("connect");
    let guard = capped.lock("k").acquire().await.expect("granted");
    assert!((1..10_000).contains(&ttl_of(&server, "k")), "{}", ttl_of(&server, "k"));
    guard.extend(LONG).await.expect("it is held");
    assert!((1..10_000).contains(&ttl_of(&server, "k")), "{}", ttl_of(&server, "k"));
    guard.lost().await;
    assert_lost(guard.release().await);
    nothing_is_left(&server);
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_lock_in_memory() {
    let manager = LockManager::in_memory();
    let start = tokio::time::Instant::now();
    let request = manager.lock("k").max_hold(60 * SECOND);
    assert_lost(request.run(std::future::pending::<()>()).await);
    assert!((59 * SECOND..61 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    manager.lock("k").acquire().await.map(drop).expect("free");
}

/// Whatever way out is taken, the lock is kept until it is due, and free soon after.
#[tokio::test]
async fn min_hold_is_kept_on_every_way_out() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    const MIN: Duration = Duration::from_millis(1500);
    for out in ["return", "release", "drop", "panic", "cancel", "close"] {
        let own = connect(&server.url()).await;
        let start = Instant::now();
        let request = || own.lock(out).ttl(LONG).min_hold(MIN);
        match out {
            "return" => request().run(async {}).await.expect("granted"),
            "release" => {
                let guard = request().acquire().await.expect("granted");
                guard.release().await.expect("it was held");
            }
            "drop" => drop(request().acquire().await.expect("granted")),
            "panic" => {
                let guard = request().acquire().await.expect("granted");
                let unwound = std::panic::catch_unwind(AssertUnwindSafe(move || {
                    let _guard = guard;
                    panic!("with the lock in hand");
                }));
                unwound.expect_err("it panics");
            }
            "cancel" => {
                let running = Arc::new(AtomicBool::new(false));
                let flag = running.clone();
                let task = tokio::spawn(request().run(async move {
                    flag.store(true, SeqCst);
                    std::future::pending::<()>().await;
                }));
                wait_for("the body runs", async || running.load(SeqCst)).await;
                task.abort();
                task.await.expect_err("it was aborted");
            }
            "close" => {
                let _guard = request().acquire().await.expect("granted");
                assert!(own.close(LONG).await.is_complete());
            }
            _ => unreachable!(),
        }
        assert_busy(other.lock(out).acquire().await);
        // The store frees it by itself: no process need be left to do it.
        drop(own);
        let next = other.lock(out).wait(30 * SECOND).acquire().await.expect("free in the end");
        assert!(start.elapsed() >= MIN * 9 / 10, "{out}: free after {:?}", start.elapsed());
        next.release().await.expect("it was held");
    }
    // Lost, by the clock alone: the key stays as it was set.
    let start = Instant::now();
    let request = manager.lock("lost").ttl(ms(100)).renew(false).min_hold(MIN);
    assert_lost(request.run(std::future::pending::<()>()).await);
    assert_busy(other.lock("lost").acquire().await);
    let next = other.lock("lost").wait(30 * SECOND).acquire().await.expect("free in the end");
    assert!(start.elapsed() >= MIN * 9 / 10, "lost: free after {:?}", start.elapsed());
    next.release().await.expect("it was held");
    // Over in time: then there is nothing to wait for.
    let guard = manager.lock("late").ttl(LONG).min_hold(ms(50)).acquire().await;
    let guard = guard.expect("granted");
    tokio::time::sleep(ms(60)).await;
    guard.release().await.expect("it was held");
    assert_eq!(owner(&server, "late"), None);
    nothing_is_left(&server);
}

/// A process that waits for it in line is served when it is due, not at its next look alone.
#[tokio::test(start_paused = true)]
async fn min_hold_in_memory_is_kept_and_then_served() {
    let manager = LockManager::in_memory();
    let start = tokio::time::Instant::now();
    manager.lock("k").min_hold(60 * SECOND).run(async {}).await.expect("granted");
    assert_busy(manager.lock("k").acquire().await);
    let next = manager.lock("k").wait(LONG).acquire().await.expect("free in the end");
    assert!((60 * SECOND..62 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(next);
}

/// The body runs to its end and its result stands; the loss is logged, and a guard hears of it.
#[tokio::test]
async fn on_lost_continue_lets_the_body_finish_and_reports_the_loss() {
    // What is logged is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let log = Log::start();
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let steps = AtomicU32::new(0);
    let body = async {
        server.cli::<()>(&["DEL", &stored("k")]);
        wait_for("the loss is logged", async || log.says("WARN", &["continued"])).await;
        for _ in 0..5 {
            tokio::time::sleep(ms(1)).await;
            steps.fetch_add(1, SeqCst);
        }
        42
    };
    let request = manager.lock("k").name("continued").ttl(ms(400)).on_lost(OnLost::Continue);
    assert_eq!(request.run(body).await.expect("its result stands"), 42);
    assert_eq!(steps.load(SeqCst), 5);
    assert!(log.says("WARN", &["continued", "lost"]), "{}", log.text());
    let late = ["continued", "released_late"];
    wait_for("its release is reported", async || log.says("WARN", &late)).await;
    assert!(!log.says("WARN", &["continued", "was stopped"]), "{}", log.text());
    nothing_is_left(&server);
}

/// The text says what happened: a body was stopped, or there was none.
#[tokio::test]
async fn a_loss_says_whether_a_body_was_stopped() {
    let server = RedisServer::start();
    let (manager, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    let body = async {
        assert!(operator.force_release("k").await.expect("an answer"));
        std::future::pending::<()>().await;
    };
    let error = manager.lock("k").ttl(LONG).run(body).await.expect_err("taken away");
    assert!(matches!(error, LockError::Lost { stopped: true, .. }), "{error:?}");
    assert!(error.to_string().contains("the body was stopped"), "{error}");

    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("free");
    assert!(operator.force_release("k").await.expect("an answer"));
    guard.lost().await;
    for error in [guard.extend(LONG).await, guard.release().await] {
        let error = error.expect_err("taken away");
        assert!(matches!(error, LockError::Lost { stopped: false, .. }), "{error:?}");
        assert!(!error.to_string().contains("body"), "{error}");
        assert!(error.to_string().contains("force_release"), "{error}");
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn extend_moves_the_deadline_and_never_back() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(2 * SECOND).renew(false).acquire().await.expect("granted");
    assert!(guard.remaining() <= 2 * SECOND && guard.remaining() > Duration::ZERO);
    guard.extend(LONG).await.expect("it is held");
    assert!(guard.remaining() > LONG / 2 && guard.remaining() < LONG);
    assert!(ttl_of(&server, "k") > 60_000);
    guard.extend(SECOND).await.expect("it is held");
    assert!(guard.remaining() > LONG / 2, "shortened");
    assert!(ttl_of(&server, "k") > 60_000, "shortened");
    for out_of_range in [Duration::ZERO, ms(9), Duration::MAX] {
        let error = guard.extend(out_of_range).await;
        assert!(matches!(error, Err(LockError::InvalidOption { .. })), "{error:?}");
        assert!(guard.is_held());
    }
    tokio::time::sleep(3 * SECOND).await;
    assert!(guard.is_held(), "past the deadline it had at first");
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// The store does not answer: the lease stands as it was, neither longer nor lost.
#[tokio::test]
async fn an_extension_that_is_not_confirmed_changes_nothing() {
    let (manager, store) = Faults::as_remote().start().expect("in memory");
    let guard = manager.lock("k").ttl(SECOND).renew(false).acquire().await.expect("granted");
    store.down(true);
    let error = guard.extend(LONG).await;
    assert!(matches!(error, Err(LockError::Backend { .. })), "{error:?}");
    assert!(guard.is_held() && guard.remaining() <= SECOND);
    store.down(false);
    guard.lost().await;
    assert_lost(guard.extend(LONG).await);
}

/// The server goes away while an extended lock is released: it is freed when the server is back,
/// although the ttl it had at first is long over.
#[tokio::test]
async fn a_release_of_an_extended_lock_is_seen_through() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    let guard = manager.lock("k").ttl(SECOND).renew(false).acquire().await.expect("granted");
    guard.extend(LONG).await.expect("it is held");
    proxy.set(Mode::Reset);
    let error = guard.release().await;
    assert!(matches!(error, Err(LockError::Backend { .. })), "{error:?}");
    tokio::time::sleep(2 * SECOND).await;
    assert!(owner(&server, "k").is_some(), "nothing can have reached it");
    proxy.set(Mode::Pass);
    nothing_is_left(&server);
}

#[tokio::test]
async fn lost_resolves_for_everybody_who_waits_and_not_while_it_is_held() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(2 * SECOND).acquire().await.expect("granted");
    let guard = Arc::new(guard);
    let waits = |guard: &Arc<LockGuard>| {
        let guard = guard.clone();
        tokio::spawn(async move { guard.lost().await })
    };
    let waiting = [waits(&guard), waits(&guard), waits(&guard)];
    // Longer than a lease.
    tokio::time::sleep(3 * SECOND).await;
    assert!(waiting.iter().all(|task| !task.is_finished()), "it is held");
    server.cli::<()>(&["DEL", &stored("k")]);
    for task in waiting {
        task.await.expect("no panic");
    }
    guard.lost().await;
    assert!(!guard.is_held());
}

#[tokio::test]
async fn remaining_counts_down_and_is_renewed() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let fixed = manager.lock("fixed").ttl(20 * SECOND).renew(false);
    let fixed = fixed.acquire().await.expect("granted");
    let renewed = manager.lock("renewed").ttl(2 * SECOND).acquire().await.expect("granted");
    let before = fixed.remaining();
    assert!(before < 20 * SECOND, "less drift");
    let start = Instant::now();
    while start.elapsed() < 3 * SECOND {
        assert!(renewed.remaining() > Duration::ZERO && renewed.remaining() < 2 * SECOND);
        tokio::time::sleep(ms(5)).await;
    }
    assert!(fixed.remaining() < before - 2 * SECOND);
}

/// A body in the middle of a poll may still touch what the lock protects: its lock is freed when it
/// comes to an await, and no other caller has it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_waits_for_running_bodies() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let (busy, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let body = {
        let (busy, go_on) = (busy.clone(), go_on.clone());
        async move {
            busy.store(true, SeqCst);
            wait_until("it may go on", || go_on.load(SeqCst));
            busy.store(false, SeqCst);
            tokio::task::yield_now().await;
            unreachable!("polled after the manager was closed");
        }
    };
    let call = tokio::spawn(manager.lock("k").ttl(LONG).run(body));
    wait_for("the body runs", async || busy.load(SeqCst)).await;
    let report = manager.close(ms(100)).await;
    assert_eq!((report.freed, report.unconfirmed), (0, 1), "{report:?}");
    assert_busy(other.lock("k").acquire().await);
    let waiter = tokio::spawn(other.lock("k").wait(LONG).acquire());
    let closing = tokio::spawn({
        let manager = manager.clone();
        async move { manager.close(LONG).await }
    });
    assert!(busy.load(SeqCst));
    go_on.store(true, SeqCst);
    let next = waiter.await.expect("no panic").expect("free now");
    assert!(!busy.load(SeqCst), "given to another while the body was at it");
    assert_lost::<()>(call.await.expect("no panic"));
    assert!(closing.await.expect("no panic").is_complete());
    next.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// Guards in users' hands are freed at once; they find out, and freeing them again is no harm.
#[tokio::test]
async fn close_frees_every_lock_there_is_whatever_it_is_doing() {
    let server = RedisServer::start();
    let mut held = 0;
    for round in 0..100 {
        let manager = connect(&server.url()).await;
        let mut guards = Vec::new();
        for n in 0..50 {
            // So short that some are being renewed whenever it is closed.
            let request = manager.lock(format!("{round}-{n}")).ttl(Duration::from_millis(60 + n));
            match request.acquire().await {
                Ok(guard) => guards.push(guard),
                // Too late for its ttl, on a busy machine: given back.
                Err(LockError::Backend { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let guards: Vec<_> = guards.into_iter().filter(LockGuard::is_held).collect();
        held += guards.len();
        tokio::time::sleep(ms(1) * (round % 7) * 3).await;
        let report = manager.close(LONG).await;
        assert!(report.is_complete(), "{report:?}");
        assert!(report.freed <= 50, "{report:?}");
        assert!(guards.iter().all(|guard| !guard.is_held()), "round {round}: one was overlooked");
        assert!(server.lock_keys().is_empty(), "round {round}: {:?}", server.lock_keys());
    }
    assert!(held > 100, "{held} were held when they were closed");
}

/// The server goes on extending what its holder has lost, because nothing it says arrives.
#[tokio::test]
async fn close_frees_what_ran_out_in_a_users_hands() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    let guard = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("granted");
    // The first renewal makes its connection; those after it go out on that.
    let mut last = i64::MAX;
    wait_for("a renewal", async || std::mem::replace(&mut last, ttl_of(&server, "k")) < last).await;
    proxy.set(Mode::DropDown);
    guard.lost().await;
    let left = ttl_of(&server, "k");
    assert!(left > 500, "{left} ms: it ends before anybody could free it");
    proxy.set(Mode::Pass);
    let report = manager.close(LONG).await;
    assert_eq!((report.freed, report.unconfirmed), (0, 0), "{report:?}");
    assert_eq!(owner(&server, "k"), None);
    drop(guard);
}

/// Fault: G9.
#[tokio::test]
async fn close_with_a_dead_server_returns_in_time_and_says_so() {
    let mut server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let _one = manager.lock("one").ttl(LONG).acquire().await.expect("granted");
    let _several = manager.lock_all(["two", "three"]).ttl(LONG).acquire().await.expect("granted");
    let running = Arc::new(AtomicBool::new(false));
    let flag = running.clone();
    let call = tokio::spawn(manager.lock("four").ttl(LONG).run(async move {
        flag.store(true, SeqCst);
        std::future::pending::<()>().await;
    }));
    wait_for("the body runs", async || running.load(SeqCst)).await;
    server.kill9();
    let start = Instant::now();
    let report = manager.close(ms(300)).await;
    assert!(start.elapsed() < 5 * SECOND, "after {:?}", start.elapsed());
    assert!(report.unconfirmed >= 1 && !report.is_complete(), "{report:?}");
    assert_eq!(report.freed + report.unconfirmed, 4, "{report:?}");
    assert_lost(call.await.expect("no panic"));
    let more = manager.lock("more").acquire().await;
    assert!(matches!(more, Err(LockError::Closed)), "{more:?}");
}

#[tokio::test]
async fn inspect_sees_what_there_is_and_touches_nothing() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    assert!(manager.inspect("k").await.expect("an answer").is_free());
    let guard = other.lock("k").ttl(LONG).acquire().await.expect("granted");
    let look = async || match manager.inspect("k").await.expect("an answer") {
        LockStatus::Held { remaining, waiting, .. } => (remaining, waiting),
        status => panic!("{status:?}"),
    };
    let (remaining, waiting) = look().await;
    assert!(remaining.is_some_and(|rest| rest > LONG / 2 && rest <= LONG), "{remaining:?}");
    assert_eq!(waiting, 0);
    let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    wait_for("somebody waits", async || look().await.1 == 1).await;
    waiter.abort();
    assert!(waiter.await.is_err());
    wait_for("nobody waits", async || look().await.1 == 0).await;
    server.cli::<()>(&["PERSIST", &stored("k")]);
    assert_eq!(look().await.0, None, "it has no end");
    assert!(guard.is_held());
    guard.release().await.expect("it was held");
    assert!(manager.inspect("k").await.expect("an answer").is_free());
    let error = manager.inspect("").await;
    assert!(matches!(error, Err(LockError::InvalidKey { .. })), "{error:?}");
}

/// From another process the holder finds out at its next renewal, in this one at once.
#[tokio::test]
async fn force_release_takes_the_lock_from_its_holder() {
    let server = RedisServer::start();
    let (manager, operator) = (connect(&server.url()).await, connect(&server.url()).await);
    let running = AtomicBool::new(false);
    let body = async {
        let _running = Running::new(&running);
        std::future::pending::<()>().await;
    };
    let call = manager.lock("k").ttl(3 * SECOND).run(body);
    let force = async {
        wait_for("the body runs", async || running.load(SeqCst)).await;
        assert!(operator.force_release("k").await.expect("an answer"));
        assert!(!operator.force_release("k").await.expect("an answer"), "it is free");
    };
    let (result, ()) = tokio::join!(call, force);
    assert_lost(result);

    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    let waiter = operator.lock("k").ttl(LONG).wait(LONG);
    let waiter = tokio::spawn(waiter.acquire());
    assert!(manager.force_release("k").await.expect("an answer"));
    assert!(!guard.is_held(), "in this process it is known at once");
    let next = waiter.await.expect("no panic").expect("free");
    assert_lost(guard.release().await);
    settle(&manager).await;
    assert!(next.is_held() && owner(&server, "k").is_some());
    next.release().await.expect("it was not touched");
    nothing_is_left(&server);
}
