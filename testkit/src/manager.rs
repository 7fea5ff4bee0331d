//! Managers for a server that answers: what takes long on a busy machine is no fault.

use distlock_runtime::{LockManager, LockManagerBuilder, WakeUps};

use crate::{SECOND, ms, wait_for};

/// Gives every command and connection time.
pub fn patient_builder(url: &str) -> LockManagerBuilder {
    LockManager::builder().url(url).command_timeout(10 * SECOND).connect_timeout(30 * SECOND)
}

/// Connects patiently. Its subscription may still be under way: [`connect`] waits for that, too.
pub async fn patient(url: &str) -> LockManager {
    // The first server that is found may lose its place to another one meanwhile, in a fail-over.
    for _ in 0..10 {
        if let Ok(manager) = patient_builder(url).connect().await {
            return manager;
        }
        tokio::time::sleep(ms(100)).await;
    }
    patient_builder(url).connect().await.expect("connect")
}

/// Connects patiently, and is notified of locks that are freed.
pub async fn connect(url: &str) -> LockManager {
    notified(patient(url).await).await
}

/// As many managers, each of which is a process to the others.
pub async fn connect_all<const N: usize>(url: &str) -> [LockManager; N] {
    let mut managers = Vec::new();
    for _ in 0..N {
        managers.push(connect(url).await);
    }
    managers.try_into().expect("as many")
}

/// `manager`, once its subscription stands.
pub async fn notified(manager: LockManager) -> LockManager {
    wait_for("the subscription stands", async || manager.status().wake_ups == WakeUps::Notified)
        .await;
    manager
}
