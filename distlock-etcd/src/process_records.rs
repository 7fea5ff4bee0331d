//! What processes say of themselves: a key each, with a lease that none of its locks has.

use std::collections::HashMap;
use std::time::Duration;

use crate::client::{Queues, txn};
use crate::fault::Fault;
use crate::keys::range_of;
use crate::lease::seconds;
use crate::proto::{RequestOp, TxnRequest};

impl Queues {
    /// Resolves when it is connected; does not connect it.
    pub async fn until_up(&self) {
        self.link.until(true).await;
    }

    /// Resolves when it is not connected.
    pub async fn until_down(&self) {
        self.link.until(false).await;
    }

    /// Keeps a text under a name for so long from now on. Said again, that writes nothing.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn introduce(&self, name: &str, text: &str, kept: Duration) -> Result<(), Fault> {
        let live = self.live().await?;
        let before = *self.record();
        if let Some(lease) = before
            && self.keep_alive(&live, &[lease]).await?.first() == Some(&true)
        {
            return Ok(());
        }
        let lease = self.grant(&live, seconds(kept)).await?;
        let put = RequestOp::put(name.into(), text.into(), lease.id);
        txn(&live, &TxnRequest::unconditional(vec![put])).await?;
        *self.record() = Some(lease);
        Ok(())
    }

    /// Has that forgotten.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn take_leave(&self, name: &str) -> Result<(), Fault> {
        let live = self.live().await?;
        let delete = RequestOp::delete(name.into());
        txn(&live, &TxnRequest::unconditional(vec![delete])).await.map(|_| ())
    }

    /// The texts whose names begin like this, by the rest of their names.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn records(&self, beginning: &str) -> Result<HashMap<String, String>, Fault> {
        let live = self.live().await?;
        let (start, end) = range_of(beginning);
        let look = TxnRequest::unconditional(vec![RequestOp::range(start, end)]);
        let found = txn(&live, &look).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let record = |kv: &crate::proto::KeyValue| {
            let name = kv.key.strip_prefix(beginning.as_bytes())?;
            Some((text(name), text(&kv.value)))
        };
        Ok(found.last_keys().iter().filter_map(record).collect())
    }
}
