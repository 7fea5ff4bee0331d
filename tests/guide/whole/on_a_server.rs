use distlock::testing::Locks;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn one_at_a_time() {
    let locks = Locks::from_env();
    let lock = |replica| locks.replica(replica).manager().lock("k").wait(Duration::from_secs(10));
    let body = || tokio::time::sleep(Duration::from_millis(20));
    let (one, other) = tokio::join!(lock("a").run(body()), lock("b").run(body()));
    assert!(one.is_ok() && other.is_ok());
    locks.assert_never_together("k");
}
