//! Callers that are cancelled, panic, shut down, die, forget and repeat themselves: section G.

use std::future::poll_fn;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use distlock::LockManager;
use distlock_runtime::testing::faults::{Faults, Script};
use distlock_testkit::{
    Data, LONG, Mode, Proxy, RedisServer, SECOND, assert_busy, assert_lost, block_on, connect,
    dropped_after, environment, fork_self, in_fork, ms, nothing_is_left, owner, patient, settle,
    stored, this_test, ttl_of, wait_for, wait_until, wait_within,
};
use tokio::runtime::Builder;
use tokio::time::timeout;

/// "At once" takes a fraction of a millisecond.
const AT_ONCE: std::time::Duration = SECOND.saturating_mul(3);

/// Cancelled by a timeout at any moment of the round trip, of the wait, and of the round trip after
/// it. Each of these locks would live for minutes.
#[tokio::test]
async fn g1_a_cancelled_acquire_leaves_no_key_and_no_place_in_the_line() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    proxy.set(Mode::Delay(ms(2)));
    let (mut cancelled, mut granted) = (0, 0);
    for round in 0..150 {
        // From "before anything was sent" to "after the answer", in steps of 100 µs.
        let patience = ms(1) * (round % 75) / 10;
        let free = manager.lock(format!("free-{round}")).ttl(LONG);
        let holder = manager.lock(format!("held-{round}")).ttl(LONG).acquire();
        let holder = holder.await.expect("granted");
        let held = manager.lock(format!("held-{round}")).ttl(LONG).wait(LONG);
        let release = async {
            tokio::time::sleep(patience / 2).await;
            holder.release().await.expect("it was held");
        };
        let (free, held, ()) = tokio::join!(
            timeout(patience, free.acquire()),
            timeout(patience + ms(3), held.acquire()),
            release,
        );
        for got in [free, held] {
            match got {
                Ok(guard) => {
                    drop(guard.expect("granted"));
                    granted += 1;
                }
                Err(_) => cancelled += 1,
            }
        }
    }
    assert!(cancelled > 30 && granted > 30, "{cancelled} cancelled, {granted} granted");
    settle(&manager).await;
    nothing_is_left(&server);
    // No place is left in a line without waiters.
    for round in 0..150 {
        let request = manager.lock(format!("held-{round}")).ttl(LONG);
        request.acquire().await.expect("free").release().await.expect("it was held");
    }
    nothing_is_left(&server);
}

/// The tries arrive at the server, are granted, and their answers do not arrive here.
#[tokio::test]
async fn g1_a_cancelled_acquire_whose_answer_is_lost_leaves_no_key() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    // Its silence does not count against the connection.
    let builder = LockManager::builder().url(proxy.url()).command_timeout(LONG);
    let manager = builder.connect().await.expect("connect");
    let tries = || {
        let stats: String = server.cli(&["INFO", "commandstats"]);
        let drawn = stats.lines().find_map(|line| line.strip_prefix("cmdstat_incr:calls="));
        let drawn = drawn.and_then(|line| line.split(',').next()?.parse::<u64>().ok());
        drawn.expect("a count")
    };
    settle(&manager).await;
    let before = tries();
    proxy.set(Mode::DropDown);
    let mut calls = 0;
    // On a busy machine a call may be over before its command was written, which then is not.
    wait_for("the server has granted twenty", async || {
        for _ in tries()..before + 20 {
            calls += 1;
            let request = manager.lock(format!("k-{calls}")).ttl(LONG);
            assert!(timeout(ms(5), request.acquire()).await.is_err(), "no answer can come");
        }
        tries() >= before + 20
    })
    .await;
    // The releases went out behind them, and need no answer either.
    nothing_is_left(&server);
    proxy.set(Mode::Pass);
    assert!(manager.close(LONG).await.is_complete());
    nothing_is_left(&server);
}

#[tokio::test]
async fn g2_a_task_aborted_while_it_holds_frees_the_lock_for_the_next() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    for by_hand in [true, false] {
        let held = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn({
            let (request, held) = (manager.lock("k").ttl(LONG), held.clone());
            async move {
                let forever = async {
                    held.store(true, SeqCst);
                    std::future::pending::<()>().await;
                };
                if by_hand {
                    let _guard = request.acquire().await.expect("granted");
                    forever.await;
                } else {
                    request.run(forever).await.expect("never over");
                }
            }
        });
        wait_for("it holds the lock", async || held.load(SeqCst)).await;
        let waiter = tokio::spawn(manager.lock("k").ttl(LONG).wait(LONG).acquire());
        task.abort();
        assert!(task.await.expect_err("it was aborted").is_cancelled());
        let next = timeout(AT_ONCE, waiter).await.expect("at once").expect("no panic");
        next.expect("granted").release().await.expect("it was held");
        nothing_is_left(&server);
    }
}

