//! A manager for what is measured.

use std::time::Duration;

use distlock::{LockManager, WakeUps};

/// Longer than anything takes on a busy machine: that is no fault.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects, and waits until it can be told of locks that are freed.
pub(crate) async fn connect(url: &str) -> LockManager {
    let builder = LockManager::builder().url(url).command_timeout(PATIENCE);
    let manager = builder.connect_timeout(PATIENCE).connect().await.expect("connect");
    while manager.status().wake_ups != WakeUps::Notified {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    manager
}
