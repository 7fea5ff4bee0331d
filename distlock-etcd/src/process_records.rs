//! The records of processes: a key for each, with a lease that none of its locks uses.

use std::collections::HashMap;
use std::time::Duration;

use crate::client::{EtcdClient, grant, txn};
use crate::fault::EtcdFault;
use crate::keep_alive::keep_alive;
use crate::keys::range_of;
use crate::lease::whole_seconds;
use crate::proto::{KeyValue, RequestOp, TxnRequest};

impl EtcdClient {
    /// Resolves when it is connected. Does not connect.
    pub async fn until_up(&self) {
        self.link.until(true).await;
    }

    /// Resolves when it is not connected.
    pub async fn until_down(&self) {
        self.link.until(false).await;
    }

    /// Keeps a text under a name for this long from now on. A repetition only keeps the lease alive.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn introduce(&self, name: &str, text: &str, kept: Duration) -> Result<(), EtcdFault> {
        let connection = self.live().await?;
        let lease = *self.record();
        if let Some(lease) = lease
            && keep_alive(&self.tokens, &connection, &[lease]).await?.first() == Some(&true)
        {
            return Ok(());
        }
        let lease = grant(&self.leases, &connection, whole_seconds(kept)).await?;
        let put = RequestOp::put(name.into(), text.into(), lease.id);
        txn(&connection, &TxnRequest::unconditional(vec![put])).await?;
        *self.record() = Some(lease);
        Ok(())
    }

    /// Deletes the text under a name.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn take_leave(&self, name: &str) -> Result<(), EtcdFault> {
        let connection = self.live().await?;
        let delete = TxnRequest::unconditional(vec![RequestOp::delete(name.into())]);
        txn(&connection, &delete).await.map(|_| ())
    }

    /// Returns the texts whose names begin like this, by the rests of their names.
    ///
    /// # Errors
    ///
    /// Fails if etcd could not be asked.
    pub async fn records(&self, beginning: &str) -> Result<HashMap<String, String>, EtcdFault> {
        let connection = self.live().await?;
        let (start, end) = range_of(beginning);
        let read = TxnRequest::unconditional(vec![RequestOp::range(start, end)]);
        let found = txn(&connection, &read).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let record = |kv: &KeyValue| {
            let name = kv.key.strip_prefix(beginning.as_bytes())?;
            Some((text(name), text(&kv.value)))
        };
        Ok(found.last_keys().iter().filter_map(record).collect())
    }
}
