//! Orphaned tokens: tokens of this process that only the store still knows.
//!
//! A server may come back with an older state of its data (a restart from a snapshot, a failover to a replica
//! that lags). It then has locks and places in queues again that were released since. Their process is alive,
//! so the store waits for it: a whole lease, or a reservation for each place. The store also asks that process:
//! it sends a hint when it has reserved the lock for such a token, and a message when others wait after one.
//! If no call uses the token, the process releases it. // R4
//!
//! # When a token must not be released
//!
//! A message may be late, doubled or forged, and must not free a lock that is in use. A token is released only
//! if all of this is true:
//!
//! - The manager remembers that it issued the token, and that the store has answered its release ([`TokenState`]). A
//!   clone of this machine has the name of this process and hears its messages; its tokens are not ours. A token
//!   whose release was not answered may still be in use, and its own release must be the first, or it would find
//!   the lock gone.
//! - The line of its lock does not know it ([`Line::knows`](distlock_core::line::Line::knows)).
//! - Its lock is not kept for a `min_hold` after its holder is done.
//!
//! Tokens are used once, and none returns to a line, so an answer that was true stays true.
//!
//! A message often arrives shortly after the release of its token, and another release would cost a command for
//! nothing. Therefore a token is released after a pause, and not at all if its release was answered just before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::name::StoredName;
use distlock_core::store::Message;
use distlock_core::store::owner::Owner;
use distlock_core::token::{Identity, TokenState};

/// The pause between a message and the release of its token.
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// A message may come this long after the answer to the release of its token.
const LATE: Duration = Duration::from_millis(100);
/// Messages beyond this number are ignored, because the store sends them again.
const MOST: usize = 1000;
/// From this many kept locks on, those that are free by now are forgotten.
const MANY_KEPT: usize = 64;

/// A manager's knowledge about tokens that may be orphaned.
#[derive(Default)]
pub(super) struct Orphans {
    kept: Mutex<Kept>,
    /// Tokens whose release was answered a moment ago, the last one at the end.
    released: Mutex<VecDeque<(Moment, Arc<Owner>)>>,
    /// Tokens that the store has asked about, and their locks.
    asked: Mutex<HashMap<String, StoredName>>,
}

/// The tokens of locks that are kept, and until when.
#[derive(Default)]
struct Kept {
    until: HashMap<u64, Moment>,
    /// From this many entries on, those that are over are forgotten.
    full: usize,
}

impl Orphans {
    /// Notes that the store has answered a release while others waited for the lock.
    pub(super) fn released(&self, owner: &Arc<Owner>, now: Moment) {
        let mut released = lock(&self.released);
        while released.front().is_some_and(|(at, _)| at.after(LATE + PAUSE) <= now) {
            released.pop_front();
        }
        released.push_back((now, owner.clone()));
    }

    /// Notes that the store may be another one: messages from before can no longer arrive.
    pub(super) fn is_another_store(&self) {
        lock(&self.released).clear();
    }

    /// Notes that the lock of the token with this number is kept until `end`.
    pub(super) fn keep(&self, number: u64, end: Moment, now: Moment) {
        let Kept { until, full } = &mut *lock(&self.kept);
        if until.len() >= (*full).max(MANY_KEPT) {
            until.retain(|_, end| *end > now);
            *full = 2 * until.len();
        }
        until.insert(number, end);
    }

    /// Notes that the store asks about a token that no line knows. Returns whether the tokens that were asked
    /// about must be looked at after a [`PAUSE`], because this is the first one.
    pub(super) fn ask(&self, message: Message<'_>, identity: &Identity, now: Moment) -> bool {
        if identity.state_of(message.token) == TokenState::None
            || self.was_just_released(message.token, now)
        {
            return false;
        }
        let mut asked = lock(&self.asked);
        let is_first = asked.is_empty();
        if asked.len() < MOST && !asked.contains_key(message.token) {
            asked.insert(message.token.to_owned(), message.stored.clone());
        }
        is_first
    }

    /// Takes the tokens that were asked about since.
    pub(super) fn take(&self) -> HashMap<String, StoredName> {
        std::mem::take(&mut *lock(&self.asked))
    }

    /// Returns whether no call of this process uses the token, now or later. Its own release was answered: one
    /// that is under way must be the first, or it would find the lock gone. `is_known` says whether a line knows
    /// the token.
    pub(super) fn is_orphan(
        &self,
        token: &str,
        identity: &Identity,
        now: Moment,
        is_known: impl FnOnce() -> bool,
    ) -> bool {
        // Keep this order: a lock that is kept is noted before its token leaves its line.
        identity.state_of(token) == TokenState::Finished
            && !is_known()
            && !identity.number(token).is_some_and(|number| self.is_kept(number, now))
            && !self.was_just_released(token, now)
    }

    fn was_just_released(&self, token: &str, now: Moment) -> bool {
        let released = lock(&self.released);
        let mut late = released.iter().rev().take_while(|(at, _)| at.after(LATE + PAUSE) > now);
        late.any(|(_, owner)| owner.token == token)
    }

    fn is_kept(&self, number: u64, now: Moment) -> bool {
        lock(&self.kept).until.get(&number).is_some_and(|end| *end > now)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
