//! The tokens of this process that stand in a queue, as holders or as waiters.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::store::Owner;

use crate::connection::EtcdConnection;
use crate::keys::LockPrefix;
use crate::lease::EtcdLease;
use crate::watch::{TokenKey, WatchGoal};

/// A token whose release never succeeded is forgotten this long after its lease.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A token of this process, and the state of its key.
#[derive(Debug, Clone)]
pub(crate) struct QueuedToken {
    pub(crate) token: TokenKey,
    pub(crate) prefix: LockPrefix,
    /// The lease that its key has, or is to have.
    pub(crate) lease: EtcdLease,
    /// The lease that its key may have instead: the answer to the command that changes it is missing.
    pub(crate) next_lease: Option<EtcdLease>,
    /// The revision that created its key; 0 if no key is known.
    pub(crate) created: i64,
    /// The engine knows that the token holds the lock, and renews the lease itself.
    pub(crate) is_held: bool,
    /// It stands in the queue, or has tried to.
    pub(crate) is_enqueued: bool,
    /// The time at which its release began.
    pub(crate) releasing_since: Option<Instant>,
    watches: TokenWatches,
}

/// The watches of one token, all on one connection.
#[derive(Debug, Clone, Default)]
struct TokenWatches {
    connection: u64,
    turn: Option<(i64, Vec<u8>)>,
    waiter: Option<i64>,
    loss: Option<i64>,
}

impl QueuedToken {
    pub(crate) fn new(
        owner: &Arc<Owner>,
        prefix: &LockPrefix,
        lease: EtcdLease,
        is_enqueued: bool,
    ) -> Self {
        let key = prefix.key(&owner.token).into();
        Self {
            token: TokenKey { owner: owner.clone(), key },
            prefix: prefix.clone(),
            lease,
            next_lease: None,
            created: 0,
            is_held: false,
            is_enqueued,
            releasing_since: None,
            watches: TokenWatches::default(),
        }
    }

    /// Returns all leases that its key may have.
    pub(crate) fn leases(&self) -> impl Iterator<Item = EtcdLease> {
        [Some(self.lease), self.next_lease].into_iter().flatten()
    }

    /// Returns its watches on this connection. Those on an earlier connection have ended with it.
    fn watches_on(&mut self, connection: &EtcdConnection) -> &mut TokenWatches {
        if self.watches.connection != connection.number() {
            self.watches =
                TokenWatches { connection: connection.number(), ..TokenWatches::default() };
        }
        &mut self.watches
    }

    /// Watches until `count` keys have left since revision `from`: `key` alone, or all keys from it to before `end`.
    pub(crate) fn watch_turn(
        &mut self,
        connection: &EtcdConnection,
        key: &[u8],
        end: &[u8],
        count: usize,
        from: i64,
    ) {
        let token = self.token.clone();
        let watches = self.watches_on(connection);
        let is_same = |(id, old): &(i64, Vec<u8>)| old == key && connection.watches.has(*id);
        if end.is_empty() && watches.turn.as_ref().is_some_and(is_same) {
            return;
        }
        connection.watches.remove(watches.turn.take().map(|(id, _)| id));
        let id = connection.watches.add(&token, WatchGoal::Turn(count), key, end, from);
        watches.turn = Some((id, key.to_vec()));
    }

    /// Ends the watch for its turn.
    pub(crate) fn unwatch_turn(&mut self, connection: &EtcdConnection) {
        let turn = self.watches_on(connection).turn.take();
        connection.watches.remove(turn.map(|(id, _)| id));
    }

    /// Watches for the first token that joins the queue after it. No watch is needed while `has_waiters` is set.
    pub(crate) fn watch_waiters(
        &mut self,
        connection: &EtcdConnection,
        has_waiters: bool,
        from: i64,
    ) {
        let (token, prefix) = (self.token.clone(), self.prefix.clone());
        let watches = self.watches_on(connection);
        if has_waiters {
            connection.watches.remove(watches.waiter.take());
        } else if watches.waiter.is_none() {
            let (start, end) = (prefix.start(), prefix.end());
            let goal = WatchGoal::Waiter { is_reader: token.owner.limit.is_read() };
            watches.waiter = Some(connection.watches.add(&token, goal, start, &end, from));
        }
    }

    /// Watches for the loss of its key.
    pub(crate) fn watch_loss(&mut self, connection: &EtcdConnection, from: i64) {
        let token = self.token.clone();
        let watches = self.watches_on(connection);
        if watches.loss.is_none() {
            let id = connection.watches.add(&token, WatchGoal::Loss, &token.key, &[], from);
            watches.loss = Some(id);
        }
    }

    /// Ends all its watches.
    pub(crate) fn unwatch_all(&mut self, connection: &EtcdConnection) {
        let watches = std::mem::take(self.watches_on(connection));
        let turn = watches.turn.map(|(id, _)| id);
        connection.watches.remove([turn, watches.waiter, watches.loss].into_iter().flatten());
    }
}

/// All tokens of this process that stand in a queue.
#[derive(Debug, Default)]
pub(crate) struct QueuedTokens(Mutex<HashMap<String, QueuedToken>>);

impl QueuedTokens {
    pub(crate) fn get(&self, token: &str) -> Option<QueuedToken> {
        self.all().get(token).cloned()
    }

    /// Adds a token, unless it is known.
    pub(crate) fn insert(&self, queued: QueuedToken) {
        self.all().entry(queued.token.owner.token.clone()).or_insert(queued);
    }

    pub(crate) fn remove(&self, token: &str) -> Option<QueuedToken> {
        self.all().remove(token)
    }

    /// Changes a token. Returns `None` if it is not known, or its release has begun.
    pub(crate) fn update<T>(
        &self,
        token: &str,
        change: impl FnOnce(&mut QueuedToken) -> T,
    ) -> Option<T> {
        self.all().get_mut(token).filter(|queued| queued.releasing_since.is_none()).map(change)
    }

    /// Marks that a token's release has begun, and returns the token.
    pub(crate) fn begin_release(&self, token: &str) -> Option<QueuedToken> {
        let mut all = self.all();
        let queued = all.get_mut(token)?;
        queued.releasing_since.get_or_insert_with(Instant::now);
        Some(queued.clone())
    }

    /// Notes that these leases were kept alive.
    pub(crate) fn kept_alive(&self, leases: &[EtcdLease], alive: Instant) {
        let ids: HashSet<_> = leases.iter().map(|lease| lease.id).collect();
        for queued in self.all().values_mut() {
            if ids.contains(&queued.lease.id) {
                queued.lease.alive = alive;
            }
        }
    }

    /// Returns the waiters whose leases must be kept alive now, and forgets tokens whose release never succeeded.
    pub(crate) fn waiters_to_keep_alive(&self, now: Instant) -> Vec<(TokenKey, EtcdLease)> {
        let mut all = self.all();
        all.retain(|_, queued| {
            let limit = queued.lease.ttl() + FORGET_AFTER;
            queued.releasing_since.is_none_or(|since| now.saturating_duration_since(since) < limit)
        });
        let waits = |queued: &&QueuedToken| {
            !queued.is_held && queued.releasing_since.is_none() && queued.created != 0
        };
        let is_due = |queued: &&QueuedToken| {
            now.saturating_duration_since(queued.lease.alive) > queued.lease.ttl() / 3
        };
        let due = all.values().filter(waits).filter(is_due);
        due.map(|queued| (queued.token.clone(), queued.lease)).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, QueuedToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
