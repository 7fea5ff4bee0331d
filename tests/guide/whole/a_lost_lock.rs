use distlock::testing::Locks;
use distlock::{LockError, redis_lock, with_manager};
use std::time::Duration;

#[redis_lock(key = "order:{order_id}", ttl = "10s", wait = "1h")]
async fn pay(order_id: u64) -> Result<u64, LockError> {
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(order_id)
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_compensated() {
    let locks = Locks::new();                                // a store of this test's own
    let (a, b) = (locks.replica("a"), locks.replica("b"));   // two processes
    let paid = tokio::spawn(with_manager(a.manager(), pay(7)));
    locks.until_held("order:7").await;                       // a condition, not a sleep
    locks.lose("order:7");                                   // the holder finds it out now
    assert!(paid.await.unwrap().unwrap_err().is_lost());

    assert_eq!(with_manager(b.manager(), pay(7)).await.unwrap(), 7);
    locks.assert_never_together("order:7");                  // over the whole test
    assert_eq!(locks.history("order:7").names(), ["pay", "pay"]);
}
