//! A lease is extended for as long as the body runs, whatever the body does to its runtime; a body
//! whose lease ended is stopped.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, redis_lock};
use distlock_testkit::{
    LONG, RedisServer, Running, SECOND, fork_self, in_fork, patient, this_test, wait_for,
};

async fn setup() -> (Arc<RedisServer>, LockManager) {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    (Arc::new(server), manager)
}

#[redis_lock(key = "long", ttl = "2s", manager = manager)]
async fn some_leases_long(manager: &LockManager, running: &AtomicBool) -> Result<u32, LockError> {
    let _running = Running::new(running);
    tokio::time::sleep(SECOND * 3 / 2).await;
    // The only thread of this runtime: nothing else on it runs meanwhile.
    thread::sleep(SECOND * 5);
    tokio::time::sleep(SECOND * 3 / 2).await;
    Ok(42)
}

/// Fault: F6.
#[tokio::test]
async fn held_all_the_time_with_the_runtime_blocked() {
    let (server, manager) = setup().await;
    let running = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicBool::new(false));
    let watch = thread::spawn({
        let (server, running, done) = (server.clone(), running.clone(), done.clone());
        move || {
            let mut owners: Vec<Option<String>> = Vec::new();
            while !done.load(SeqCst) {
                let before = running.load(SeqCst);
                let owner = server.cli(&["GET", "distlock:lock:{long}"]);
                if before && running.load(SeqCst) {
                    owners.push(owner);
                }
                thread::sleep(SECOND / 100);
            }
            owners
        }
    });
    let result = some_leases_long(&manager, &running).await;
    done.store(true, SeqCst);
    let owners = watch.join().expect("the watch");
    assert_eq!(result.expect("held to the end"), 42);
    assert!(owners.len() > 50, "looked only {} times", owners.len());
    assert!(owners[0].is_some(), "not held at first");
    assert!(owners.iter().all(|owner| *owner == owners[0]), "not held by one all the time");
}

#[redis_lock(key = "short", ttl = "300ms", renew = false, manager = manager)]
async fn endless(
    manager: &LockManager,
    running: &AtomicBool,
    rival_has_it: &AtomicBool,
) -> Result<(), LockError> {
    let _running = Running::new(running);
    let start = Instant::now();
    while start.elapsed() < LONG {
        assert!(!rival_has_it.load(SeqCst), "polled while another has the lock");
        tokio::time::sleep(SECOND / 1000).await;
    }
    Ok(())
}

#[tokio::test]
async fn without_renewal_the_body_is_dropped_at_the_deadline() {
    let (server, manager) = setup().await;
    let rival = patient(&server.url()).await;
    let (running, rival_has_it) = (AtomicBool::new(false), AtomicBool::new(false));
    let start = Instant::now();
    let call = async {
        let result = endless(&manager, &running, &rival_has_it).await;
        assert!(!running.load(SeqCst), "the call has returned and its body has not");
        assert!(start.elapsed() > SECOND / 5, "stopped before its time");
        result
    };
    let next = async {
        wait_for("the body runs", async || running.load(SeqCst)).await;
        let guard = rival.lock("short").wait(LONG).acquire().await?;
        rival_has_it.store(true, SeqCst);
        tokio::time::sleep(SECOND / 10).await;
        guard.release().await
    };
    let (result, next) = tokio::join!(call, next);
    assert!(result.as_ref().is_err_and(LockError::is_lost), "{result:?}");
    next.expect("the lock was free for the next one");
}

#[redis_lock(key = "blocked", ttl = "100ms", renew = false, manager = manager)]
async fn blocked(
    manager: &LockManager,
    then_await: bool,
    went_on: &AtomicBool,
) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    thread::sleep(SECOND / 2);
    if then_await {
        tokio::task::yield_now().await;
        went_on.store(true, SeqCst);
    }
    Ok(())
}

/// The runtime comes back to the body long after its time: it must look at the clock first.
/// Fault: F6.
#[tokio::test]
async fn a_body_that_blocks_past_its_deadline_is_not_polled_again() {
    let (_server, manager) = setup().await;
    for then_await in [true, false] {
        let went_on = AtomicBool::new(false);
        let result = blocked(&manager, then_await, &went_on).await;
        assert!(result.as_ref().is_err_and(LockError::is_lost), "{result:?}");
        assert!(!went_on.load(SeqCst));
    }
}

#[redis_lock(key = "paused", ttl = "2s", manager = manager)]
async fn ticking(manager: &LockManager) -> Result<(), LockError> {
    let (start, mut last) = (Instant::now(), Instant::now());
    while start.elapsed() < LONG {
        // Rarely: a process that is stopped between the look at the clock and what the body does
        // next goes on with that, and nothing on this side can help it.
        tokio::time::sleep(SECOND / 20).await;
        assert!(last.elapsed() < SECOND, "polled again after {:?}", last.elapsed());
        last = Instant::now();
    }
    Ok(())
}

