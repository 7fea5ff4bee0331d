//! The lines of one shard: by the names of their locks, and when they are looked at next.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::core::Line;
use super::effects::{Live, Turn};
use super::schedule::Planned;
use super::table::LockTable;
use super::waits::Waits;
use crate::name::{BuildStoredHasher, LockName, StoredName};
use crate::shrink::shrink;

pub(super) type Lines = HashMap<Name, Entry, BuildStoredHasher>;

/// A line, and when it is looked at next.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) line: Line<Live>,
    pub(super) planned: Planned,
    pub(super) waits: Waits,
}

/// What a change of a line calls for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is planned for later.
    Wait,
    /// Something is due now.
    Run,
    /// Nothing is left of it.
    Forget,
}

impl Entry {
    #[inline]
    pub(super) fn change<T>(
        &mut self,
        table: &LockTable,
        change: impl FnOnce(&mut Line<Live>, &mut Turn<'_>) -> T,
        turn: &mut Turn<'_>,
    ) -> (T, Next) {
        let out = change(&mut self.line, turn);
        self.waits.add(turn.waits_until());
        let next = if self.line.is_empty() {
            self.planned.cancel(table.timers());
            Next::Forget
        } else if turn.joins_a_crowd && self.planned.is_by(self.waits.due()) {
            // Nothing is due earlier than before: half of all changes of a line that is in demand.
            Next::Wait
        } else if table.agenda.plan(self, table.timers(), turn) {
            Next::Run
        } else {
            Next::Wait
        };
        (out, next)
    }
}

impl Next {
    /// Forgets a line that is empty.
    #[inline(always)]
    pub(super) fn forget(self, lines: &mut Lines, lock: &LockName) -> Self {
        if self == Self::Forget {
            forget(lines, lock);
        }
        self
    }
}

fn forget(lines: &mut Lines, lock: &LockName) {
    lines.remove(lock.stored());
    shrink(lines);
}

/// A lock by the name under which it is stored.
pub(super) struct Name(pub(super) Arc<LockName>);

impl Borrow<StoredName> for Name {
    fn borrow(&self) -> &StoredName {
        self.0.stored()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.stored().hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.stored() == other.0.stored()
    }
}

impl Eq for Name {}
