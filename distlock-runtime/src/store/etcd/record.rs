//! The records of processes: keys with a lease of their own.

use std::collections::HashMap;

use distlock_etcd::{Fault, Queues};

use crate::itself::record_name;
use crate::store::record::{KEPT, Keeper};
use crate::store::{Itself, Records};
use crate::wall_clock::unix_time;

impl Keeper for Queues {
    async fn is_up(&self) {
        self.until_up().await;
    }

    async fn is_down(&self) {
        self.until_down().await;
    }

    async fn write(&self, prefix: &str, itself: &Itself) {
        let _ = self
            .introduce(&record_name(prefix, itself.id()), &itself.record(unix_time()), KEPT)
            .await;
    }
}

/// Removes that of a process.
pub(super) async fn remove(queues: &Queues, prefix: &str, process: &str) -> Result<(), Fault> {
    queues.take_leave(&record_name(prefix, process)).await
}

/// All under a prefix, by their processes.
pub(super) async fn all(queues: &Queues, prefix: &str) -> Result<HashMap<String, String>, Fault> {
    queues.records(&record_name(prefix, "")).await
}

/// The records of these processes under a prefix, each if there is one, and the time.
pub(super) async fn some(
    queues: &Queues,
    prefix: &str,
    processes: &[String],
) -> Result<Records, Fault> {
    let mut all = all(queues, prefix).await?;
    let texts = processes.iter().map(|process| all.remove(process)).collect();
    Ok(Records { time: unix_time(), texts })
}