/// A whole process stands still, engine and all, until its lease is another's. When it goes on,
/// timers and answers are due all at once: the body must lose the race.
/// Fault: F4.
#[tokio::test]
async fn a_process_that_was_stopped_does_not_go_on_with_its_body() {
    if in_fork() {
        let manager = LockManager::from_env().expect("a manager");
        let result = ticking(&manager).await;
        assert!(result.as_ref().is_err_and(LockError::is_lost), "{result:?}");
        return;
    }
    for _ in 0..3 {
        let (server, rival) = setup().await;
        let holder = fork_self(this_test!(), &[("DISTLOCK_URL", &server.url())]);
        wait_for("the other process has the lock", async || !server.lock_keys().is_empty()).await;
        tokio::time::sleep(SECOND / 2).await;
        holder.stop();
        let guard = rival.lock("paused").wait(LONG).acquire().await.expect("it expires");
        // Longer than the gap that the holder's body would notice.
        tokio::time::sleep(SECOND).await;
        holder.cont();
        holder.join();
        guard.release().await.expect("the other one has not touched it");
    }
}

#[redis_lock(key = "taken", ttl = "3s", manager = manager)]
async fn until_taken(manager: &LockManager, running: &AtomicBool) -> Result<(), LockError> {
    let _running = Running::new(running);
    tokio::time::sleep(LONG).await;
    Ok(())
}

/// An operator deletes the key, or writes another owner into it: renewal neither makes it again
/// nor takes it back, and the release leaves it alone.
/// Fault: A9, A10, F8.
#[tokio::test]
async fn a_lock_taken_away_is_lost() {
    let (server, manager) = setup().await;
    let key = "distlock:lock:{taken}";
    for (command, left) in [(vec!["DEL", key], None), (vec!["SET", key, "other"], Some("other"))] {
        let running = AtomicBool::new(false);
        let take = async {
            wait_for("the body runs", async || running.load(SeqCst)).await;
            server.cli::<()>(&command);
        };
        let (result, ()) = tokio::join!(until_taken(&manager, &running), take);
        assert!(result.as_ref().is_err_and(LockError::is_lost), "{result:?}");
        assert!(!running.load(SeqCst));
        // On the same connection: whatever was sent for the lost lock is answered before it.
        let probe = manager.lock("probe").acquire().await.expect("granted");
        probe.release().await.expect("it was held");
        assert_eq!(server.cli::<Option<String>>(&["GET", key]).as_deref(), left);
    }
}

/// The engine has not looked yet, as after a suspension: a poll at the deadline sees the loss all the same.
#[tokio::test]
async fn a_guard_is_lost_at_the_first_poll_after_its_deadline() {
    let (_server, manager) = setup().await;
    for polled_before in [true, false, true, false] {
        let request = manager.lock("k").ttl(SECOND / 2).renew(false).wait(LONG);
        let guard = request.acquire().await.expect("granted");
        let mut cx = Context::from_waker(Waker::noop());
        let mut lost = pin!(guard.lost());
        if polled_before && guard.remaining() > SECOND / 4 {
            assert!(lost.as_mut().poll(&mut cx).is_pending(), "it is held");
        }
        // No sleep, which could be longer than the engine's.
        while guard.is_held() {
            std::hint::spin_loop();
        }
        assert!(lost.as_mut().poll(&mut cx).is_ready(), "over, and nobody says so");
    }
}

/// The same lock, held by hand: the guard says so.
/// Fault: A9.
#[tokio::test]
async fn a_guard_hears_of_its_loss() {
    let (server, manager) = setup().await;
    let request = manager.lock("guard").ttl(2 * SECOND);
    let guard = request.acquire().await.expect("granted");
    tokio::time::sleep(4 * SECOND).await;
    assert!(guard.is_held() && guard.remaining() > Duration::ZERO, "renewed, and it knows");
    guard.extend(60 * SECOND).await.expect("it is held");
    assert!(guard.remaining() > 30 * SECOND);
    server.cli::<()>(&["DEL", "distlock:lock:{guard}"]);
    tokio::time::timeout(LONG, guard.lost()).await.expect("it is notified");
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    let extended = guard.extend(SECOND).await;
    assert!(extended.as_ref().is_err_and(LockError::is_lost), "{extended:?}");
    let released = guard.release().await;
    assert!(released.as_ref().is_err_and(LockError::is_lost), "{released:?}");
}
