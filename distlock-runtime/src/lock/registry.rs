//! The leases that this process holds, found by lock and owner token.
//!
//! A lease that came through a lock's line is found there: the batch under its token knows its
//! holder. Only leases that were taken past the line, by a call that did not wait in it, are noted
//! here. Either way a lease is looked up; nothing walks through all of them but
//! [`close`](LockTable::close) and the manager's status.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::claim::Claim;
use super::lease::Lease;
use super::lines::{Lines, of_token};
use super::table::{LockTable, lock};
use crate::name::StoredName;
use crate::shrink::shrink;

/// Leases that were taken past their lock's line, by owner token.
#[derive(Default)]
pub(super) struct HeldLeases(Mutex<HashMap<String, Weak<Lease>>>);

impl HeldLeases {
    pub(super) fn note(&self, lease: &Arc<Lease>) {
        lock(&self.0).insert(lease.claim.owner.token.clone(), Arc::downgrade(lease));
    }

    /// A lease without a line has ended.
    pub(super) fn forget(&self, claim: &Claim) {
        let mut leases = lock(&self.0);
        if leases.remove(&claim.owner.token).is_some() {
            shrink(&mut leases);
        }
    }

    fn get(&self, token: &str) -> Option<Arc<Lease>> {
        lock(&self.0).get(token)?.upgrade()
    }

    fn all(&self) -> Vec<Arc<Lease>> {
        lock(&self.0).values().filter_map(Weak::upgrade).collect()
    }
}

impl LockTable {
    /// The lease that is held under a token.
    pub(crate) fn lease_of(&self, stored: &StoredName, token: &str) -> Option<Arc<Lease>> {
        let in_line =
            of_token(&mut self.lines(stored), stored, token).and_then(|batch| batch.claim.holder());
        in_line.or_else(|| self.held.get(token))
    }

    /// Every lease that is held.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        let mut leases = self.held.all();
        for shard in &self.shards {
            leases.extend(holders(&mut lock(shard)));
        }
        leases
    }
}

/// The leases of the lines of one shard.
fn holders(lines: &mut Lines) -> impl Iterator<Item = Arc<Lease>> {
    lines.values_mut().flat_map(|line| line.batches()).filter_map(|batch| batch.claim.holder())
}
