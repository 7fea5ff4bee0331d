//! The test kit on the server that the environment names: what tests of users do, in memory and there.

use std::time::Duration;

use distlock::testing::{Ended, Locks, Replica};
use distlock::{BackendKind, LockError, LockMode, redis_lock, with_manager};
use distlock_testkit::{RedisServer, SECOND, fork_self, in_fork, in_own_process, this_test};
use tokio::time::{Instant, sleep};

const MINUTE: Duration = Duration::from_secs(60);

#[redis_lock(key = "order:{order_id}", ttl = "10s", wait = "1m")]
async fn pay(order_id: u64, takes: Duration) -> Result<u64, LockError> {
    sleep(takes).await;
    Ok(order_id)
}

/// Has time for its commands: the machine may be busy.
fn replica(locks: &Locks, name: &str) -> Replica {
    locks.replica_with(name, |builder| builder.command_timeout(10 * SECOND))
}

async fn a_lost_lock(locks: &Locks) {
    let (a, b) = (replica(locks, "a"), replica(locks, "b"));
    let paid = tokio::spawn(with_manager(a.manager(), pay(7, MINUTE)));
    locks.until_held("order:7").await;
    assert!(locks.lose("order:7"));
    assert!(paid.await.expect("no panic").expect_err("it was lost").is_lost());
    assert!(!locks.lose("order:7"));
    let paid = with_manager(b.manager(), pay(7, Duration::ZERO)).await;
    assert_eq!(paid.expect("it is free"), 7);
    locks.assert_never_together("order:7");
    let history = locks.history("order:7");
    assert_eq!((history.names(), history.replicas()), (vec!["pay", "pay"], vec!["a", "b"]));
    assert_eq!((history[0].ended, history[1].ended), (Some(Ended::Lost), Some(Ended::Released)));
    assert!(history[0].fencing_token < history[1].fencing_token);
}

async fn held_elsewhere(locks: &Locks) {
    let lock = || replica(locks, "a").manager().lock("k");
    let held = locks.held_elsewhere("k");
    assert!(lock().acquire().await.expect_err("held elsewhere").is_busy());
    held.end();
    lock().acquire().await.expect("it is free").release().await.expect("it was held");

    let reads = locks.read_elsewhere("k");
    assert!(lock().acquire().await.expect_err("read elsewhere").is_busy());
    let beside = lock().mode(LockMode::Read).acquire().await.expect("beside another reader");
    // A dropped guard is released in the background, when the store may already be set to refuse it.
    beside.release().await.expect("it was held");
    reads.end();

    let _out = locks.permits_elsewhere("permits", 4);
    let permit = || replica(locks, "a").manager().lock("permits").permits(5);
    let _fifth = permit().acquire().await.expect("one is left");
    assert!(permit().acquire().await.expect_err("none is left").is_busy());
}

async fn a_store_that_fails(locks: &Locks) {
    let manager = replica(locks, "a").manager();
    let kind = async || match manager.lock("store").acquire().await {
        Err(LockError::Backend { kind, .. }) => Some(kind),
        _ => None,
    };
    let refuses = locks.refuse(BackendKind::OutOfMemory);
    assert_eq!(kind().await, Some(BackendKind::OutOfMemory));
    refuses.end();
    let hasty = locks.replica_with("hasty", |to| to.command_timeout(Duration::from_millis(50)));
    let slow = locks.slow(MINUTE);
    let late = hasty.manager().lock("slow").acquire().await.expect_err("an answer comes too late");
    assert!(matches!(late, LockError::Backend { kind: BackendKind::TimedOut, .. }), "{late}");
    slow.end();

    let down = locks.down();
    assert_eq!(kind().await, Some(BackendKind::Unreachable));
    let rides_it_out = manager.lock("store").wait(MINUTE);
    let rides_it_out = tokio::spawn(async move { rides_it_out.acquire().await.map(drop) });
    sleep(SECOND / 10).await;
    assert!(!rides_it_out.is_finished());
    down.end();
    rides_it_out.await.expect("no panic").expect("it is back");
}