/// Dropped at every poll behind a slow network, and while no answer comes at all.
#[tokio::test]
async fn g3_a_dropped_release_still_frees_the_lock() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    proxy.set(Mode::Delay(ms(2)));
    let mut done = false;
    for polls in 0.. {
        let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
        done = dropped_after(polls, guard.release()).await.is_some();
        wait_within(AT_ONCE, "the key is gone", || server.lock_keys().is_empty());
        if done {
            break;
        }
    }
    assert!(done);

    for fault in [Mode::Freeze, Mode::DropUp, Mode::DropDown, Mode::Reset] {
        proxy.set(Mode::Pass);
        let mut guard = None;
        // The first try after a fault may find the connection gone.
        wait_for("a lock", async || {
            guard = manager.lock("k").ttl(LONG).acquire().await.ok();
            guard.is_some()
        })
        .await;
        proxy.set(fault);
        let release = guard.expect("granted").release();
        let confirmed = matches!(timeout(ms(20), release).await, Ok(Ok(())));
        assert!(!confirmed, "{fault:?}");
        if fault != Mode::DropDown {
            assert_eq!(server.lock_keys(), [stored("k")], "{fault:?}");
        }
        proxy.set(Mode::Pass);
        nothing_is_left(&server);
    }
}

/// Unchanged, and nothing of the body's nesting stays behind on its thread.
#[tokio::test]
async fn g4_a_panic_frees_every_lock_and_passes_through() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let body = async {
        let inner = manager.lock("b").run(async {
            tokio::task::yield_now().await;
            std::panic::panic_any(4711_u64);
        });
        inner.await.expect("granted")
    };
    let mut run = Box::pin(manager.lock_all(["a", "c"]).ttl(LONG).run(body));
    let panic = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
        Ok(poll) => poll.map(|_| None),
        Err(panic) => Poll::Ready(Some(panic)),
    })
    .await;
    assert_eq!(panic.expect("it panics").downcast_ref(), Some(&4711_u64));
    drop(run);
    wait_within(AT_ONCE, "the keys are gone", || server.lock_keys().is_empty());
    let again = manager.lock_all(["a", "b", "c"]).run(async {}).await;
    again.expect("no trace of the body that panicked");
}

/// A second panic while one is under way would end the process, and this test with it.
#[test]
fn g5_no_drop_panics_while_a_thread_unwinds() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut server = RedisServer::start();
    let (guards, others, closed) = runtime.block_on(async {
        let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let closed = connect(&server.url()).await;
        let guard = closed.lock("closed").ttl(LONG).acquire().await.expect("granted");
        closed.close(LONG).await;
        let request = manager.lock_all(["a", "b", "c"]).ttl(LONG).min_hold(SECOND);
        let several = request.acquire().await.expect("granted");
        (several, other.lock("d").ttl(ms(300)).acquire().await.expect("granted"), guard)
    });
    let acquiring = {
        let _entered = runtime.enter();
        let manager = LockManager::connect_lazy(server.url()).expect("a URL");
        let mut acquiring = Box::pin(manager.lock("a").wait(LONG).acquire());
        let polled = acquiring.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        assert!(polled.is_pending());
        acquiring
    };
    server.kill9();
    drop(runtime);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _all = (guards, others, closed, acquiring);
        panic!("with all of this in hand");
    }));
    unwound.expect_err("it panics");
}

/// Whatever the tasks of a runtime were doing when it was dropped, nothing is left of it.
#[test]
fn g6_a_runtime_that_is_dropped_leaves_no_key() {
    let builders: [fn() -> Builder; 2] = [Builder::new_current_thread, Builder::new_multi_thread];
    for builder in builders {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.addr());
        let runtime = builder().enable_all().build().expect("a runtime");
        let manager = runtime.block_on(LockManager::connect(&proxy.url())).expect("connect");
        let running = Arc::new(AtomicU32::new(0));
        let request = |key: &str| manager.lock(key).ttl(LONG).wait(LONG);
        for n in 0..5 {
            let (request, running) = (request(&format!("held-{n}")), running.clone());
            runtime.spawn(request.run(async move {
                running.fetch_add(1, SeqCst);
                std::future::pending::<()>().await;
            }));
            runtime.spawn(manager.lock(format!("held-{n}")).ttl(LONG).wait(LONG).acquire());
        }
        let all_run = wait_for("the bodies run", async || running.load(SeqCst) == 5);
        runtime.block_on(all_run);
        let guard = runtime.block_on(request("releasing").acquire()).expect("granted");
        proxy.set(Mode::Freeze);
        runtime.spawn(guard.release());
        runtime.spawn(request("acquiring").acquire());
        // Both have sent their command, which stands still in the network.
        runtime.block_on(async { tokio::time::sleep(ms(20)).await });
        drop(runtime);
        proxy.set(Mode::Pass);
        nothing_is_left(&server);
        // The manager outlives the runtime it was made on.
        let other = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let guard = other.block_on(request("held-0").acquire()).expect("free");
        other.block_on(guard.release()).expect("it was held");
    }
}

