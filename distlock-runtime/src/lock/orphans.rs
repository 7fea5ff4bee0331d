//! Tokens of this process that only the store still knows.
//!
//! A server may come back with an older state of its data (a restart from a snapshot, a failover to a replica
//! that lags). It then has locks and places in queues again that were released since. Their process is alive,
//! so the store waits for it: a whole lease, or a reservation for each place. The store also asks that process:
//! it sends a hint when it has reserved the lock for such a token, and a message when others wait behind one.
//! If no call uses the token, the process releases it. // R4
//!
//! # What must not be released
//!
//! A message may be late, doubled or forged, and must not free a lock that is in use. A token is released only
//! if all of this is true:
//!
//! - The manager remembers that it issued the token, and that the store has answered its release ([`Memory`]). A
//!   clone of this machine has the name of this process and hears its messages; its tokens are not ours. A token
//!   whose release was not answered may still be in use, and its own release must be the first, or it would find
//!   the lock gone.
//! - The line of its lock does not know it ([`Line::knows`](super::core::Line::knows)).
//! - Its lock is not kept for a `min_hold` after its holder is done.
//!
//! Tokens are used once, and none returns to a line, so an answer that was true stays true.
//!
//! A message often arrives shortly after the release of its token, and another release would cost a command for
//! nothing. Therefore a token is released after a pause, and not at all if its release was answered just before.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::core::Line;
use super::table::{LockTable, lock};
use crate::clock::Moment;
use crate::name::{LockName, StoredName};
use crate::shield::shielded;
use crate::store::Message;
use crate::store::owner::Owner;
use crate::token::Memory;

/// The pause between a message and the release of its token.
const PAUSE: Duration = Duration::from_millis(25);
/// A message may come this long after the answer to the release of its token.
const LATE: Duration = Duration::from_millis(100);
/// Messages beyond this number are ignored, because the store sends them again.
const MOST: usize = 1000;
/// From this many kept locks on, those that are free by now are forgotten.
const MANY_KEPT: usize = 64;

/// One manager's knowledge about such tokens.
#[derive(Default)]
pub(super) struct Strays {
    kept: Mutex<Kept>,
    /// Tokens whose release was answered a moment ago, the last one at the end.
    released: Mutex<VecDeque<(Moment, Arc<Owner>)>>,
    asked: Mutex<Asked>,
}

/// The tokens of locks that are kept, and until when.
#[derive(Default)]
struct Kept {
    until: HashMap<u64, Moment>,
    /// From this many entries on, those that are over are forgotten.
    full: usize,
}

#[derive(Default)]
struct Asked {
    tokens: HashMap<String, StoredName>,
    /// A task is running that releases them.
    runs: bool,
}

impl Strays {
    /// The store has answered a release while others waited for the lock.
    pub(super) fn released(&self, owner: &Arc<Owner>, now: Moment) {
        let mut released = lock(&self.released);
        while released.front().is_some_and(|(at, _)| at.after(LATE + PAUSE) <= now) {
            released.pop_front();
        }
        released.push_back((now, owner.clone()));
    }

    /// Messages from before that can no longer arrive.
    pub(super) fn is_another_store(&self) {
        lock(&self.released).clear();
    }

    fn was_just_released(&self, token: &str, now: Moment) -> bool {
        let released = lock(&self.released);
        let mut late = released.iter().rev().take_while(|(at, _)| at.after(LATE + PAUSE) > now);
        late.any(|(_, owner)| owner.token == token)
    }

    fn keep(&self, number: u64, end: Moment, now: Moment) {
        let Kept { until, full } = &mut *lock(&self.kept);
        if until.len() >= (*full).max(MANY_KEPT) {
            until.retain(|_, end| *end > now);
            *full = 2 * until.len();
        }
        until.insert(number, end);
    }

    fn is_kept(&self, number: u64, now: Moment) -> bool {
        lock(&self.kept).until.get(&number).is_some_and(|end| *end > now)
    }

    /// Returns whether a task must be started that releases it.
    fn note(&self, message: Message<'_>) -> bool {
        let mut asked = lock(&self.asked);
        if asked.tokens.len() < MOST && !asked.tokens.contains_key(message.token) {
            asked.tokens.insert(message.token.to_owned(), message.stored.clone());
        }
        !std::mem::replace(&mut asked.runs, true)
    }

    /// Returns the tokens that were noted since. If there are none, the next note must start a task again.
    fn take(&self) -> HashMap<String, StoredName> {
        let mut asked = lock(&self.asked);
        asked.runs = !asked.tokens.is_empty();
        std::mem::take(&mut asked.tokens)
    }
}

impl LockTable {
    /// The last holder with this token is done, and the lock must not be free before `end`. Call this before
    /// the token is retired (see `Lead::undo`), and while its line still knows it.
    pub(super) fn keep_until(&self, owner: &Owner, end: Moment) {
        owner.keep_until(end);
        if let Some(number) = self.identity().number(&owner.token) {
            self.strays.keep(number, end, self.clock().now());
        }
    }

    /// Handles the store's question about a token that no line knows.
    pub(super) fn asked_for_stray(self: &Arc<Self>, message: Message<'_>) {
        // Where no engine looks at lines, the store ends with this process.
        if self.memory_of(message.token) == Memory::None
            || !self.agenda.is_the_engines()
            || self.is_closed()
        {
            return;
        }
        if self.strays.was_just_released(message.token, self.clock().now())
            || !self.strays.note(message)
        {
            return;
        }
        let table = self.clone();
        self.background().spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                let tokens = table.strays.take();
                if tokens.is_empty() {
                    return;
                }
                for (token, stored) in tokens {
                    if table.is_stray(&stored, &token) {
                        table.give_back(&stored, token);
                    }
                }
            }
        });
    }

    fn memory_of(&self, token: &str) -> Memory {
        self.identity().memory_of(token)
    }

    /// Whether no call of this process uses that token, now or later. Its own release was answered: one that is
    /// under way must be the first, or it would find the lock gone.
    fn is_stray(&self, stored: &StoredName, token: &str) -> bool {
        let now = self.clock().now();
        // Keep this order: a lock that is kept is noted before its token leaves its line.
        let known = || self.read_stored(stored, |line| line.knows(|own| own.token == token));
        self.memory_of(token) == Memory::Finished
            && known() != Some(true)
            && !self.identity().number(token).is_some_and(|number| self.strays.is_kept(number, now))
            && !self.strays.was_just_released(token, now)
    }

    fn give_back(self: &Arc<Self>, stored: &StoredName, token: String) {
        let Some(name) = LockName::of_message(stored) else { return };
        let owner = Arc::new(Owner::stray(Arc::new(name), token));
        let table = self.clone();
        self.background().spawn(async move {
            let _ = shielded(table.release_once(owner.clone())).await;
            // The tokens before this one in the queue may be as old.
            table.change_known(&owner.lock, |line, _| Line::look(line));
        });
    }
}