/// A waiter during an outage is notified of a release afterwards.
async fn a_wait_over_an_outage(locks: &Locks) {
    let (a, b) = (replica(locks, "a").manager(), replica(locks, "b").manager());
    let held = a.lock("outage").ttl(MINUTE).acquire().await.expect("it is free");
    let next = b.lock("outage").wait(MINUTE);
    let next = tokio::spawn(async move { next.acquire().await.map(drop) });
    sleep(SECOND / 10).await;
    let down = locks.down();
    drop(held);
    sleep(SECOND / 10).await;
    assert!(!next.is_finished());
    down.end();
    let begin = Instant::now();
    next.await.expect("no panic").expect("it is free");
    assert!(begin.elapsed() < 20 * SECOND, "{:?}", begin.elapsed());
}

async fn a_killed_replica(locks: &Locks) {
    let (dies, next) = (replica(locks, "dies"), replica(locks, "next"));
    let held = dies.manager().lock("dead").ttl(2 * SECOND).acquire().await.expect("it is free");
    dies.kill();
    assert!(!held.is_held());
    let begin = Instant::now();
    let next = next.manager().lock("dead").wait(MINUTE).acquire().await.expect("it is free");
    assert!((SECOND..30 * SECOND).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    assert!(next.is_held());
    locks.assert_never_together("dead");
}

async fn turns_of_three(locks: &Locks) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let manager = replica(locks, ["a", "b", "c"][n % 3]).manager();
        tasks.spawn(with_manager(manager, pay(9, SECOND / 100)));
    }
    for paid in tasks.join_all().await {
        assert_eq!(paid.expect("each has its turn"), 9);
    }
    locks.assert_never_together("order:9");
    assert_eq!((locks.history("order:9").len(), locks.most_together("order:9")), (12, 1));
}

/// What the tests of a user are.
async fn all_tests(locks: Locks) {
    a_lost_lock(&locks).await;
    held_elsewhere(&locks).await;
    a_store_that_fails(&locks).await;
    a_wait_over_an_outage(&locks).await;
    a_killed_replica(&locks).await;
    turns_of_three(&locks).await;

    let _held = locks.held_elsewhere("k");
    let other = Locks::from_env();
    let shop = other.replica_with("a", |builder| builder.prefix("shop")).manager();
    let free = shop.lock("k").acquire().await.expect("another test's locks are others");
    free.release().await.expect("it was held");
    let _held = other.held_elsewhere("k");
    assert!(shop.lock("k").acquire().await.expect_err("under its own prefix too").is_busy());
}

#[tokio::test(start_paused = true)]
async fn without_a_server_in_the_environment_they_run_in_memory() {
    if in_own_process(this_test!(), &[("DISTLOCK_TEST_URL", "")]) {
        let begin = Instant::now();
        all_tests(Locks::from_env()).await;
        sleep(60 * MINUTE).await;
        assert!(begin.elapsed() > 60 * MINUTE, "the clock is still paused");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_tests_run_on_a_server_and_leave_nothing_there() {
    if in_fork() {
        return all_tests(Locks::from_env()).await;
    }
    let server = RedisServer::start();
    fork_self(this_test!(), &[("DISTLOCK_TEST_URL", &server.url())]).join();
    let asked = distlock_testkit::info(&server, "total_commands_processed");
    assert!(asked > 100, "{asked}");
    for key in server.keys() {
        let ttl: i64 = server.cli(&["PTTL", &key]);
        assert!(ttl >= 0, "{key} stays for good");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_threads_have_a_server_too() {
    if in_fork() {
        return all_tests(Locks::from_env()).await;
    }
    let server = RedisServer::start();
    fork_self(this_test!(), &[("DISTLOCK_TEST_URL", &server.url())]).join();
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_said_at_once() {
    if !in_fork() {
        let urls = ["redis://127.0.0.1:1", "http://127.0.0.1"];
        let of = |url: &&str| fork_self(this_test!(), &[("DISTLOCK_TEST_URL", url)]);
        let children: Vec<_> = urls.iter().map(of).collect();
        return children.into_iter().for_each(distlock_testkit::Fork::join);
    }
    let panic = std::panic::catch_unwind(Locks::from_env).expect_err("it cannot be used");
    let text = panic.downcast::<String>().expect("a text");
    assert!(text.starts_with("DISTLOCK_TEST_URL: "), "{text}");
    assert!(text.contains("unset the variable"), "{text}");
}
