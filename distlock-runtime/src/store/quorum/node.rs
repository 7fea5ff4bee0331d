//! One node of a quorum: a Redis of its own, whose answers count while it is known to remember.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::guard::RestartGuard;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::store::redis::RedisStore;
use crate::store::redis::vote::Identity;
use crate::store::{Fault, Op, Store};

const MOVED: &str = "the connection to a node was made again meanwhile";

pub(super) struct Node {
    pub(super) store: Arc<RedisStore>,
    /// What all processes must agree on, as it stands in every node.
    rules: Arc<str>,
    guard: Duration,
    restarts: Mutex<RestartGuard>,
    /// The connection over which it was asked who it is; 0 for none.
    known_on: AtomicU64,
}

/// An answer, and whether it counts as a vote.
pub(super) struct Voted<T> {
    pub(super) answer: T,
    pub(super) counts: bool,
}

impl Node {
    pub(super) fn new(store: Arc<RedisStore>, rules: Arc<str>, guard: Duration) -> Self {
        let (restarts, known_on) = Default::default();
        Self { store, rules, guard, restarts, known_on }
    }

    /// It is not waited for.
    pub(super) fn is_down(&self) -> bool {
        self.store.outage().is_some()
    }

    /// Asks the node something by `op`, over a connection on which it has said who it is.
    pub(super) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        answer_by: Moment,
        op: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Op<Voted<T>> {
        let node = self.clone();
        Box::pin(async move {
            let connection = node.known(answer_by).await?;
            let sent = Clock::Boottime.now();
            let answer = op.await?;
            // Over another connection it may be another server, or the same one after a restart.
            if node.store.connection() != Some(connection) {
                return Err(Fault::passing(BackendKind::Unreachable, MOVED));
            }
            let counts = node.restarts().counts(sent);
            Ok(Voted { answer, counts })
        })
    }

    /// The connection on which the node has said who it is.
    pub(super) async fn known(&self, answer_by: Moment) -> Result<u64, Fault> {
        let known = self.known_on.load(Ordering::Acquire);
        if known != 0 && self.store.connection() == Some(known) {
            return Ok(known);
        }
        let (connection, identity) = self.store.identity(&self.rules, answer_by).await?;
        let Identity { run_id, up, rules } = identity;
        if rules != *self.rules {
            return Err(Fault::lasting(BackendKind::Other, other_rules(&rules, &self.rules)));
        }
        self.restarts().greeted(&run_id, up, self.guard, Clock::Boottime.now());
        self.known_on.store(connection, Ordering::Release);
        Ok(connection)
    }

    pub(super) fn run_id(&self) -> Option<String> {
        self.restarts().run_id().map(str::to_owned)
    }

    /// How long it takes until its votes count.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.restarts().wait(Clock::Boottime.now())
    }

    fn restarts(&self) -> MutexGuard<'_, RestartGuard> {
        self.restarts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two processes that list different nodes have majorities that need not share one.
fn other_rules(there: &str, here: &str) -> String {
    format!(
        "another process uses these servers as a quorum of {there} (nodes:majority), and this one of {here}: \
         give every process the same list; if the other one is gone for good, delete the key \
         `<prefix>:quorum` on every server"
    )
}
