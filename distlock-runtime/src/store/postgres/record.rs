//! The record of this process, and those of others: which process holds a lock, for operators (R15).
//!
//! It is written on every new connection, and when the process uses a lock and has not written it for a while: a process
//! that is idle writes nothing, and is forgotten. Whatever goes wrong with it concerns no lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use distlock_postgres::{Fault, Table};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::select::until;
use crate::store::{Itself, Records};

/// How long a record is kept.
const KEPT: Duration = Duration::from_secs(60);
/// How long it is good enough for a process that uses locks.
const FRESH: Duration = Duration::from_secs(20);

/// The record of this process.
pub(super) struct Record {
    /// The prefix of the manager, with its separator.
    prefix: String,
    /// When it was written last; `NEVER` while it is not to be written.
    written: AtomicU64,
    /// It is to be written again.
    wanted: Notify,
    /// It was removed for good.
    removed: AtomicBool,
}

impl Record {
    /// Of nobody, until it is [started](Self::start).
    pub(super) fn new(prefix: String) -> Self {
        let (written, removed) = (Moment::NEVER.as_nanos().into(), AtomicBool::new(false));
        Self { prefix, written, wanted: Notify::new(), removed }
    }

    /// Has it written from now on, whenever the table is connected.
    pub(super) fn start(self: &Arc<Self>, itself: &Itself, table: &Arc<Table>, handle: &Handle) {
        self.written.store(0, Ordering::Relaxed);
        let (record, itself, table) = (self.clone(), itself.clone(), table.clone());
        handle.spawn(async move { record.supervise(&itself, &table).await });
    }

    /// The process takes, awaits or renews a lock.
    pub(super) fn used(&self, now: Moment) {
        let written = Moment::from_nanos(self.written.load(Ordering::Relaxed));
        // Later than now, if it is not to be written.
        if now.since(written) > FRESH {
            self.written.store(now.as_nanos(), Ordering::Relaxed);
            self.wanted.notify_one();
        }
    }

    async fn supervise(&self, itself: &Itself, table: &Table) {
        loop {
            table.until_up().await;
            if self.removed.load(Ordering::Acquire) {
                return;
            }
            // It is tried again when a lock is used, or with the next connection.
            let _ = self.write(itself, table).await;
            until(self.wanted.notified(), table.until_down()).await;
        }
    }

    async fn write(&self, itself: &Itself, table: &Table) -> Result<(), Fault> {
        self.written.store(Clock::Boottime.now().as_nanos(), Ordering::Relaxed);
        let live = table.lane(0).await?;
        let text = itself.record(live.time().await?);
        let (prefix, process) = (self.prefix.as_str(), itself.id());
        let record = distlock_postgres::Record { prefix, process, text: &text };
        live.introduce(&record, KEPT).await
    }

    /// Removes it for good.
    pub(super) async fn remove(&self, table: &Table, process: &str) -> Result<(), Fault> {
        self.written.store(Moment::NEVER.as_nanos(), Ordering::Relaxed);
        self.removed.store(true, Ordering::Release);
        self.wanted.notify_one();
        table.lane(0).await?.take_leave(&self.prefix, process).await
    }
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
