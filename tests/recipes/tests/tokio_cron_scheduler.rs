use distlock::{LockError, redis_lock};
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};

#[redis_lock(key = "nightly-report", ttl = "30s", min_hold = "1m", on_fail = skip)]
async fn nightly_report() -> Result<(), LockError> {
    println!("the report");
    Ok(())
}

async fn schedule(nightly: &str) -> Result<JobScheduler, JobSchedulerError> {
    let scheduler = JobScheduler::new().await?;
    let job = Job::new_async(nightly, |_id, _scheduler| {
        Box::pin(async {
            if let Err(error) = nightly_report().await {
                eprintln!("no report tonight: {error}");
            }
        })
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    Ok(scheduler) // schedule("0 0 3 * * *"): at three
}

#[tokio::test]
async fn one_of_three_replicas_does_the_job() {
    let locks = distlock::testing::Locks::new();
    distlock::init(locks.manager()).expect("the first manager");
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(schedule("* * * * * *").await.expect("a schedule"));
    }
    let reports = || locks.history("nightly-report").names().len();
    distlock_testkit::wait_for("a report", async || reports() > 0).await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(reports(), 1);
    for mut replica in replicas {
        replica.shutdown().await.expect("it ends");
    }
}
