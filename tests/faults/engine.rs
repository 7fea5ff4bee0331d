//! What happens on the engine's thread, or under its mutexes, and must not end or occupy it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use distlock::{LockError, LockGuard, LockManager};
use distlock_runtime::testing::faults::Faults;
use distlock_testkit::{
    LONG, RedisServer, held, in_own_process, ms, patient, this_test, wait_for, without_threads,
};

use crate::support::works_again;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// A thread was stopped while it ended a lease, and the lease's time is over.
#[tokio::test]
async fn f32_a_lease_that_was_ended_halfway_does_not_occupy_the_engine() {
    let (manager, switches) = Faults::as_remote().start().expect("in memory");
    let guard = manager.lock("halfway").ttl(ms(100)).renew(false).acquire().await.expect("free");
    switches.end_halfway(&guard);
    let renewed = manager.lock("renewed").ttl(ms(1000)).acquire().await.expect("free");
    let before = switches.renewals();
    wait_for("renewals go on", async || switches.renewals() >= before + 3).await;
    let waited = manager.lock("renewed").wait(ms(100)).acquire();
    let waited = tokio::time::timeout(LONG, waited).await.expect("a wait comes to its end");
    assert!(waited.is_err_and(|error| error.is_busy()));
    assert!(renewed.is_held());
    drop(guard);
    drop(manager.lock("halfway").wait(LONG).acquire().await.expect("it is free again"));
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("an executor that is broken");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f32_a_waker_that_panics_ends_neither_the_engine_nor_a_connection_for_good() {
    let server = RedisServer::start();
    let manager = patient(&server.url()).await;
    let guard = held(&manager, "held").await;
    let broken = Waker::from(Arc::new(Panics));
    let mut cx = Context::from_waker(&broken);
    // One is woken by the answer, one by the end of its wait, one by the release.
    let mut answered: Acquiring = Box::pin(manager.lock("free").acquire());
    assert!(answered.as_mut().poll(&mut cx).is_pending());
    let mut waits: Acquiring = Box::pin(manager.lock("held").wait(ms(50)).acquire());
    let mut served: Acquiring = Box::pin(manager.lock("held").wait(LONG).acquire());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert!(served.as_mut().poll(&mut cx).is_pending());
    let waited = manager.lock("held").wait(ms(200)).acquire();
    let waited = tokio::time::timeout(LONG, waited).await.expect("a wait comes to its end");
    assert!(waited.is_err());
    drop((answered, waits));
    guard.release().await.expect("it was held, whoever waits for it");
    drop(served);
    works_again(&manager, &server).await;
}

/// Owns a task that wants a lock.
struct Owner {
    _task: Mutex<Acquiring>,
}

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn f15_a_waker_that_owns_a_waiting_task_is_dropped_under_no_mutex() {
    let (done, told) = channel();
    // A thread that hangs here would hang for good.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (manager, _) = Faults::as_remote().start().expect("in memory");
        let hold = |key| runtime.block_on(manager.lock(key).acquire()).expect("free");
        let held = [hold("a"), hold("b")];
        let mut owned: Acquiring = Box::pin(manager.lock("b").wait(LONG).acquire());
        let noop = &mut Context::from_waker(Waker::noop());
        assert!(owned.as_mut().poll(noop).is_pending());
        let mut waits = pin!(manager.lock("a").wait(LONG).acquire());
        let owner = Waker::from(Arc::new(Owner { _task: Mutex::new(owned) }));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
        // From here on only the wait owns it.
        drop(owner);
        assert!(waits.as_mut().poll(noop).is_pending());
        drop(held);
        let served = loop {
            if let Poll::Ready(served) = waits.as_mut().poll(noop) {
                break served;
            }
            thread::sleep(ms(1));
        };
        done.send(served.is_ok()).expect("it is waited for");
    });
    assert_eq!(told.recv_timeout(LONG), Ok(true), "it hangs");
}

/// A panic there would be one in the middle of a service's start.
#[tokio::test]
async fn f13_without_a_thread_a_manager_is_refused_with_an_error() {
    // A limit is the whole process's.
    if !in_own_process(this_test!(), &[]) {
        return;
    }
    let connect = |url| LockManager::connect_lazy(url).map(drop);
    for refused in without_threads(|| ["redis://127.0.0.1:1", "memory://"].map(connect)) {
        let error = refused.expect_err("no thread");
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        let why = error.to_string();
        assert!(why.contains("thread could not be started"), "{why}");
    }
    drop(LockManager::connect_lazy("memory://").expect("there is a thread again"));
}
