//! The test kit for users: several processes in virtual time, and everything that can go wrong.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::testing::{Ended, Locks};
use distlock::{
    BackendKind, LockError, LockManager, LockStatus, OnLost, assert_held, key, redis_lock,
    with_manager,
};
use distlock_testkit::SECOND;
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);

#[redis_lock(key = "order:{order_id}", ttl = "10s", wait = "1h")]
async fn pay(order_id: u64) -> Result<u64, LockError> {
    sleep(MINUTE).await;
    Ok(order_id)
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_stops_the_body_and_the_next_one_has_it() {
    let real = std::time::Instant::now();
    let locks = Locks::new();
    let (a, b) = (locks.replica("a"), locks.replica("b"));
    let paid = tokio::spawn(with_manager(a.manager(), pay(7)));
    locks.until_held("order:7").await;
    let next = tokio::spawn(with_manager(b.manager(), pay(7)));
    sleep(SECOND).await;
    assert!(locks.lose("order:7"));
    let lost = paid.await.expect("no panic").expect_err("its lock was lost");
    assert!(lost.is_lost(), "{lost}");
    assert_eq!(next.await.expect("no panic").ok(), Some(7));
    assert!(!locks.lose("order:7"), "nobody has it any more");

    locks.assert_never_together("order:7");
    let history = locks.history("order:7");
    assert_eq!(history.names(), ["pay", "pay"]);
    assert_eq!(history.replicas(), ["a", "b"]);
    assert_eq!(history[0].ended, Some(Ended::Lost));
    assert_eq!(history[1].ended, Some(Ended::Released));
    assert_eq!((history[0].until, history[1].from), (Some(SECOND), SECOND));
    assert!(history[0].fencing_token < history[1].fencing_token);
    // A minute of virtual time. It takes a few milliseconds.
    assert!(real.elapsed() < 10 * SECOND, "{:?}", real.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_was_killed_is_succeeded_after_exactly_the_ttl() {
    for held_for in [Duration::ZERO, 7 * SECOND, MINUTE] {
        let locks = Locks::new();
        let (a, b) = (locks.replica("a"), locks.replica("b"));
        let killed = tokio::spawn(with_manager(a.manager(), async {
            #[redis_lock(key = "k", ttl = "10s")]
            async fn forever() -> Result<(), LockError> {
                pending().await
            }
            forever().await
        }));
        locks.until_held("k").await;
        sleep(held_for).await;
        a.kill();
        let start = Instant::now();
        let next = b.manager().lock("k").wait(MINUTE).acquire().await.expect("it is free");
        assert_eq!(start.elapsed(), 10 * SECOND, "held for {held_for:?}");
        assert!(next.is_held());
        assert!(killed.await.expect("no panic").is_err());
        let refused = a.manager().lock("other").acquire().await.expect_err("it is dead");
        assert!(matches!(refused, LockError::Backend { .. }), "{refused}");
        locks.assert_never_together("k");
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_know_each_other() {
    let locks = Locks::new();
    let (a, b) = (locks.replica("a"), locks.replica("b"));
    let elsewhere = locks.replica_with("c", |builder| builder.prefix("elsewhere"));
    let ids = async |manager: LockManager| {
        let known = manager.processes().await.expect("a list");
        known.into_iter().map(|process| process.id).collect::<Vec<_>>()
    };
    let both = ids(b.manager()).await;
    assert_eq!((both.len(), ids(a.manager()).await), (2, both.clone()));
    assert_eq!(ids(elsewhere.manager()).await.len(), 1);

    let held = a.manager().lock("order:7").name("checkout").acquire().await.expect("free");
    let waits = a.manager().lock("order:7").name("refund").wait(MINUTE).acquire();
    let waits = tokio::spawn(waits);
    let asked = async || match b.manager().inspect("order:7").await.expect("an answer") {
        LockStatus::Held { holders, waiters, .. } => (holders, waiters),
        status => panic!("{status:?}"),
    };
    let (holders, waiters) = asked().await;
    assert_eq!(holders[0].name.as_deref(), Some("checkout"));
    assert_eq!(holders[0].fencing_token, Some(held.fencing_token()));
    assert_eq!(waiters[0].name.as_deref(), Some("refund"));
    let holder = holders[0].process.as_ref().expect("it answers");
    assert_eq!(holder.pid, std::process::id());
    assert!(both.contains(&holder.id));

    a.kill();
    // What it has said before is good for a second.
    sleep(2 * SECOND).await;
    let (holders, _) = asked().await;
    assert_eq!((&holders[0].name, &holders[0].process), (&None, &None), "it cannot say it");
    assert_eq!(ids(b.manager()).await.len(), 1);
    assert!(waits.await.expect("no panic").is_err());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_one_that_is_killed_has_the_lock_after_the_ttl() {
    let locks = Locks::new();
    let (a, b) = (locks.replica("a"), locks.replica("b"));
    let guard = a.manager().lock("k").ttl(10 * SECOND).acquire().await.expect("free");
    let waiting = b.manager().lock("k").wait(10 * MINUTE);
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    sleep(25 * SECOND).await;
    assert!(!waiting.is_finished(), "a lease that is renewed does not end");
    let start = Instant::now();
    a.kill();
    assert!(!guard.is_held());
    drop(waiting.await.expect("no panic").expect("it is free"));
    assert_eq!(start.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn every_error_can_be_brought_about() {
    let locks = Locks::new();
    let manager = locks.manager();
    let error = async |key: &str| manager.lock(key).acquire().await.map(drop).expect_err("refused");

    let elsewhere = locks.held_elsewhere("k");
    assert!(error("k").await.is_busy());
    let start = Instant::now();
    let busy = manager.lock("k").wait(MINUTE).acquire().await.expect_err("held elsewhere");
    assert!(busy.is_busy(), "{busy}");
    assert_eq!(start.elapsed().as_secs(), 60);
    elsewhere.end();
    manager.lock("k").acquire().await.expect("free again").release().await.expect("it was held");

    let kind = |error: &LockError| match error {
        LockError::Backend { kind, .. } => Some(*kind),
        _ => None,
    };
    let down = locks.down();
    assert_eq!(kind(&error("k").await), Some(BackendKind::Unreachable));
    drop(down);
    let slow = locks.slow(MINUTE);
    assert_eq!(kind(&error("slow").await), Some(BackendKind::TimedOut));
    drop(slow);
    for refusal in [BackendKind::Refused, BackendKind::OutOfMemory, BackendKind::ReadOnly] {
        let _refuses = locks.refuse(refusal);
        assert_eq!(kind(&error("k").await), Some(refusal));
    }
    manager.lock("k").acquire().await.expect("all is well").release().await.expect("held");

    assert!(matches!(error("").await, LockError::InvalidKey { .. }));
    let too_short = manager.lock("k").ttl(Duration::ZERO).acquire().await;
    assert!(matches!(too_short, Err(LockError::InvalidOption { .. })));
    let nested = manager.lock("k").run(async { error("k").await }).await.expect("free");
    assert!(matches!(nested, LockError::WouldDeadlock { .. }), "{nested}");

    let running = manager.lock("k").ttl(3 * SECOND);
    let running = tokio::spawn(async move { running.run(pending::<()>()).await });
    locks.until_held("k").await;
    locks.lose("k");
    assert!(running.await.expect("no panic").expect_err("it was lost").is_lost());

    manager.close(SECOND).await;
    assert!(matches!(error("k").await, LockError::Closed));
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_longer_than_the_ttl_loses_the_lease_and_a_shorter_one_does_not() {
    let locks = Locks::new();
    let manager = locks.manager();
    let guard = manager.lock("k").ttl(10 * SECOND).acquire().await.expect("free");
    for _ in 0..3 {
        let _down = locks.down();
        sleep(5 * SECOND).await;
        assert!(guard.is_held(), "it was renewed between the outages");
        drop(_down);
        sleep(10 * SECOND).await;
    }
    let start = Instant::now();
    let _cut_off = locks.replica("one").cut_off();
    guard.lost().await;
    assert!((6 * SECOND..=10 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn calls_ride_out_an_outage_and_those_that_come_when_it_is_long_do_not() {
    let locks = Locks::new();
    let lock = || locks.manager().lock("k").wait(MINUTE);
    let down = locks.down();
    let rides_it_out = lock();
    let rides_it_out = tokio::spawn(async move { rides_it_out.run(async {}).await });
    sleep(20 * SECOND).await;
    let start = Instant::now();
    let refused = lock().acquire().await.expect_err("it has been away for longer than it may be");
    assert_eq!(refused.code(), "lock-store-unavailable");
    assert!((SECOND..2 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(!rides_it_out.is_finished());
    drop(down);
    rides_it_out.await.expect("no panic").expect("it is back");
    lock().run(async {}).await.expect("it is back");
}

#[tokio::test(start_paused = true)]
async fn replicas_take_turns_in_the_order_in_which_they_came() {
    let locks = Locks::new();
    let mut tasks = Vec::new();
    for n in 0..20 {
        let manager = locks.replica(["a", "b", "c"][n % 3]).manager();
        tasks.push(tokio::spawn(with_manager(manager, pay(1))));
        sleep(SECOND).await;
    }
    for task in tasks {
        assert_eq!(task.await.expect("no panic").ok(), Some(1));
    }
    locks.assert_never_together("order:1");
    let replicas = locks.history("order:1");
    let expected: Vec<_> = (0..20).map(|n| ["a", "b", "c"][n % 3]).collect();
    assert_eq!(replicas.replicas(), expected);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "at once")]
async fn a_lock_that_does_nothing_is_seen() {
    let locks = Locks::broken();
    let (a, b) = (locks.replica("a"), locks.replica("b"));
    let (one, other) = tokio::join!(
        tokio::spawn(with_manager(a.manager(), pay(7))),
        tokio::spawn(with_manager(b.manager(), pay(7))),
    );
    assert!(one.expect("no panic").is_ok() && other.expect("no panic").is_ok());
    locks.assert_never_together("order:7");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "at once")]
async fn a_body_that_goes_on_without_its_lock_is_seen() {
    let locks = Locks::new();
    let (a, b) = (locks.replica("a").manager(), locks.replica("b").manager());
    let body = || async {
        sleep(SECOND).await;
        sleep(SECOND).await;
    };
    let goes_on = a.lock("k").on_lost(OnLost::Continue);
    let goes_on = tokio::spawn(async move { goes_on.run(body()).await });
    locks.until_held("k").await;
    locks.lose("k");
    b.lock("k").run(body()).await.expect("it is free");
    goes_on.await.expect("no panic").expect("it goes on");
    locks.assert_never_together("k");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "nobody has ever held")]
async fn a_misspelt_key_is_seen() {
    let locks = Locks::new();
    locks.manager().lock("order:7").acquire().await.expect("free").release().await.expect("held");
    locks.assert_never_together("oder:7");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "nobody has held")]
async fn a_wait_for_a_lock_that_nobody_takes_ends() {
    Locks::new().until_held("k").await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_code_relies_on_is_asserted() {
    let manager = Locks::new().manager();
    let id = 7;
    let asserted = |id: u32| std::panic::catch_unwind(|| assert_held!("k:{id}")).is_ok();
    assert!(!asserted(id));
    let request = manager.lock(key!("k:{id}"));
    let inside = request.run(async { (asserted(id), asserted(8)) }).await.expect("free");
    assert_eq!(inside, (true, false));
    let _by_hand = manager.lock(key!("k:{id}")).acquire().await.expect("free");
    assert!(!asserted(id), "a guard taken by hand is not seen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_in_real_time_on_several_threads() {
    let locks = Locks::new();
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0..24 {
        let manager = locks.replica(["a", "b", "c"][n % 3]).manager();
        let inside = inside.clone();
        tasks.push(tokio::spawn(async move {
            let body = async {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            manager.lock("k").wait(10 * MINUTE).run(body).await
        }));
    }
    for task in tasks {
        task.await.expect("no panic").expect("in time");
    }
    locks.assert_never_together("k");
    assert_eq!(locks.history("k").len(), 24);
}

/// As many tests as a service has, side by side.
#[test]
fn two_hundred_tests_side_by_side() {
    let a_test = || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let locks = Locks::new();
            let (a, b) = (locks.replica("a"), locks.replica("b"));
            let paid = tokio::spawn(with_manager(a.manager(), pay(7)));
            locks.until_held("order:7").await;
            locks.lose("order:7");
            assert!(paid.await.expect("no panic").expect_err("lost").is_lost());
            with_manager(b.manager(), pay(7)).await.expect("free");
            locks.assert_never_together("order:7");
        });
    };
    let start = std::time::Instant::now();
    std::thread::scope(|scope| (0..200).for_each(|_| drop(scope.spawn(a_test))));
    // 0.2 s on a machine with two cores.
    assert!(start.elapsed() < 60 * SECOND, "{:?}", start.elapsed());
}

/// Every test has a manager of its own, so that nothing of one is seen in another.
#[tokio::test(start_paused = true)]
async fn stores_know_nothing_of_each_other() {
    let (one, other) = (Locks::new(), Locks::new());
    let _held = one.held_elsewhere("k");
    other.manager().lock("k").acquire().await.map(drop).expect("another store");
    let same = one.replica("a").manager();
    assert!(same.lock("k").acquire().await.expect_err("held").is_busy());
    let _: LockManager = same;
}
