use distlock::testing::Locks;
use distlock::{LockError, redis_lock, with_manager};
use std::time::Duration;

#[redis_lock(key = "partner", permits = 5, wait = "1h")]
async fn call_partner() -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn five_calls_at_once_and_no_more() {
    let locks = Locks::new();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..20 {
        let replica = locks.replica(["a", "b", "c"][n % 3]);
        calls.spawn(with_manager(replica.manager(), call_partner()));
    }
    calls.join_all().await;
    locks.assert_never_together("partner");
    assert_eq!(locks.most_together("partner"), 5);
}
