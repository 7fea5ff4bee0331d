//! The state that all commands share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::Fault;
use distlock_core::store::record::ProcessRecord;
use distlock_core::timers::Alarms;

use crate::addr::Addr;
use crate::commands::confirm;
use crate::commands::fence::Fences;
use crate::connection::live::ConnectionHandle;
use crate::connection::replicas::Replicas;
use crate::node::Node;
use crate::record::RedisRecordKeeper;
use crate::routing::Routing;
use crate::slots::Slot;

/// The servers of one manager: the routing to them, the fence counters, and the records of processes.
pub(crate) struct Server {
    pub(crate) routing: Routing,
    pub(crate) fences: Fences,
    pub(crate) record: Arc<ProcessRecord>,
    pub(crate) records: Arc<RedisRecordKeeper>,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) command_timeout: Duration,
    /// The replicas that must confirm grants and renewals, if any.
    pub(crate) replicas: Option<Replicas>,
    /// The nodes at which every script has run once.
    pub(crate) trials: ScriptTrials,
}

impl Server {
    /// Returns a lock name under the manager's prefix that is never acquired.
    pub(crate) fn unused(&self) -> Option<LockName> {
        let prefix = &*self.record.prefix;
        LockName::of_stored(prefix, &[prefix, "lock:{cluster?}"].concat())
    }

    /// Waits until replicas have confirmed the writes on this connection, if that is configured. `ticket` belongs to a
    /// write that has asked already. After an error the lock may be held, also on some of the replicas.
    pub(crate) async fn confirm(
        &self,
        connection: &mut ConnectionHandle,
        ticket: Option<u64>,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        match &self.replicas {
            None => Ok(()),
            Some(_) if ticket.is_some_and(|ticket| connection.live.waits.is_confirmed(ticket)) => {
                Ok(())
            }
            Some(replicas) => {
                Box::pin(confirm::confirm(*replicas, connection, ticket, answer_by)).await
            }
        }
    }

    /// Connects to some node for commands that are not about a lock.
    pub(crate) async fn any(&self, answer_by: Moment) -> Result<ConnectionHandle, Fault> {
        match &self.routing {
            Routing::One(node) => node.pool.any().connection(answer_by).await,
            Routing::Cluster(cluster) => cluster.reach_any(answer_by).await,
        }
    }

    /// Returns the last argument of scripts in a cluster: the tag in the names of the channels of this lock's slot. It
    /// is empty if messages are not sent within a shard.
    pub(crate) fn tag(&self, lock: &LockName) -> Option<String> {
        let cluster = self.routing.cluster()?;
        let sharded = cluster.sharded.load(Ordering::Relaxed);
        Some(if sharded { Slot::of(lock.stored()).tag() } else { String::new() })
    }

    /// Keeps a prefix that a request has named subscribed for as long as a lock of ours may exist under it. Its holder
    /// is then notified of waiters, and if the lock is taken away.
    pub(crate) fn keep_subscribed(&self, lock: &LockName, ttl: Duration) {
        if lock.fence().is_some() {
            self.subscribe(lock, ttl);
        }
    }

    /// Notes that a lock with this ttl is waited for: in a cluster the channel of its slot is subscribed from now on.
    pub(crate) fn is_awaited(&self, lock: &LockName, ttl: Duration) {
        if self.routing.cluster().is_some() {
            self.subscribe(lock, ttl);
        }
    }

    fn subscribe(&self, lock: &LockName, ttl: Duration) {
        let subscribe = |node: &Node| node.subscription.is_used(lock, ttl);
        self.routing.with_node(lock.stored(), subscribe);
    }
}

/// The nodes at which all scripts have run. Without a cluster, the only node has no address.
#[derive(Default)]
pub(crate) struct ScriptTrials(Mutex<Vec<Option<Addr>>>);

impl ScriptTrials {
    pub(crate) fn include(&self, node: &Option<Addr>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    pub(crate) fn add(&self, node: &Option<Addr>) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !nodes.contains(node) {
            nodes.push(node.clone());
        }
    }
}
