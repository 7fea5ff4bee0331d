use distlock::BackendKind;
use distlock::testing::Locks;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_is_told_why() {
    let locks = Locks::new();
    let lock = || locks.manager().lock("order:7").wait(Duration::from_secs(60));
    {
        let _held = locks.held_elsewhere("order:7");
        assert!(lock().acquire().await.unwrap_err().is_busy());      // after a minute that takes no time
    }
    {
        let _full = locks.refuse(BackendKind::OutOfMemory);
        assert_eq!(lock().acquire().await.unwrap_err().code(), "lock-store-unavailable");
    }
    assert!(lock().acquire().await.is_ok());
}
