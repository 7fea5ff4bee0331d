//! F35: a manager that is closed while calls are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use distlock::{LockError, LockManager, redis_lock};
use distlock_testkit::{LONG, RedisServer, connect, held, ms, patient, stand};
use tokio::task::JoinSet;

/// So many managers are closed one after the other.
const CLOSED: usize = 12;
const TASKS: usize = 16;

/// Closes managers in the middle of calls, and says how those ended that did not get their lock.
async fn close_under<F>(call: impl Fn(LockManager, String) -> F) -> Vec<LockError>
where
    F: Future<Output = Result<(), LockError>> + Send + 'static,
{
    let server = RedisServer::start();
    let (mut ended, mut number) = (Vec::new(), 0);
    for round in 0..CLOSED {
        let manager = patient(&server.url()).await;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            number += 1;
            let (manager, first) = (manager.clone(), number * 1_000_000);
            let calls: Vec<_> =
                (0..100).map(|n| call(manager.clone(), format!("k-{}", first + n))).collect();
            tasks.spawn(async move {
                let mut errors = Vec::new();
                for call in calls {
                    if let Err(error) = call.await {
                        errors.push(error);
                    }
                }
                errors
            });
        }
        tokio::time::sleep(Duration::from_micros(100 * round as u64)).await;
        assert!(manager.close(LONG).await.is_complete());
        while let Some(errors) = tasks.join_next().await {
            ended.extend(errors.expect("no panic"));
        }
    }
    assert!(server.lock_keys().is_empty(), "left behind: {:?}", server.lock_keys());
    ended
}

#[track_caller]
fn all_closed(errors: &[LockError]) {
    let other: Vec<_> = errors.iter().filter(|e| !matches!(e, LockError::Closed)).collect();
    assert!(other.is_empty(), "{} of {}, for example {}", other.len(), errors.len(), other[0]);
    assert!(!errors.is_empty(), "closed too late to show anything");
}

/// Locks of their own: no other caller has them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_calls_under_way_are_closed_and_not_busy() {
    for wait in [Duration::ZERO, LONG] {
        let errors = close_under(|manager, key| async move {
            // What it holds may be lost to the close in the moment after.
            manager.lock(key).ttl(LONG).wait(wait).acquire().await.map(drop)
        });
        all_closed(&errors.await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_calls_for_several_locks_are_closed_and_not_busy_or_lost() {
    let errors = close_under(|manager, key| async move {
        let keys = [format!("{key}-a"), format!("{key}-b")];
        manager.lock_all(keys).ttl(LONG).wait(LONG).acquire().await.map(drop)
    });
    all_closed(&errors.await);
}

/// A body that never began is not said to be lost, and one that began and did not end is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_only_a_body_that_began_is_lost() {
    let cut = Arc::new(AtomicU64::new(0));
    let errors = close_under(|manager, key| {
        let cut = cut.clone();
        async move {
            let mut began = false;
            let body = async {
                began = true;
                cut.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
                cut.fetch_sub(1, SeqCst);
            };
            let outcome = manager.lock(key).ttl(LONG).run(body).await;
            if let Err(error) = &outcome {
                assert_eq!(error.is_lost(), began, "{error}");
            }
            outcome
        }
    });
    let (lost, others): (Vec<_>, Vec<_>) = errors.await.into_iter().partition(LockError::is_lost);
    all_closed(&others);
    // The close may also meet a body in its last poll: it ends, and is lost.
    let cut = cut.load(SeqCst);
    assert!(lost.len() as u64 >= cut, "{} lost, {cut} began and did not end", lost.len());
}

#[redis_lock(key = "job:{name}", manager = manager, on_fail = skip)]
async fn job(manager: &LockManager, name: &str) -> Result<Option<()>, LockError> {
    Ok(Some(()))
}

/// No other process has the lock, so nothing is to be skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_a_job_is_not_skipped_because_its_manager_is_closed() {
    let errors = close_under(|manager, key| async move {
        match job(&manager, &key).await {
            Ok(None) => panic!("skipped, and nobody else has the lock"),
            // It ran.
            Ok(Some(())) => Ok(()),
            Err(error) if error.is_lost() => Ok(()),
            Err(error) => Err(error),
        }
    });
    all_closed(&errors.await);
}

/// Waiters in line behind a lock that is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f35_those_who_wait_are_closed() {
    let server = RedisServer::start();
    let holder = connect(&server.url()).await;
    let _held = held(&holder, "k").await;
    for _ in 0..5 {
        let closing = connect(&server.url()).await;
        let waiting: Vec<_> = (0..50)
            .map(|n| {
                let wait = if n % 5 == 0 { Duration::ZERO } else { LONG };
                tokio::spawn(closing.lock(format!("{}", n % 3)).ttl(LONG).wait(wait).run(async {
                    tokio::time::sleep(ms(1)).await;
                }))
            })
            .collect();
        let queued = tokio::spawn(closing.lock("k").ttl(LONG).wait(LONG).acquire());
        stand(&server, "k", 1);
        closing.close(LONG).await;
        assert!(matches!(queued.await.expect("no panic"), Err(LockError::Closed)));
        for call in waiting {
            match call.await.expect("no panic") {
                Ok(()) | Err(LockError::Closed | LockError::Lost { .. }) => {}
                // It was held elsewhere.
                Err(LockError::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
