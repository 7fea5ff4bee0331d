//! What every operation shares.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::fence::Fences;
use super::layout::Layout;
use super::record::Record;
use super::replicas::Replicas;
use crate::clock::Moment;
use crate::name::{LockName, StoredName};
use crate::store::Fault;

/// The nodes of one manager, its counters, and the record of this process there.
pub(super) struct Server {
    pub(super) layout: Layout,
    pub(super) fences: Fences,
    pub(super) record: Arc<Record>,
    pub(super) command_timeout: Duration,
    /// Who has to confirm grants and renewals, if anybody does.
    pub(super) replicas: Option<Replicas>,
}

impl Server {
    /// The connection for everything that may create or free this lock.
    pub(super) async fn commands(
        &self,
        lock: &StoredName,
        answer_by: Moment,
    ) -> Result<Connection, Fault> {
        self.layout.node(lock).pool.commands(lock).live(answer_by).await
    }

    /// Has what was written on this connection confirmed by replicas, where that is asked for; `ticket` is of
    /// a write that has asked for itself. An error is no answer: the lock may be held, and on some of them.
    pub(super) async fn confirm(
        &self,
        live: &mut Connection,
        ticket: Option<u64>,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        match &self.replicas {
            None => Ok(()),
            Some(replicas) => Box::pin(replicas.confirm(live, ticket, answer_by)).await,
        }
    }

    /// A connection for what concerns no lock.
    pub(super) async fn any(&self, answer_by: Moment) -> Result<Connection, Fault> {
        self.layout.any().any_link().live(answer_by).await
    }

    /// A prefix that a request has named stays subscribed for as long as there may be a lock of ours:
    /// its holder is notified of waiters, and if the lock is taken away.
    pub(super) fn keep_subscribed(&self, lock: &LockName, ttl: Duration) {
        if lock.fence().is_some() {
            self.layout.node(lock.stored()).subscription.is_used(lock.prefix(), ttl);
        }
    }
}
