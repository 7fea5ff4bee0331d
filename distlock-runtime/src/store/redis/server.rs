//! What every operation on one server shares.

use std::sync::Arc;
use std::time::Duration;

use super::fence::Fences;
use super::pool::ConnectionPool;
use super::pubsub::Subscription;
use super::record::Record;
use crate::name::LockName;

/// One server: the connections to it, its counters, and the subscription there.
pub(super) struct Server {
    pub(super) pool: ConnectionPool,
    pub(super) fences: Fences,
    pub(super) subscription: Arc<Subscription>,
    pub(super) record: Arc<Record>,
    pub(super) command_timeout: Duration,
}

impl Server {
    /// A prefix that a request has named stays subscribed for as long as there may be a lock of ours:
    /// its holder is notified of waiters, and if the lock is taken away.
    pub(super) fn keep_subscribed(&self, lock: &LockName, ttl: Duration) {
        if lock.fence().is_some() {
            self.subscription.is_used(lock.prefix(), ttl);
        }
    }
}
