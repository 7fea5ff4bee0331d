//! One node of a quorum: a Redis of its own, whose answers count while it is known to remember.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::guard::RestartGuard;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::store::redis::RedisStore;
use crate::store::redis::vote::Identity;
use crate::store::{Fault, Op, Store, on_heap};

const MOVED: &str = "the connection to a node was made again meanwhile";

const LISTED_TWICE: &str = "two of the hosts in the URL are the same server: name each server once";

/// Which server was found at each place of the list, by its `run_id`. A server that is listed twice would have two
/// votes, and it is not known before it answers under both names.
pub(super) struct ServerNames(Mutex<Vec<Option<String>>>);

impl ServerNames {
    pub(super) fn of(servers: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![None; servers])))
    }

    /// Notes that this server is at `place`, unless it is at another one.
    fn are_different_with(&self, place: usize, run_id: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Not the one that was here before: it may be what has moved.
        names[place] = None;
        let is_new = !names.iter().flatten().any(|other| other == run_id);
        names[place] = is_new.then(|| run_id.to_owned());
        is_new
    }
}

pub(super) struct Node {
    pub(super) store: Arc<RedisStore>,
    /// What all processes must agree on, as it stands in every node.
    rules: Arc<str>,
    guard: Duration,
    names: Arc<ServerNames>,
    place: usize,
    restarts: Mutex<RestartGuard>,
    /// The connection on which it has identified itself; 0 for none.
    known_on: AtomicU64,
}

/// An answer, and whether it counts as a vote.
pub(super) struct Voted<T> {
    pub(super) answer: T,
    pub(super) counts: bool,
}

impl Node {
    /// At this place in the list.
    pub(super) fn new(
        place: usize,
        store: Arc<RedisStore>,
        rules: Arc<str>,
        guard: Duration,
        names: &Arc<ServerNames>,
    ) -> Self {
        let ((restarts, known_on), names) = (Default::default(), names.clone());
        Self { store, rules, guard, names, place, restarts, known_on }
    }

    /// It is not waited for.
    pub(super) fn is_down(&self) -> bool {
        self.store.outage().is_some()
    }

    /// Asks the node something by `op`, over a connection on which it has identified itself.
    ///
    /// What is rare is on the heap, and `op` begins where it stays: this is made for every node and every lock.
    pub(super) fn ask<T, F>(
        self: &Arc<Self>,
        answer_by: Moment,
        op: impl FnOnce() -> F + Send + 'static,
    ) -> Op<Voted<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let node = self.clone();
        on_heap(|| async move {
            let connection = match node.is_known() {
                Some(connection) => connection,
                None => Box::pin(node.known(answer_by)).await?,
            };
            let sent = Clock::Boottime.now();
            let answer = op().await?;
            // Over another connection it may be another server, or the same one after a restart.
            if node.store.connection() != Some(connection) {
                return Err(Fault::passing(BackendKind::Unreachable, MOVED));
            }
            let counts = node.restarts().counts(sent);
            Ok(Voted { answer, counts })
        })
    }

    /// The connection, if the node has identified itself on it.
    fn is_known(&self) -> Option<u64> {
        let known = self.known_on.load(Ordering::Acquire);
        (known != 0 && self.store.connection() == Some(known)).then_some(known)
    }

    /// The connection on which the node has identified itself.
    pub(super) async fn known(&self, answer_by: Moment) -> Result<u64, Fault> {
        if let Some(known) = self.is_known() {
            return Ok(known);
        }
        let (connection, identity) = self.store.identity(&self.rules, answer_by).await?;
        let Identity { run_id, up, rules } = identity;
        if rules != *self.rules {
            return Err(Fault::lasting(BackendKind::Other, other_rules(&rules, &self.rules)));
        }
        if !self.names.are_different_with(self.place, &run_id) {
            return Err(Fault::lasting(BackendKind::Other, LISTED_TWICE));
        }
        self.restarts().greeted(&run_id, up, self.guard, Clock::Boottime.now());
        self.known_on.store(connection, Ordering::Release);
        Ok(connection)
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
