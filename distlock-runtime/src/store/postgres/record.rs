//! The records of processes, in the table `distlock.process`.

use std::sync::Arc;

use distlock_postgres::{Fault, Table};

use crate::store::record::{KEPT, Keeper};
use crate::store::{ProcessInfo, Records};

/// Keeps the record of this process.
pub(super) struct RecordKeeper(pub(super) Arc<Table>);

impl Keeper for RecordKeeper {
    async fn is_up(&self) {
        self.0.until_up().await;
    }

    async fn is_down(&self) {
        self.0.until_down().await;
    }

    async fn write(&self, prefix: &str, info: &ProcessInfo) {
        let _ = write(&self.0, prefix, info).await;
    }
}

async fn write(table: &Table, prefix: &str, info: &ProcessInfo) -> Result<(), Fault> {
    let live = table.lane(0).await?;
    let text = info.record(live.time().await?);
    let record = distlock_postgres::Record { prefix, process: info.id(), text: &text };
    live.introduce(&record, KEPT).await
}

/// Removes that of a process.
pub(super) async fn remove(table: &Table, prefix: &str, process: &str) -> Result<(), Fault> {
    table.lane(0).await?.take_leave(prefix, process).await
}

/// The processes that have a record under a prefix.
pub(super) async fn all(table: &Table, prefix: &str) -> Result<Vec<String>, Fault> {
    let records = table.lane(0).await?.records(prefix, None).await?;
    Ok(records.into_keys().collect())
}

/// The records of these processes under a prefix, each if there is one, and the server's time.
pub(super) async fn some(
    table: &Table,
    prefix: &str,
    processes: &[String],
) -> Result<Records, Fault> {
    let live = table.lane(0).await?;
    let time = live.time().await?;
    let mut records = live.records(prefix, Some(processes)).await?;
    let texts = processes.iter().map(|process| records.remove(process)).collect();
    Ok(Records { time, texts })
}
