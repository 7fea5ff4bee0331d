//! F23, WH1: several locks in one call: what a wait that runs out is called, and what is held while
//! the others are waited for.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use distlock::{LockManager, LockRequest, WakeUps};
use distlock_testkit::{
    LONG, Mode, Proxy, RedisServer, SECOND, assert_busy, connect, ms, queue, served, stand,
    wait_for, waits,
};

use crate::support::works_again;

/// Its turn for the first lock comes so late that no answer about the second one can be there before
/// its time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh1_a_wait_that_was_spent_for_the_first_of_several_locks_is_busy() {
    const WAIT: Duration = ms(2000);
    let server = RedisServer::start();
    let proxy = Proxy::to(server.addr());
    let holder = connect(&server.url()).await;
    let builder = LockManager::builder().url(proxy.url()).command_timeout(WAIT);
    let slow = builder.connect_timeout(LONG).connect().await.expect("connect");
    wait_for("it is notified", async || slow.status().wake_ups == WakeUps::Notified).await;
    proxy.set(Mode::Delay(ms(200)));
    for late in [1000, 1100, 1200, 1300, 1400] {
        // What it gave up last is on its way back.
        let (a, b) = (served(waits(&holder, "a")).await, served(waits(&holder, "b")).await);
        let waiting = tokio::spawn(slow.lock_all(["a", "b"]).ttl(LONG).wait(WAIT).acquire());
        tokio::time::sleep(ms(late)).await;
        a.release().await.expect("it was held");
        assert_busy(waiting.await.expect("no panic"));
        b.release().await.expect("it was held");
    }
    proxy.set(Mode::Pass);
    works_again(&slow, &server).await;
}

/// Polls `call` until it stands in the queue of `key`, and no further.
async fn until_in_line(call: std::pin::Pin<&mut impl Future>, server: &RedisServer, key: &str) {
    let mut call = call;
    wait_for("it stands in line", async || {
        let _ = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        queue(server, key).len() == 1
    })
    .await;
}

/// It has the first lock, and is not polled until its time is over: its body never began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh1_a_call_for_several_that_was_not_polled_in_time_is_busy_and_not_lost() {
    tokio::join!(sleeps_through(true), sleeps_through(false));
}

/// The call is not polled until its time is over, whether it was granted the second lock or not.
async fn sleeps_through(granted: bool) {
    let server = RedisServer::start();
    let (holder, sleeper) = (connect(&server.url()).await, connect(&server.url()).await);
    let second = served(waits(&holder, "2")).await;
    // Longer than a command may take, which is the least that a call lasts.
    let (start, wait) = (Instant::now(), ms(6000));
    let both = sleeper.lock_all(["1", "2"]).ttl(LONG).wait(wait);
    let mut asleep = pin!(both.run(async { panic!("it has not both of them") }));
    until_in_line(asleep.as_mut(), &server, "2").await;
    if granted {
        // Just before its time is over.
        tokio::time::sleep((wait - ms(400)).saturating_sub(start.elapsed())).await;
        second.release().await.expect("it was held");
        let other = holder.lock("1").ttl(LONG).wait(LONG).acquire().await;
        other.expect("free when the wait is over").release().await.expect("it was held");
    } else {
        let other = holder.lock("1").ttl(LONG).wait(LONG).acquire().await;
        other.expect("free when the wait is over").release().await.expect("it was held");
        second.release().await.expect("it was held");
    }
    let outcome: Result<(), _> = asleep.await;
    assert_busy(outcome);
    works_again(&sleeper, &server).await;
}

/// What it was granted ran out before it was polled: it asks again while it may wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh1_a_grant_that_nobody_took_in_its_time_is_asked_for_again() {
    let server = RedisServer::start();
    let (holder, sleeper) = (connect(&server.url()).await, connect(&server.url()).await);
    for (wait, is_busy) in [(LONG, false), (ms(6000), true)] {
        let guard = served(waits(&holder, "k")).await;
        // Shorter than a grant lies there for.
        let request = sleeper.lock("k").ttl(ms(500)).renew(false).wait(wait);
        let mut asleep = pin!(request.acquire());
        until_in_line(asleep.as_mut(), &server, "k").await;
        guard.release().await.expect("it was held");
        let next = holder.lock("k").ttl(LONG).wait(LONG).acquire().await.expect("it runs out");
        if is_busy {
            tokio::time::sleep(wait).await;
            assert_busy(asleep.await);
            next.release().await.expect("it was held");
        } else {
            next.release().await.expect("it was held");
            asleep.await.expect("it asks again").release().await.expect("it was held");
        }
    }
    works_again(&sleeper, &server).await;
}

/// The first one is kept while the second is waited for, whatever the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f23_several_locks_without_renewal_are_kept_while_the_last_is_waited_for() {
    const TTL: Duration = ms(1000);
    let server = RedisServer::start();
    let (holder, waiter) = (connect(&server.url()).await, connect(&server.url()).await);
    for wait in [LONG, Duration::MAX] {
        let second = served(waits(&holder, "2")).await;
        let both = waiter.lock_all(["1", "2"]).ttl(TTL).renew(false).wait(wait);
        let both = tokio::spawn(both.acquire());
        stand(&server, "2", 1);
        tokio::time::sleep(3 * TTL).await;
        let first = holder.lock("1").try_acquire().await.expect("an answer");
        assert!(first.is_none(), "it was not kept");
        second.release().await.expect("it was held");
        let guard = both.await.expect("no panic").expect("both");
        assert!(guard.remaining() <= TTL);
        guard.lost().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f23_in_memory_too() {
    let request = |manager: &LockManager| -> LockRequest {
        manager.lock_all(["1", "2"]).ttl(10 * SECOND).renew(false)
    };
    for wait in [60 * SECOND, Duration::MAX] {
        let manager = LockManager::in_memory();
        let second = manager.lock("2").acquire().await.expect("free");
        let both = tokio::spawn(request(&manager).wait(wait).acquire());
        tokio::time::sleep(30 * SECOND).await;
        let first = manager.lock("1").try_acquire().await.expect("an answer");
        assert!(first.is_none(), "it was not kept");
        second.release().await.expect("it was held");
        let guard = both.await.expect("no panic").expect("both");
        let (start, ttl) = (tokio::time::Instant::now(), 10 * SECOND);
        assert!((9 * SECOND..=ttl).contains(&guard.remaining()), "{:?}", guard.remaining());
        // From here on they have their `ttl` and no more, at the store as well.
        guard.lost().await;
        assert!((9 * SECOND..=ttl).contains(&start.elapsed()), "{:?}", start.elapsed());
        let next = request(&manager).wait(SECOND).acquire().await.expect("their time is over");
        drop(guard);
        assert!(next.is_held());
    }
}
