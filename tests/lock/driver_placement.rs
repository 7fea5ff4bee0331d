//! A busy connection is driven on the runtime of its callers. These tests take that runtime away in every
//! way there is: no other caller may notice for long.

use std::cell::OnceCell;
use std::future::Future;
use std::panic;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use distlock::{DrivenBy, LockError, LockManager};
use distlock_testkit::{LONG, RedisServer, in_own_process, this_test, wait_until};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn once(manager: &LockManager, key: &str) -> Result<(), LockError> {
    manager.lock(key).ttl(LONG).acquire().await?.release().await
}

fn is_driven_there(manager: &LockManager) -> bool {
    manager.status().driven_by == DrivenBy::Callers
}

/// Takes locks, many at a time, until `done` says so.
async fn traffic(manager: &LockManager, name: &str, done: impl Fn() -> bool + Copy) {
    let one = async |task: u32| {
        while !done() {
            once(manager, &format!("{name}:{task}")).await.expect("nobody is in the way");
        }
    };
    tokio::join!(one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7), one(8), one(9));
}

/// A manager whose connection is driven by the runtime of a thread that does `then` with it once
/// that is so; it ends when the sender is dropped.
fn driven_on_a_thread(
    manager: &LockManager,
    then: impl FnOnce(Runtime, mpsc::Receiver<()>) + Send + 'static,
) -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    let (own, ready) = (manager.clone(), Arc::new(AtomicBool::new(false)));
    let seen = ready.clone();
    thread::spawn(move || {
        let runtime = runtime();
        runtime.block_on(traffic(&own, "first", || is_driven_there(&own)));
        seen.store(true, Ordering::Release);
        then(runtime, receiver);
    });
    wait_until("the connection is driven there", || ready.load(Ordering::Acquire));
    sender
}

fn manager(server: &RedisServer) -> LockManager {
    LockManager::builder()
        .url(server.url())
        .command_timeout(Duration::from_secs(5))
        .build()
        .expect("a URL")
}

/// Others go on although the runtime that drives the connection does not.
fn others_go_on(manager: &LockManager) {
    // If they did not, these would have no answer within the manager's `command_timeout`.
    runtime().block_on(async {
        for turn in 0..50 {
            once(manager, &format!("other:{turn}")).await.expect("served");
        }
    });
}

/// Fault: F6.
#[test]
fn a_runtime_that_is_blocked_holds_nobody_up() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let blocked = driven_on_a_thread(&manager, |runtime, until| {
        // Inside the runtime, as a body that computes for too long.
        runtime.block_on(async move {
            let _ = until.recv();
        });
    });
    others_go_on(&manager);
    drop(blocked);
}

#[test]
fn a_runtime_that_nobody_runs_any_more_holds_nobody_up() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let kept = driven_on_a_thread(&manager, |runtime, until| {
        let _ = until.recv();
        drop(runtime);
    });
    others_go_on(&manager);
    drop(kept);
}

/// Fault: G6.
#[test]
fn a_runtime_that_is_dropped_holds_nobody_up() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let (gone, seen) = mpsc::channel();
    let _ends = driven_on_a_thread(&manager, move |runtime, _| {
        drop(runtime);
        gone.send(()).expect("the test waits");
    });
    seen.recv().expect("dropped");
    others_go_on(&manager);
}

/// What a runtime had begun when it was dropped is finished without it.
/// Fault: G6.
#[test]
fn nothing_is_left_of_what_a_dropped_runtime_had_begun() {
    let server = RedisServer::start();
    let manager = manager(&server);
    for round in 0..20 {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        for task in 0..20 {
            let manager = manager.clone();
            runtime.spawn(async move {
                loop {
                    let _ = once(&manager, &format!("{round}:{task}")).await;
                }
            });
        }
        wait_until("it is driven there", || is_driven_there(&manager));
        runtime.shutdown_background();
    }
    others_go_on(&manager);
    wait_until("no key is left", || server.lock_keys().is_empty());
}

/// Several runtimes take turns on one connection; every call comes to its end.
#[test]
fn runtimes_share_a_connection() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let calls = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(2);
    thread::scope(|scope| {
        for number in 0..3 {
            let (manager, calls) = (&manager, &calls);
            scope.spawn(move || {
                while Instant::now() < until {
                    // Busy for a while, then gone, or doing something else.
                    let runtime = runtime();
                    let pause = Instant::now() + Duration::from_millis(30 + 20 * number);
                    runtime.block_on(traffic(manager, &number.to_string(), || {
                        calls.fetch_add(1, Ordering::Relaxed);
                        Instant::now() > pause
                    }));
                    thread::sleep(Duration::from_millis(10 * number));
                }
            });
        }
    });
    assert!(calls.load(Ordering::Relaxed) > 100);
    wait_until("the engine has it back", || !is_driven_there(&manager));
    assert_eq!(server.lock_keys(), Vec::<String>::new());
}

