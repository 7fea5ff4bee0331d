//! The records of processes: keys with a lease of their own.

use std::collections::HashMap;

use std::sync::Arc;

use distlock_etcd::{Fault, Queues};

use crate::store::record::{KEPT, Keeper};
use crate::store::{ProcessInfo, Records};
use distlock_core::process_info::record_name;
use distlock_core::wall_clock::unix_time;

/// Keeps the record of this process.
pub(super) struct RecordKeeper(pub(super) Arc<Queues>);

impl Keeper for RecordKeeper {
    async fn is_up(&self) {
        self.0.until_up().await;
    }

    async fn is_down(&self) {
        self.0.until_down().await;
    }

    async fn write(&self, prefix: &str, info: &ProcessInfo) {
        let _ = self
            .0
            .introduce(&record_name(prefix, info.id()), &info.record(unix_time()), KEPT)
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
