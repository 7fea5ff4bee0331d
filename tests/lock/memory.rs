//! The store in memory keeps the same promises, on tokio's clock: with the clock paused, an hour of
//! leases is a test of milliseconds.

use std::cell::Cell;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use distlock::{LockError, LockManager, LockMode, LostReason, redis_lock, with_manager};
use distlock_testkit::{SECOND, block_on, dropped_after, ms};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

thread_local! {
    static VALUE: Cell<u32> = const { Cell::new(0) };
}

/// Read, sleep, write: what others write in between is lost.
async fn add_one() {
    let value = VALUE.get();
    sleep(SECOND).await;
    VALUE.set(value + 1);
}

#[redis_lock(key = "value", wait = "1h")]
async fn add_one_locked() -> Result<(), LockError> {
    add_one().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_at_a_time_in_the_order_of_arrival() {
    let manager = LockManager::in_memory();
    let tasks = tokio::task::LocalSet::new();
    for _ in 0..50 {
        tasks.spawn_local(with_manager(manager.clone(), add_one_locked()));
    }
    tasks.await;
    assert_eq!(VALUE.replace(0), 50);

    let tasks = tokio::task::LocalSet::new();
    (0..50).for_each(|_| drop(tasks.spawn_local(add_one())));
    tasks.await;
    assert_eq!(VALUE.get(), 1, "nothing is lost without a lock: this test shows nothing");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lock_when_it_is_free_or_learns_that_it_is_busy() {
    let manager = LockManager::in_memory();
    let holder = manager.lock("k").acquire().await.expect("granted");
    let start = Instant::now();
    let busy = manager.lock("k").wait(10 * SECOND).acquire().await;
    let busy = busy.expect_err("held");
    assert!(busy.is_busy(), "{busy:?}");
    assert_eq!(busy.key(), Some("k"));
    assert!((10 * SECOND..11 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());

    let start = Instant::now();
    let at_once = manager.lock("k").acquire().await.expect_err("held");
    assert!(at_once.is_busy(), "{at_once:?}");
    assert_eq!(start.elapsed(), Duration::ZERO);
    let tried = manager.lock("k").try_acquire().await;
    assert!(tried.expect("an answer").is_none());

    let release = async {
        sleep(5 * SECOND).await;
        holder.release().await.expect("it was held");
    };
    let request = manager.lock("k").wait(10 * SECOND);
    let ((), got) = tokio::join!(release, request.acquire());
    assert!(got.expect("free now").is_held());
    assert!((5 * SECOND..6 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// Asks for a lock that others hold: a place in the line is given up in whichever way the call ends.
#[tokio::test(start_paused = true)]
async fn fc1_a_waiter_of_another_mode_that_gives_up_keeps_nobody_out() {
    let manager = LockManager::in_memory();
    let of = |kind: &str| {
        let request = manager.lock("k").wait(SECOND);
        match kind {
            "read" => request.mode(LockMode::Read),
            "permit" => request.permits(2),
            _ => request.mode(LockMode::Write),
        }
    };
    for held in ["write", "read", "permit"] {
        for asked in ["write", "read", "permit"] {
            // All readers count as one, so permits may be beside them.
            if !(held == "write" || asked == "write" || held == "permit" && asked == "permit") {
                continue;
            }
            let mut guards = vec![of(held).acquire().await.expect("free")];
            if held != "write" {
                guards.push(of(held).acquire().await.expect("there is room"));
            }
            let busy = of(asked).wait(ms(50)).acquire().await.expect_err("held");
            assert!(busy.is_busy(), "{busy:?}");
            for polls in 1..4 {
                let dropped = dropped_after(polls, of(asked).acquire()).await;
                assert!(!matches!(dropped, Some(Ok(_))), "it is held");
            }
            let several = manager.lock_all(["a", "k"]).wait(ms(50)).acquire().await;
            assert!(several.expect_err("one is held").is_busy());
            for guard in guards {
                guard.release().await.expect("it was held");
            }
            for next in ["read", "permit", "write"] {
                let next = of(next).acquire().await;
                drop(next.unwrap_or_else(|error| panic!("{held}, {asked}: {error}")));
            }
        }
    }
    assert!(manager.inspect("k").await.expect("an answer").is_free());
    assert!(manager.inspect("a").await.expect("an answer").is_free());
}

/// The one behind it is next, and does not look on a timer: on a paused clock that would take time.
#[tokio::test(start_paused = true)]
async fn fc1_a_waiter_that_gives_up_makes_way_at_once() {
    let manager = LockManager::in_memory();
    let read = || manager.lock("k").mode(LockMode::Read).wait(60 * SECOND);
    let reader = read().acquire().await.expect("free");
    let writer = tokio::spawn(manager.lock("k").wait(SECOND).acquire());
    sleep(ms(1)).await;
    let start = Instant::now();
    let next = tokio::spawn(read().acquire());
    assert!(writer.await.expect("no panic").expect_err("it is held").is_busy());
    let next = next.await.expect("no panic").expect("granted");
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    assert!(reader.is_held() && next.is_held());
}

/// Whatever the manager or the request says about waiting.
#[tokio::test(start_paused = true)]
async fn fw6_a_try_does_not_wait() {
    let manager = LockManager::builder().url("memory://").wait(60 * SECOND).build();
    let manager = manager.expect("good options");
    let holder = manager.lock("k").acquire().await.expect("granted");
    let start = Instant::now();
    for request in [manager.lock("k"), manager.lock("k").wait(Duration::MAX)] {
        assert!(request.try_acquire().await.expect("an answer").is_none());
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
    let several = manager.lock_all(["j", "k"]).wait(60 * SECOND);
    assert!(several.try_acquire().await.expect("an answer").is_none());
    let read = manager.lock("k").mode(LockMode::Read).wait(60 * SECOND);
    assert!(read.try_acquire().await.expect("an answer").is_none());
    assert_eq!(start.elapsed(), Duration::ZERO);
    holder.release().await.expect("it was held");
    assert!(manager.lock("k").try_acquire().await.expect("an answer").is_some());
}

/// What programs match on, by the names that stay.
#[tokio::test(start_paused = true)]
async fn fw6_errors_have_a_hint_a_reason_and_the_remaining_lease() {
    let url = String::from("memory://");
    let manager = LockManager::connect(&url).await.expect("good URL");
    LockManager::connect_lazy(url).map(drop).expect("good URL");
    let guard = manager.lock("k").ttl(10 * SECOND).acquire().await.expect("granted");
    let busy = manager.lock("k").acquire().await.expect_err("held");
    let LockError::Busy { lease_remaining, .. } = &busy else { panic!("{busy}") };
    assert_eq!(busy.lease_remaining(), *lease_remaining);

    manager.force_release("k").await.expect("an answer");
    let lost = guard.release().await.expect_err("it was taken away");
    assert_eq!(lost.lease_remaining(), None);
    assert!(matches!(lost, LockError::Lost { reason: LostReason::Forced, .. }), "{lost}");

    let nested = manager.lock("k").run(manager.lock("k").run(async {})).await;
    let nested = nested.expect("the outer one is free").expect_err("its caller has it");
    let LockError::WouldDeadlock { hint, .. } = nested else { panic!("{nested}") };
    assert!(hint.contains("reentrant = true"), "{hint}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    let manager = LockManager::in_memory();
    let guard = manager.lock("k").ttl(SECOND).acquire().await.expect("granted");
    sleep(3600 * SECOND).await;
    assert!(guard.is_held());
    assert!(manager.lock("k").try_acquire().await.expect("an answer").is_none());
    drop(guard);
    manager.lock("k").acquire().await.map(drop).expect("free at once");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_ends() {
    let manager = LockManager::in_memory();
    let request = || manager.lock("k").ttl(10 * SECOND).renew(false);
    let guard = request().acquire().await.expect("granted");
    let busy = request().acquire().await.expect_err("held");
    let rest = busy.lease_remaining().expect("memory can tell");
    assert!((9 * SECOND..=10 * SECOND).contains(&rest), "{rest:?}");

    let start = Instant::now();
    guard.lost().await;
    assert!((9 * SECOND..=10 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(!guard.is_held());
    let next = request().wait(SECOND).acquire().await.expect("its time is over");
    assert!(next.fencing_token() > guard.fencing_token());
    let released = guard.release().await;
    assert!(released.as_ref().is_err_and(LockError::is_lost), "{released:?}");
    assert!(next.is_held(), "the release of another one's lease is nothing to it");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_dropped_at_its_deadline() {
    let manager = LockManager::in_memory();
    let steps = Cell::new(0);
    let body = async {
        while steps.get() < 100 {
            sleep(SECOND).await;
            steps.set(steps.get() + 1);
        }
    };
    let request = manager.lock("k").ttl(Duration::from_millis(5500)).renew(false);
    let lost = request.run(body).await.expect_err("its time is over");
    assert!(lost.is_lost(), "{lost:?}");
    assert_eq!(steps.get(), 5);
}

#[tokio::test]
async fn every_store_in_memory_is_its_own() {
    let (one, other) = (LockManager::in_memory(), LockManager::in_memory());
    let held = one.lock("k").acquire().await.expect("granted");
    other.lock("k").acquire().await.map(drop).expect("another store");
    assert!(one.clone().lock("k").try_acquire().await.expect("an answer").is_none());
    held.release().await.expect("it was held");
}

/// What `work` comes to on a thread of its own. A thread that hangs would hang for good.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, told) = channel();
    thread::spawn(move || done.send(work()));
    told.recv_timeout(20 * SECOND).expect("it comes to an end, without a panic")
}

fn plain_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The timers of a runtime do not run while one of its tasks blocks it.
#[test]
fn f19_a_wait_ends_inside_a_runtime_that_it_blocks() {
    let busy = on_a_thread(|| {
        plain_runtime().block_on(async {
            let manager = LockManager::in_memory();
            let _held = manager.lock("k").acquire().await.expect("free");
            block_on(manager.lock("k").wait(ms(100)).acquire()).map(drop)
        })
    });
    assert!(busy.as_ref().is_err_and(LockError::is_busy), "{busy:?}");
}

/// There the next one in the line sees to it that the lock of a lease that is over is taken.
#[test]
fn f19_a_lease_that_ends_is_followed_inside_a_runtime_that_is_blocked() {
    let next = on_a_thread(|| {
        plain_runtime().block_on(async {
            let manager = LockManager::in_memory();
            let request = || manager.lock("k").ttl(SECOND).renew(false);
            let _held = request().acquire().await.expect("free");
            block_on(request().wait(15 * SECOND).acquire()).map(drop)
        })
    });
    assert!(next.is_ok(), "{next:?}");
}

#[test]
fn f19_the_end_of_a_lease_is_told_inside_a_runtime_that_is_blocked() {
    let is_held = on_a_thread(|| {
        plain_runtime().block_on(async {
            let manager = LockManager::in_memory();
            let request = manager.lock("k").ttl(SECOND).renew(false);
            let guard = request.acquire().await.expect("free");
            block_on(guard.lost());
            guard.is_held()
        })
    });
    assert!(!is_held);
}

#[test]
fn f19_a_wait_ends_in_the_context_of_a_runtime_that_has_ended() {
    let busy = on_a_thread(|| {
        let runtime = plain_runtime();
        let manager = LockManager::in_memory();
        let _held = runtime.block_on(manager.lock("k").acquire()).expect("free");
        let gone = runtime.handle().clone();
        drop(runtime);
        let _context = gone.enter();
        let wait = || block_on(manager.lock("k").wait(ms(100)).acquire()).map(drop);
        [wait(), wait()]
    });
    for busy in busy {
        assert!(busy.as_ref().is_err_and(LockError::is_busy), "{busy:?}");
    }
}

/// What the engine does in real time ends no wait on a clock that stands.
#[tokio::test(start_paused = true)]
async fn f19_a_wait_on_a_clock_that_stands_does_not_end() {
    let manager = LockManager::in_memory();
    let held = manager.lock("k").acquire().await.expect("free");
    let start = Instant::now();
    let waiting = manager.lock("k").wait(ms(100));
    let waiting = tokio::spawn(async move { waiting.acquire().await.map(drop) });
    // Meanwhile tokio does not move its clock.
    let real = tokio::task::spawn_blocking(|| thread::sleep(ms(500)));
    real.await.expect("it sleeps");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(!waiting.is_finished());
    let busy = waiting.await.expect("no panic");
    assert!(busy.as_ref().is_err_and(LockError::is_busy), "{busy:?}");
    assert!((ms(100)..ms(200)).contains(&start.elapsed()), "{:?}", start.elapsed());
    assert!(held.is_held());
}
