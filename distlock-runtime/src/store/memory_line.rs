//! The waiters for a lock in memory: the queue that a server would have.

use std::collections::{BTreeSet, HashMap};

use super::owner::Owner;
use crate::name::{BuildStoredHasher, StoredName};
use crate::shrink::shrink;

/// The tokens that stand in line for locks, by ticket.
#[derive(Debug, Default)]
pub(super) struct MemoryLine(HashMap<StoredName, BTreeSet<(u64, String)>, BuildStoredHasher>);

impl MemoryLine {
    /// The tokens that stand in line for a lock, the first one in front.
    pub(super) fn of(&self, lock: &StoredName) -> impl Iterator<Item = &(u64, String)> {
        self.0.get(lock).into_iter().flatten()
    }

    /// Others stand in line for the lock before this token.
    pub(super) fn is_behind(&self, owner: &Owner) -> bool {
        let first =
            |line: &BTreeSet<_>| line.first().is_some_and(|(_, token)| *token != owner.token);
        !self.0.is_empty() && self.0.get(owner.lock.stored()).is_some_and(first)
    }

    /// Puts a token in line, where it stood before, or behind all others with a ticket that is drawn for
    /// it. Says its ticket, and how many stand in front.
    pub(super) fn stand(
        &mut self,
        owner: &Owner,
        ticket: u64,
        draw: impl FnOnce() -> u64,
    ) -> (u64, usize) {
        let line = self.0.entry(owner.lock.stored().clone()).or_default();
        if let Some((rank, (ticket, _))) =
            line.iter().enumerate().find(|(_, (_, token))| *token == owner.token)
        {
            return (*ticket, rank);
        }
        let ticket = if ticket == 0 { draw() } else { ticket };
        let place = (ticket, owner.token.clone());
        let rank = line.range(..&place).count();
        line.insert(place);
        (ticket, rank)
    }

    /// Takes a token out of the line.
    pub(super) fn leave(&mut self, owner: &Owner) {
        if self.0.is_empty() {
            return;
        }
        let lock = owner.lock.stored();
        let Some(line) = self.0.get_mut(lock) else { return };
        line.retain(|(_, token)| *token != owner.token);
        if line.is_empty() {
            self.0.remove(lock);
            shrink(&mut self.0);
        }
    }
}
