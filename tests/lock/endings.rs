//! However a call ends, its key is gone at once: each of these locks would live for a minute.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, Release, redis_lock};
use distlock_testkit::{RedisServer, wait_for, wait_until, wait_within};
use tokio::runtime::{Builder, Runtime};

/// "At once" takes a fraction of a millisecond; `benches/` measures it. By itself a key would be
/// there for a minute.
const AT_ONCE: Duration = Duration::from_secs(20);

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Shop {
    locks: LockManager,
    server: RedisServer,
}

impl Shop {
    async fn open() -> Arc<Self> {
        let server = RedisServer::start();
        let locks = LockManager::connect(&server.url()).await.expect("connect");
        Arc::new(Self { locks, server })
    }

    fn is_locked(&self) -> bool {
        !self.server.lock_keys().is_empty()
    }

    #[track_caller]
    fn free_at_once(&self) {
        wait_within(AT_ONCE, "the key is gone", || !self.is_locked());
    }

    #[redis_lock(key = "order:{order}", ttl = "1m", manager = self.locks)]
    async fn sell(&self, order: u32, how: &str) -> Result<u32, Error> {
        assert_eq!(self.server.lock_keys(), [format!("distlock:lock:{{order:{order}}}")]);
        tokio::task::yield_now().await;
        match how {
            "early return" => return Ok(1),
            "?" => how.parse::<u32>()?,
            "panic" => panic!("in the body"),
            "pending" => std::future::pending().await,
            _ => 0,
        };
        Ok(2)
    }
}

#[tokio::test]
async fn return_early_return_and_question_mark() {
    let shop = Shop::open().await;
    for (how, expected) in [("return", Some(2)), ("early return", Some(1)), ("?", None)] {
        let got = shop.sell(7, how).await;
        assert_eq!(got.as_ref().ok(), expected.as_ref(), "{got:?}");
        shop.free_at_once();
    }
}

/// Fault: G4.
#[tokio::test]
async fn panic() {
    let shop = Shop::open().await;
    let task = tokio::spawn({
        let shop = shop.clone();
        async move { shop.sell(7, "panic").await }
    });
    let panic = task.await.expect_err("it panics").into_panic();
    assert_eq!(panic.downcast_ref(), Some(&"in the body"));
    shop.free_at_once();
}

/// Fault: G2.
#[tokio::test]
async fn abort() {
    let shop = Shop::open().await;
    let task = tokio::spawn({
        let shop = shop.clone();
        async move { shop.sell(7, "pending").await }
    });
    wait_for("the body begins", async || shop.is_locked()).await;
    task.abort();
    assert!(task.await.expect_err("it was aborted").is_cancelled());
    shop.free_at_once();
}

/// Fault: G6.
#[test]
fn runtime_dropped() {
    type Case = (fn() -> Builder, fn(Runtime));
    let ends: [Case; 4] = [
        (Builder::new_current_thread, drop),
        (Builder::new_current_thread, Runtime::shutdown_background),
        (Builder::new_multi_thread, drop),
        (Builder::new_multi_thread, Runtime::shutdown_background),
    ];
    for (builder, end) in ends {
        let runtime = builder().enable_all().build().expect("a runtime");
        let shop = runtime.block_on(Shop::open());
        let call = {
            let shop = shop.clone();
            async move { shop.sell(7, "pending").await }
        };
        runtime.spawn(call);
        // A runtime of one thread runs its tasks only while a thread blocks on it.
        runtime.block_on(wait_for("the body begins", async || shop.is_locked()));
        end(runtime);
        shop.free_at_once();
    }
}

/// Takes a lock on a runtime that is gone when this returns.
fn guard_of_a_dead_runtime() -> (Arc<Shop>, LockGuard) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let shop = Shop::open().await;
        let request = shop.locks.lock("guard").ttl(Duration::from_secs(60));
        let guard = request.acquire().await.expect("granted");
        assert!(shop.is_locked());
        (shop, guard)
    })
}

/// Fault: G7.
#[test]
fn guard_dropped_on_a_plain_thread() {
    let (shop, guard) = guard_of_a_dead_runtime();
    thread::spawn(move || drop(guard)).join().expect("no panic");
    shop.free_at_once();
}