#[test]
fn g7_a_lock_lives_and_ends_without_any_runtime() {
    let server = RedisServer::start();
    let manager = block_on(patient(&server.url()));
    let guard = block_on(manager.lock("k").ttl(2 * SECOND).acquire()).expect("granted");
    assert_busy(block_on(manager.lock("k").wait(ms(20)).acquire()));
    thread::sleep(3 * SECOND);
    assert!(guard.is_held(), "renewed without a runtime");
    drop(guard);
    wait_within(AT_ONCE, "the key is gone", || server.lock_keys().is_empty());
    block_on(manager.lock("k").ttl(LONG).run(async {})).expect("granted");
    nothing_is_left(&server);
}

#[tokio::test]
async fn g8_a_killed_holder_is_succeeded_after_its_ttl() {
    if in_fork() {
        let data = Data::of_parent();
        let request = distlock::manager().expect("of the environment").lock("k").ttl(3 * SECOND);
        let guard = request.acquire().await.expect("granted");
        data.set("token", &guard.fencing_token().to_string());
        return std::future::pending().await;
    }
    let server = RedisServer::start();
    let (manager, data) = (connect(&server.url()).await, Data::of(&server));
    let env = environment(&server);
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let child = fork_self(this_test!(), &env);
    wait_until("it holds the lock", || data.get("token").is_some());
    let owner_before = owner(&server, "k");
    // It is renewed for as long as its holder lives.
    assert_busy(manager.lock("k").wait(4 * SECOND).acquire().await);
    assert_eq!(owner(&server, "k"), owner_before);
    let waiter = tokio::spawn(manager.lock("k").wait(LONG).acquire());
    child.kill9();
    let guard = timeout(30 * SECOND, waiter).await.expect("after its ttl").expect("no panic");
    let guard = guard.expect("granted");
    let token: u64 = data.get("token").and_then(|token| token.parse().ok()).expect("a number");
    assert!(guard.fencing_token() > token);
}

/// A service that is terminated closes its manager, and the next one need not wait for any ttl.
#[tokio::test]
async fn g9_a_terminated_process_that_closes_its_manager_leaves_nothing() {
    if in_fork() {
        return g9_child().await;
    }
    let server = RedisServer::start();
    let data = Data::of(&server);
    let env = environment(&server);
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let child = fork_self(this_test!(), &env);
    data.wait_until_is("state", "holds");
    assert_eq!(server.lock_keys().len(), 4);
    child.terminate();
    child.join();
    assert!(server.lock_keys().is_empty(), "its ttl is two minutes: {:?}", server.lock_keys());
    assert_eq!(data.get("report").as_deref(), Some("4 freed, 0 unconfirmed"));
    assert_eq!(data.get("body").as_deref(), Some("lost"));
}

async fn g9_child() {
    use tokio::signal::unix::{SignalKind, signal};
    let data = Data::of_parent();
    let manager = distlock::manager().expect("of the environment");
    let mut term = signal(SignalKind::terminate()).expect("a signal handler");
    let _several = manager.lock_all(["a", "b"]).ttl(LONG).acquire().await.expect("granted");
    let _one = manager.lock("c").ttl(LONG).acquire().await.expect("granted");
    let running = Arc::new(AtomicBool::new(false));
    let body = tokio::spawn(manager.lock("d").ttl(LONG).run({
        let running = running.clone();
        async move {
            running.store(true, SeqCst);
            std::future::pending::<()>().await;
        }
    }));
    wait_for("the body runs", async || running.load(SeqCst)).await;
    data.set("state", "holds");
    term.recv().await;
    let report = manager.close(LONG).await;
    data.set("report", &format!("{} freed, {} unconfirmed", report.freed, report.unconfirmed));
    let lost = body.await.expect("no panic").is_err_and(|error| error.is_lost());
    data.set("body", if lost { "lost" } else { "?" });
}

/// No owner is left to free it, but the engine knows when to stop.
#[tokio::test]
async fn g11_a_forgotten_guard_ends_with_max_hold() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let request = manager.lock("k").ttl(2 * SECOND).max_hold(4 * SECOND);
    let start = Instant::now();
    std::mem::forget(request.acquire().await.expect("granted"));
    let next = other.lock("k").wait(30 * SECOND).acquire().await.expect("free in the end");
    assert!(start.elapsed() > SECOND * 36 / 10, "it was renewed until then");
    next.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// Releasing twice, or what another one holds, cannot be written down: `release` takes the guard.
