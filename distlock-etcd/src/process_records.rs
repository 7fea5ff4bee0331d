//! The records of processes: a key for each, with a lease that none of its locks uses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::clock::unix_time;
use distlock_core::process_info::record_name;
use distlock_core::store::record::{KEPT, RecordKeeper};
use distlock_core::store::{Fault, ProcessInfo, Records};

use crate::client::{EtcdClient, grant, txn};
use crate::connection::EtcdLink;
use crate::keep_alive::keep_alive;
use crate::keys::range_of;
use crate::lease::{EtcdLease, LeasePool, whole_seconds};
use crate::proto::{KeyValue, RequestOp, TxnRequest};

/// Keeps the record of this process.
pub(crate) struct EtcdRecordKeeper {
    link: Arc<EtcdLink>,
    leases: Arc<LeasePool>,
    /// The lease of the record.
    lease: Mutex<Option<EtcdLease>>,
}

impl EtcdRecordKeeper {
    pub(crate) fn new(client: &EtcdClient) -> Self {
        let (link, leases) = (client.link.clone(), client.leases.clone());
        Self { link, leases, lease: Mutex::default() }
    }

    /// Writes the record, or only keeps its lease alive if it was written before.
    async fn keep(&self, prefix: &str, info: &ProcessInfo) -> Result<(), Fault> {
        let connection = self.link.connection().await?;
        let lease = *self.lease();
        if let Some(lease) = lease
            && keep_alive(&connection, &[lease]).await?.0 == [true]
        {
            return Ok(());
        }
        let lease = grant(&self.leases, &connection, whole_seconds(KEPT)).await?;
        let (name, text) = (record_name(prefix, info.id()), info.record(unix_time()));
        let put = RequestOp::put(name.into(), text.into(), lease.id);
        txn(&connection, &TxnRequest::unconditional(vec![put])).await?;
        *self.lease() = Some(lease);
        Ok(())
    }

    fn lease(&self) -> MutexGuard<'_, Option<EtcdLease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordKeeper for EtcdRecordKeeper {
    async fn is_up(&self) {
        self.link.until(true).await;
    }

    async fn is_down(&self) {
        self.link.until(false).await;
    }

    async fn write(&self, prefix: &str, info: &ProcessInfo) {
        let _ = self.keep(prefix, info).await;
    }
}

/// Removes the record of a process.
pub(crate) async fn remove(link: &EtcdLink, prefix: &str, process: &str) -> Result<(), Fault> {
    let connection = link.connection().await?;
    let delete = RequestOp::delete(record_name(prefix, process).into());
    txn(&connection, &TxnRequest::unconditional(vec![delete])).await?;
    Ok(())
}

/// Returns all records under a prefix, by their processes.
pub(crate) async fn all(link: &EtcdLink, prefix: &str) -> Result<HashMap<String, String>, Fault> {
    let connection = link.connection().await?;
    let beginning = record_name(prefix, "");
    let (start, end) = range_of(&beginning);
    let read = TxnRequest::unconditional(vec![RequestOp::range(start, end)]);
    let found = txn(&connection, &read).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let record = |kv: &KeyValue| {
        let process = kv.key.strip_prefix(beginning.as_bytes())?;
        Some((text(process), text(&kv.value)))
    };
    Ok(found.last_keys().iter().filter_map(record).collect())
}

/// Returns the records of these processes under a prefix, and the time.
pub(crate) async fn some(
    link: &EtcdLink,
    prefix: &str,
    processes: &[String],
) -> Result<Records, Fault> {
    let mut all = all(link, prefix).await?;
    let texts = processes.iter().map(|process| all.remove(process)).collect();
    Ok(Records { time: unix_time(), texts })
}