/// Fault: G5.
#[test]
fn guard_dropped_while_a_plain_thread_unwinds() {
    let (shop, guard) = guard_of_a_dead_runtime();
    let unwound = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("with a lock in hand");
    }));
    unwound.expect_err("it panics");
    shop.free_at_once();
}

/// Fault: G13.
#[test]
fn guard_released_on_another_runtime() {
    let (shop, guard) = guard_of_a_dead_runtime();
    let other = Builder::new_current_thread().build().expect("a runtime without time and I/O");
    other.block_on(guard.release()).expect("it was held");
    assert!(!shop.is_locked());
}

/// A guard keeps the engine alive, and the engine the connection.
#[test]
fn guard_that_outlives_its_manager() {
    let (shop, guard) = guard_of_a_dead_runtime();
    let Ok(Shop { locks, server }) = Arc::try_unwrap(shop) else { panic!("nobody else has it") };
    drop(locks);
    drop(guard);
    wait_within(AT_ONCE, "the key is gone", || server.lock_keys().is_empty());
}

/// A body that is done has its result, whatever becomes of the release.
#[tokio::test]
async fn result_stands_when_the_release_fails() -> Result<(), LockError> {
    let shop = Shop::open().await;
    let request = shop.locks.lock("result").ttl(Duration::from_secs(60));
    let result = request
        .run(async {
            shop.server.stop();
            42
        })
        .await;
    assert_eq!(result?, 42);
    shop.server.cont();
    wait_until("the release went through in the end", || !shop.is_locked());
    Ok(())
}

/// Where only an answer would end the wait for a release.
async fn patient_shop() -> Shop {
    let server = RedisServer::start();
    let builder = LockManager::builder().url(server.url()).command_timeout(10 * AT_ONCE);
    let locks = builder.connect().await.expect("connect");
    Shop { locks, server }
}

#[redis_lock(key = "order:7", ttl = "10m", release = background, manager = shop.locks)]
async fn sold_soon(shop: &Shop) -> Result<u32, Error> {
    shop.server.stop();
    Ok(1)
}

#[redis_lock(key = "order:7", ttl = "10m", release = background, guard = lock, manager = shop.locks)]
async fn sold_soon_with_guard(shop: &Shop) -> Result<u64, Error> {
    shop.server.stop();
    Ok(lock.fencing_token())
}

#[tokio::test]
async fn result_comes_before_the_release_is_confirmed() {
    let shop = patient_shop().await;
    // The server answers nothing until it goes on.
    let soon = tokio::time::timeout(AT_ONCE, sold_soon(&shop)).await;
    assert_eq!(soon.expect("it does not wait").expect("granted"), 1);
    shop.server.cont();
    shop.free_at_once();
    let soon = tokio::time::timeout(AT_ONCE, sold_soon_with_guard(&shop)).await;
    assert!(soon.expect("it does not wait").expect("granted") > 0);
    // `close`, at the end of the program, waits for it.
    let report = shop.locks.close(Duration::from_millis(10)).await;
    assert_eq!(report.unconfirmed, 1, "{report:?}");
    shop.server.cont();
    let report = shop.locks.close(AT_ONCE).await;
    assert!(report.is_complete() && !shop.is_locked(), "{report:?}");
}

#[tokio::test]
async fn next_call_comes_behind_a_release_in_the_background() {
    let shop = patient_shop().await;
    let ttl = 10 * AT_ONCE;
    for n in 0..200 {
        let one = shop.locks.lock("k").ttl(ttl).release(Release::Background);
        assert_eq!(one.run(async { n }).await.expect("the one before is free"), n);
        let all = shop.locks.lock_all(["k", "l"]).ttl(ttl).release(Release::Background);
        assert_eq!(all.run(async { n }).await.expect("the one before is free"), n);
    }
    shop.free_at_once();
}

#[test]
fn runtime_dropped_right_after_a_release_in_the_background() {
    for builder in [Builder::new_current_thread, Builder::new_multi_thread] {
        let runtime = builder().enable_all().build().expect("a runtime");
        let shop = runtime.block_on(async {
            let shop = patient_shop().await;
            let request = shop.locks.lock("k").ttl(10 * AT_ONCE).release(Release::Background);
            request.run(async {}).await.expect("granted");
            shop
        });
        drop(runtime);
        shop.free_at_once();
    }
}
