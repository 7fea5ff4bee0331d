//! What this process knows of the keys that it has in etcd.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::Live;
use crate::keys::Prefix;
use crate::lease::Lease;
use crate::queue::ANY;
use crate::watch::{Wants, Whose};

/// A token whose release came to no end is forgotten after its lease and this much longer.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The key of a token.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) whose: Whose,
    pub(crate) prefix: Prefix,
    pub(crate) reads: bool,
    pub(crate) alone: bool,
    /// The lease that its key has, or is to have.
    pub(crate) lease: Lease,
    /// One that its key may have as well: whether it was given over is not known.
    pub(crate) other: Option<Lease>,
    /// The revision in which its key came to be; 0 if there is none, as far as is known.
    pub(crate) created: i64,
    /// Its owner knows that it has the lock: it renews the lease.
    pub(crate) held: bool,
    /// It stands in the queue, or has tried to.
    pub(crate) entered: bool,
    /// Its release was begun then.
    pub(crate) leaving: Option<Instant>,
    watching: Watching,
}

/// Its watches.
#[derive(Debug, Clone, Default)]
struct Watching {
    connection: u64,
    turn: Option<(i64, Vec<u8>)>,
    behind: Option<i64>,
    taken: Option<i64>,
}

impl Place {
    pub(crate) fn new(whose: Whose, prefix: Prefix, most: u32, lease: Lease) -> Self {
        let watching = Watching::default();
        Self {
            whose,
            prefix,
            reads: most == ANY,
            alone: most == 1,
            lease,
            other: None,
            created: 0,
            held: false,
            entered: false,
            leaving: None,
            watching,
        }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = Lease> {
        [Some(self.lease), self.other].into_iter().flatten()
    }

    /// Those of another connection are gone.
    fn watches(&mut self, live: &Live) -> &mut Watching {
        if self.watching.connection != live.number() {
            self.watching = Watching { connection: live.number(), ..Watching::default() };
        }
        &mut self.watching
    }

    /// Has it told when so many keys have left from here on: `key`, or all up to `end`.
    pub(crate) fn await_turn(
        &mut self,
        live: &Live,
        key: &[u8],
        end: &[u8],
        count: usize,
        from: i64,
    ) {
        let whose = self.whose.clone();
        let watching = self.watches(live);
        let is_same = |(id, old): &(i64, Vec<u8>)| old == key && live.watches.has(*id);
        if end.is_empty() && watching.turn.as_ref().is_some_and(is_same) {
            return;
        }
        live.watches.remove(watching.turn.take().map(|(id, _)| id));
        let id = live.watches.add(&whose, Wants::Turn(count), key, end, from);
        watching.turn = Some((id, key.to_vec()));
    }

    /// It waits for its turn no more.
    pub(crate) fn has_turn(&mut self, live: &Live) {
        let turn = self.watches(live).turn.take();
        live.watches.remove(turn.map(|(id, _)| id));
    }

    /// Watches for the first token that comes behind it; while there is one, no watch is needed.
    pub(crate) fn await_others(&mut self, live: &Live, there_are: bool, from: i64) {
        let (whose, prefix, reads) = (self.whose.clone(), self.prefix.clone(), self.reads);
        let watching = self.watches(live);
        if there_are {
            live.watches.remove(watching.behind.take());
        } else if watching.behind.is_none() {
            let (start, end) = (prefix.start(), prefix.end());
            let id = live.watches.add(&whose, Wants::Behind { reads }, start, &end, from);
            watching.behind = Some(id);
        }
    }

    /// Watches for the loss of its key.
    pub(crate) fn await_loss(&mut self, live: &Live, from: i64) {
        let whose = self.whose.clone();
        let watching = self.watches(live);
        if watching.taken.is_none() {
            watching.taken = Some(live.watches.add(&whose, Wants::Taken, &whose.key, &[], from));
        }
    }

    /// Drops all its watches.
    pub(crate) fn unwatch(&mut self, live: &Live) {
        let watching = std::mem::take(self.watches(live));
        let turn = watching.turn.map(|(id, _)| id);
        live.watches.remove([turn, watching.behind, watching.taken].into_iter().flatten());
    }
}

/// All of them, by token.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<Arc<str>, Place>>);

impl Places {
    pub(crate) fn get(&self, token: &str) -> Option<Place> {
        self.all().get(token).cloned()
    }

    /// The one that is there, or this one.
    pub(crate) fn insert(&self, place: Place) {
        self.all().entry(place.whose.token.clone()).or_insert(place);
    }

    pub(crate) fn remove(&self, token: &str) -> Option<Place> {
        self.all().remove(token)
    }

    /// Changes one that is there and not about to leave.
    pub(crate) fn change<T>(&self, token: &str, change: impl FnOnce(&mut Place) -> T) -> Option<T> {
        self.all().get_mut(token).filter(|place| place.leaving.is_none()).map(change)
    }

    /// Its release is begun. Says what it was.
    pub(crate) fn leave(&self, token: &str) -> Option<Place> {
        let mut all = self.all();
        let place = all.get_mut(token)?;
        place.leaving.get_or_insert_with(Instant::now);
        Some(place.clone())
    }

    /// These leases were kept alive.
    pub(crate) fn kept_alive(&self, leases: &[Lease], alive: Instant) {
        let ids: HashSet<_> = leases.iter().map(|lease| lease.id).collect();
        for place in self.all().values_mut() {
            if ids.contains(&place.lease.id) {
                place.lease.alive = alive;
            }
        }
    }

    /// Those that wait and are to be kept alive now.
    pub(crate) fn due(&self, now: Instant) -> Vec<(Whose, Lease)> {
        let mut all = self.all();
        all.retain(|_, place| {
            let over = place.lease.ttl() + FORGOTTEN;
            place.leaving.is_none_or(|since| now.saturating_duration_since(since) < over)
        });
        let waits = |place: &&Place| !place.held && place.leaving.is_none() && place.created != 0;
        let due = |place: &&Place| {
            now.saturating_duration_since(place.lease.alive) > place.lease.ttl() / 3
        };
        let waiting = all.values().filter(waits).filter(due);
        waiting.map(|place| (place.whose.clone(), place.lease)).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Arc<str>, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
