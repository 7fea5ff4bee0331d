//! The names of the locks that there are.

use crate::client::{Queues, txn};
use crate::connection::Live;
use crate::fault::Fault;
use crate::keys::{Prefix, all_under, name_of};
use crate::proto::{RequestOp, TxnRequest};

/// So many keys are read at once.
const PAGE: i64 = 500;

impl Queues {
    /// Some names that begin like this, from a cursor on, which is empty at first; and where to go on.
    ///
    /// # Errors
    ///
    /// Where etcd could not be asked.
    pub async fn names(
        &self,
        live: &Live,
        beginning: &str,
        cursor: &str,
    ) -> Result<(Vec<String>, Option<String>), Fault> {
        let (start, end) = all_under(beginning);
        let from = if cursor.is_empty() { start } else { cursor.as_bytes().to_vec() };
        let look = TxnRequest::unconditional(vec![RequestOp::page(from, end, PAGE)]);
        let found = txn(live, &look).await?;
        let mut names: Vec<_> =
            found.last_keys().iter().filter_map(|kv| name_of(&kv.key)).collect();
        names.dedup();
        let is_full = found.last_keys().len() as i64 >= PAGE;
        // Behind all keys of the last one.
        let last = names.last().filter(|_| is_full).and_then(|last| Prefix::of(last));
        let next = last.and_then(|last| String::from_utf8(last.end()).ok());
        Ok((names, next))
    }
}
