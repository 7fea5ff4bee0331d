//! What the engine does for locks: it renews leases, asks the store's queue again, and repeats releases,
//! each when it is due.

use std::sync::Arc;

use super::claim::Claim;
use super::renew;
use super::table::LockTable;
use crate::name::LockName;
use crate::shield::shield;

/// What is to be done when its time has come.
pub(crate) enum Due {
    /// A lease is to be renewed, or has reached its deadline.
    Renew(Arc<Claim>),
    /// A batch that waits for this lock is to ask the store's queue.
    Poll(Arc<LockName>),
    /// Releases are to be repeated.
    Repeat,
}

/// Does everything that is due, each by itself: what goes wrong with one must not keep the others
/// from being done. To be called on the engine's thread.
pub(super) fn serve(due: Vec<Due>, table: &Arc<LockTable>) {
    let mut claims = Vec::new();
    for due in due {
        match due {
            Due::Renew(claim) => claims.push(claim),
            Due::Poll(lock) => drop(shield(|| table.poll_queue(&lock))),
            Due::Repeat => drop(shield(|| table.repeat_releases())),
        }
    }
    renew::renew_due(claims, table);
}