/// What is left of it: after a loss, after a close, at the same moment from two sides.
#[tokio::test]
async fn g12_a_release_of_what_is_not_held_says_so_and_touches_nothing() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    assert!(other.force_release("k").await.expect("an answer"), "it was held");
    assert!(!other.force_release("k").await.expect("an answer"), "it is free");
    let next = other.lock("k").ttl(LONG).acquire().await.expect("free");
    let owner_before = owner(&server, "k");
    // The guard may not have been notified yet; the server knows.
    assert_lost(guard.release().await);
    assert_eq!(owner(&server, "k"), owner_before);
    assert!(next.is_held());

    let second = manager.lock("second").ttl(LONG).acquire().await.expect("granted");
    assert!(manager.close(LONG).await.is_complete());
    let third = other.lock("second").ttl(LONG).acquire().await.expect("free");
    assert_lost(second.release().await);
    third.release().await.expect("it was not touched");
    next.release().await.expect("it was not touched");
    nothing_is_left(&server);
}

#[tokio::test]
async fn g13_a_guard_works_the_same_in_another_task_thread_and_runtime() {
    let server = RedisServer::start();
    let manager = connect(&server.url()).await;
    let guard = manager.lock("k").ttl(3 * SECOND).acquire().await.expect("granted");
    let before = owner(&server, "k");
    let guard = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(guard.extend(LONG)).expect("it is held");
        guard
    });
    let guard = guard.join().expect("no panic");
    assert!(ttl_of(&server, "k") > 60_000, "extended");
    let guard = tokio::spawn(async move {
        assert!(guard.is_held());
        guard
    });
    let guard = guard.await.expect("no panic");
    // Longer than the lease it had at first.
    tokio::time::sleep(4 * SECOND).await;
    assert!(guard.is_held());
    assert_eq!(owner(&server, "k"), before);
    guard.release().await.expect("it was held");
    nothing_is_left(&server);
}

/// Every command is carried out one to three times, and a third of the answers are lost: nothing is
/// counted twice, nothing is held twice, and nothing is left.
#[tokio::test]
async fn g15_repeated_commands_and_lost_answers_change_nothing() {
    tokio::join!(in_disorder(0..5), in_disorder(5..10), in_disorder(10..15), in_disorder(15..20));
}

async fn in_disorder(seeds: Range<u64>) {
    let server = RedisServer::start();
    let over_redis = || Faults::over(LockManager::builder().url(server.url()));
    for seed in seeds {
        let script = Script::seeded(seed).deliveries(3).lost(33).delays(ms(2));
        let stores = [over_redis(), Faults::as_remote(), Faults::in_memory()];
        let [redis, remote, memory] =
            stores.map(|store| ten_in_turn(store.script(script.clone()), seed));
        tokio::join!(redis, remote, memory);
        nothing_is_left(&server);
    }
}

/// Ten calls of one process, one after the other.
async fn ten_in_turn(faults: Faults, seed: u64) {
    let (manager, network) = faults.start().expect("a manager");
    let mut last = 0;
    for round in 0..10 {
        let Ok(guard) = manager.lock("k").ttl(LONG).wait(LONG).acquire().await else {
            panic!("never granted: seed {seed}, round {round}");
        };
        assert!(guard.fencing_token() > last, "seed {seed}, round {round}");
        last = guard.fencing_token();
        tokio::time::sleep(ms(1)).await;
        // Its answer may be that of the second delivery: already free.
        let _ = guard.release().await;
    }
    network.script(None);
    assert!(manager.close(LONG).await.is_complete(), "seed {seed}");
    assert!(!network.lose("k").await.expect("an answer"), "left behind: seed {seed}");
}

/// Holders of one lock need not agree on its ttl: each has its own, and none changes another's.
/// (Reader-writer locks and semaphores, which would have to be distinguished, do not exist yet.)
#[tokio::test]
async fn g16_each_holder_has_the_ttl_it_asked_for() {
    let server = RedisServer::start();
    let (manager, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let long = manager.lock("k").ttl(LONG).acquire().await.expect("granted");
    assert!(ttl_of(&server, "k") > 60_000);
    assert_busy(other.lock("k").ttl(ms(50)).wait(ms(200)).acquire().await);
    assert!(ttl_of(&server, "k") > 60_000, "a waiter's ttl is nothing to the holder");
    long.extend(ms(50)).await.expect("it is held");
    assert!(ttl_of(&server, "k") > 60_000, "an extension does not shorten");
    let short = other.lock("k").ttl(10 * SECOND).wait(LONG);
    let (short, ()) = tokio::join!(short.acquire(), async {
        tokio::time::sleep(ms(20)).await;
        long.release().await.expect("it was held");
    });
    assert!((1..=10_000).contains(&ttl_of(&server, "k")), "{}", ttl_of(&server, "k"));
    short.expect("granted").release().await.expect("it was held");
}