/// Polls a future until it is done, in the context of a runtime that is not running.
fn beside<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    let _context = runtime.enter();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return out;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn f21_a_runtime_that_never_runs_again_keeps_no_connection_from_others() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let kept = runtime();
    let calls = AtomicU64::new(0);
    // Often enough that the connection is to be driven there.
    beside(&kept, traffic(&manager, "kept", || calls.fetch_add(1, Ordering::Relaxed) > 1000));
    assert!(!is_driven_there(&manager));
    let until = Instant::now() + Duration::from_secs(15);
    runtime().block_on(async {
        traffic(&manager, "other", || is_driven_there(&manager) || Instant::now() > until).await;
        assert!(is_driven_there(&manager), "never on a caller's runtime again");
    });
    // What was asked long ago may come after all.
    wait_until("the engine has it back", || !is_driven_there(&manager));
    kept.block_on(traffic(&manager, "kept", || {
        is_driven_there(&manager) || Instant::now() > until
    }));
    others_go_on(&manager);
}

/// tokio has no way to ask whether a runtime watches sockets. One that does not is no obstacle.
#[test]
fn a_runtime_without_sockets_is_served_by_the_engine() {
    let server = RedisServer::start();
    let manager = manager(&server);
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let until = Instant::now() + Duration::from_millis(300);
    runtime.block_on(traffic(&manager, "plain", || Instant::now() > until));
    assert!(!is_driven_there(&manager));
    others_go_on(&manager);
}

/// What tokio's panic brings about there is a hook of the user's. While it runs, others go on.
#[test]
fn f20_a_panic_hook_on_a_runtime_without_sockets_holds_nobody_up() {
    const NAME: &str = "without sockets";
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let server = RedisServer::start();
    let manager = manager(&server);
    let (told, heard) = mpsc::channel();
    let (own, before) = (manager.clone(), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(NAME) {
            return before(info);
        }
        let (done, seen) = mpsc::channel();
        let own = own.clone();
        thread::spawn(move || done.send(runtime().block_on(once(&own, "other")).is_ok()));
        let _ = told.send(seen.recv_timeout(Duration::from_secs(10)));
    }));
    let plain = thread::Builder::new().name(NAME.to_owned()).spawn(move || {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (until, answer) = (Instant::now() + Duration::from_secs(15), OnceCell::new());
        runtime.block_on(traffic(&manager, "plain", || {
            heard.try_recv().is_ok_and(|went_on| answer.set(went_on).is_ok())
                || answer.get().is_some()
                || Instant::now() > until
        }));
        answer.into_inner()
    });
    let went_on = plain.expect("a thread").join().expect("no panic gets out");
    assert_eq!(went_on, Some(Ok(true)));
}

#[test]
fn a_manager_that_may_not_use_its_callers_runtime_does_its_io_itself() {
    let server = RedisServer::start();
    let manager = LockManager::builder()
        .url(server.url())
        .command_timeout(Duration::from_secs(5))
        .io_on_caller_runtime(false)
        .build()
        .expect("a URL");
    let calls = AtomicU64::new(0);
    runtime().block_on(traffic(&manager, "own", || {
        assert!(!is_driven_there(&manager));
        calls.fetch_add(1, Ordering::Relaxed) > 5000
    }));
    // A runtime that cannot watch sockets will do.
    let without_sockets = Builder::new_current_thread().build().expect("a runtime");
    without_sockets.block_on(once(&manager, "plain")).expect("served");
    others_go_on(&manager);
    assert_eq!(server.lock_keys(), Vec::<String>::new());
}

/// The end of the connection is seen where it is driven, and the next one is made by the engine.
#[test]
fn a_server_that_is_killed_is_used_again_when_it_is_back() {
    let mut server = RedisServer::start();
    let manager = manager(&server);
    runtime().block_on(async {
        traffic(&manager, "before", || is_driven_there(&manager)).await;
        server.kill9();
        once(&manager, "meanwhile").await.expect_err("there is no server");
        server.restart();
        while once(&manager, "after").await.is_err() {}
        traffic(&manager, "again", || is_driven_there(&manager)).await;
    });
}
