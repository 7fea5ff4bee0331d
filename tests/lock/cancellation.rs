//! A future may be dropped at any await. Whatever it had begun is finished by the engine: no key is
//! left, although each of these locks would live for a minute.
//!
//! The server is behind a proxy that delays each direction, so that a drop falls between a command
//! and its answer and not only before and after both.

use std::time::Duration;

use distlock::{LockError, LockGuard, LockManager, LockRequest, redis_lock};
use distlock_testkit::{LONG, Mode, Proxy, RedisServer, dropped_after, wait_until, wait_within};

const DELAY: Duration = Duration::from_millis(3);
/// More polls than anything here takes: reaching it means that a future is polled in a circle.
const MOST_POLLS: usize = 200;

struct Setup {
    manager: LockManager,
    /// Not behind the proxy.
    other: LockManager,
    _proxy: Proxy,
    server: RedisServer,
}

async fn setup() -> Setup {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let manager = LockManager::connect(&proxy.url()).await.expect("connect");
    let other = LockManager::connect(&server.url()).await.expect("connect");
    proxy.set(Mode::Delay(DELAY));
    Setup { manager, other, _proxy: proxy, server }
}

impl Setup {
    fn request(&self, key: String) -> LockRequest {
        self.manager.lock(key).ttl(LONG)
    }

    /// Every lock ended, one way or another: no key is there, and none comes after it.
    async fn nothing_is_left(self) {
        // Whatever was sent, and released behind it, has been answered after this.
        let probe = self.request("probe".into()).acquire().await.expect("the probe");
        probe.release().await.expect("the probe's release");
        wait_until("no key is left", || self.server.lock_keys().is_empty());
        let report = self.manager.close(LONG).await;
        assert!(report.is_complete(), "{report:?}");
        assert!(self.server.lock_keys().is_empty());
    }
}

/// Runs `case` for every number of polls until it says that nothing was cut short.
async fn at_every_poll(setup: &Setup, mut case: impl AsyncFnMut(&Setup, usize) -> bool) {
    for polls in 0..MOST_POLLS {
        if case(setup, polls).await {
            assert!(polls > 1, "never pending: nothing was dropped in the middle");
            return;
        }
    }
    panic!("not done after {MOST_POLLS} polls");
}

/// Fault: G1.
#[tokio::test]
async fn acquire_dropped_at_every_poll() {
    let setup = setup().await;
    at_every_poll(&setup, async |setup, polls| {
        let acquire = setup.request(format!("acquire-{polls}")).acquire();
        // A guard that was granted is dropped at once, which is one more way to end.
        dropped_after(polls, acquire).await.map(|guard| guard.expect("granted")).is_some()
    })
    .await;
    setup.nothing_is_left().await;
}

/// Fault: G1.
#[tokio::test]
async fn waiting_dropped_at_every_poll() {
    let setup = setup().await;
    at_every_poll(&setup, async |setup, polls| {
        let key = format!("wait-{polls}");
        let holder = setup.other.lock(key.clone()).ttl(LONG).acquire().await.expect("granted");
        let waiter = dropped_after(polls, setup.request(key.clone()).wait(LONG).acquire());
        let release = async {
            // So late that the waiter has looked in vain at least once.
            tokio::time::sleep(5 * DELAY).await;
            holder.release().await.expect("it was held");
        };
        let (waiter, ()) = tokio::join!(waiter, release);
        waiter.map(|guard| guard.expect("granted")).is_some()
    })
    .await;
    setup.nothing_is_left().await;
}

/// Fault: G3.
#[tokio::test]
async fn release_dropped_at_every_poll() {
    let setup = setup().await;
    at_every_poll(&setup, async |setup, polls| {
        let request = setup.request(format!("release-{polls}"));
        let guard = request.acquire().await.expect("granted");
        let released = dropped_after(polls, LockGuard::release(guard)).await;
        released.map(|released| released.expect("it was held")).is_some()
    })
    .await;
    setup.nothing_is_left().await;
}

#[redis_lock(key = "call:{n}", ttl = "1m", manager = manager)]
async fn call(manager: &LockManager, n: usize, steps: &mut usize) -> Result<(), LockError> {
    for _ in 0..3 {
        tokio::task::yield_now().await;
        *steps += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Fault: G1.
#[tokio::test]
async fn a_call_dropped_at_every_poll() {
    let setup = setup().await;
    let (mut before, mut within) = (0, 0);
    at_every_poll(&setup, async |setup, polls| {
        let mut steps = 0;
        let done = dropped_after(polls, call(&setup.manager, polls, &mut steps)).await;
        match steps {
            0 => before += 1,
            1 | 2 => within += 1,
            _ => {}
        }
        done.map(|result| result.expect("granted")).is_some()
    })
    .await;
    assert!(before > 1 && within > 1, "dropped {before} times before the body, {within} in it");
    setup.nothing_is_left().await;
}

/// Fault: G2.
#[tokio::test]
async fn a_run_by_hand_dropped_at_every_poll() {
    let setup = setup().await;
    at_every_poll(&setup, async |setup, polls| {
        let body = async {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let run = setup.request(format!("run-{polls}")).run(body);
        dropped_after(polls, run).await.map(|result| result.expect("granted")).is_some()
    })
    .await;
    setup.nothing_is_left().await;
}

/// The first waiter in the line of its process may be the one that gives up.
/// Fault: E8.
#[tokio::test]
async fn a_waiter_that_gives_up_does_not_keep_those_behind_it() {
    let setup = setup().await;
    let holder = setup.request("line".into()).acquire().await.expect("granted");
    let line = |wait| setup.request("line".into()).wait(wait).acquire();
    let (first, second) = (tokio::spawn(line(LONG)), tokio::spawn(line(LONG)));
    // Both stand in line: what they hold of the lock does not show anywhere but in time.
    tokio::time::sleep(10 * DELAY).await;
    first.abort();
    first.await.map(|_| ()).expect_err("it was cancelled");
    holder.release().await.expect("it was held");
    let second = tokio::time::timeout(LONG, second).await.expect("its turn comes");
    let key = "distlock:lock:{line}";
    assert_eq!(setup.server.lock_keys(), [key]);
    drop(second.expect("no panic").expect("granted"));
    wait_within(LONG, "the key is gone", || setup.server.lock_keys().is_empty());
    setup.nothing_is_left().await;
}
