//! Any service of tower under a lock, here the worker of a job queue.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use distlock::testing::Locks;
use distlock::tower::LockLayer;
use distlock::{LockError, LockManager, key};
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Job {
    customer: Option<u64>,
    seconds: u32,
}

#[derive(Debug)]
enum JobError {
    Lock(LockError),
}

impl From<LockError> for JobError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

type Worker = BoxCloneService<Job, usize, JobError>;

/// Says how many jobs were under way when one began.
fn worker(locks: LockManager, under_way: Arc<AtomicUsize>) -> Worker {
    let layer = LockLayer::new(locks)
        .key_fn(|job: &Job| job.customer.map(|customer| key!("customer:{customer}")))
        .with(|request| request.wait(60 * SECOND).name("work"));
    let work = service_fn(move |job: Job| {
        let under_way = under_way.clone();
        async move {
            let others = under_way.fetch_add(1, SeqCst);
            tokio::time::sleep(job.seconds * SECOND).await;
            under_way.fetch_sub(1, SeqCst);
            Ok::<_, JobError>(others)
        }
    });
    BoxCloneService::new(ServiceBuilder::new().layer(layer).service(work))
}

#[tokio::test(start_paused = true)]
async fn jobs_of_one_customer_take_turns_over_all_workers() {
    let locks = Locks::new();
    let under_way = Arc::new(AtomicUsize::new(0));
    let workers = ["a", "b"].map(|name| worker(locks.replica(name).manager(), under_way.clone()));
    let [one, other] = workers.map(|worker| worker.oneshot(Job { customer: Some(7), seconds: 5 }));
    let (one, other) = tokio::join!(one, other);
    assert_eq!((one.expect("its turn"), other.expect("its turn")), (0, 0));
    locks.assert_never_together("customer:7");
    assert_eq!(locks.history("customer:7").names(), ["work", "work"]);

    // Without a key nothing is locked.
    let free = || worker(locks.replica("a").manager(), under_way.clone());
    let [one, other] =
        [free(), free()].map(|worker| worker.oneshot(Job { customer: None, seconds: 5 }));
    let (one, other) = tokio::join!(one, other);
    assert_eq!(one.expect("no lock") + other.expect("no lock"), 1, "together");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_or_lost_is_the_services_error() {
    let locks = Locks::new();
    let worker = worker(locks.manager(), Arc::default());
    let held = locks.held_elsewhere("customer:7");
    let job = || Job { customer: Some(7), seconds: 3600 };
    let JobError::Lock(busy) = worker.clone().oneshot(job()).await.expect_err("it is held");
    assert!(busy.is_busy(), "{busy}");
    held.end();
    let (lost, ()) = tokio::join!(worker.clone().oneshot(job()), async {
        locks.until_held("customer:7").await;
        locks.lose("customer:7");
    });
    let JobError::Lock(lost) = lost.expect_err("it was lost");
    assert!(lost.is_lost(), "{lost}");

    // Dropped while it works, it frees the lock.
    let cancelled = tokio::time::timeout(SECOND, worker.clone().oneshot(job())).await;
    assert!(cancelled.is_err());
    worker.oneshot(Job { customer: Some(7), seconds: 0 }).await.expect("it is free");
}

/// A service that cannot fail has no place for the error of a lock: that does not compile, and this does.
#[tokio::test]
async fn a_service_that_cannot_fail_maps_its_error_first() {
    let layer =
        LockLayer::new(LockManager::in_memory()).key_fn(|name: &String| key!("name:{name}"));
    let length = service_fn(|name: String| async move { Ok::<_, Infallible>(name.len()) });
    let length = length.map_err(|never| -> JobError { match never {} });
    let length = ServiceBuilder::new().layer(layer).service(length);
    assert_eq!(length.oneshot("seven".to_owned()).await.expect("it is free"), 5);
}
