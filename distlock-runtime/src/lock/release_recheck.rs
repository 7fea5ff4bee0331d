//! Releases that are sent a second time, at a known moment: see [`release`](super::release).
//!
//! A lock that was kept for its `min_hold`, or reserved for a process that died before it took it,
//! would else become free unnoticed, with waiters in the queue. Only the last release of each
//! lock is repeated.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use super::serve::Due;
use super::table::{LockTable, lock};
use crate::clock::Moment;
use crate::engine::timers::{Slot, Timers};
use crate::name::{BuildStoredHasher, StoredName};
use crate::shrink::shrink;
use crate::store::owner::Owner;

impl LockTable {
    /// Sends the releases that are due to be repeated.
    pub(super) fn repeat_releases(self: &Arc<Self>) {
        for owner in self.repeats.due(self) {
            let table = self.clone();
            self.background().spawn(async move { table.release_once(owner).await });
        }
    }

    /// Releases a token once: if this fails, the lock expires by itself.
    pub(super) async fn release_once(self: &Arc<Self>, owner: Arc<Owner>) {
        let limit = self.clock().now().after(self.command_timeout);
        if let Ok(freed) = self.store.clone().release(owner.clone(), None, limit).await {
            self.freed(&owner, None, &freed);
        }
    }
}

/// The releases of one manager that are to be repeated.
#[derive(Default)]
pub(super) struct Repeats {
    /// The last release of each lock, and when to repeat it.
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    of: HashMap<StoredName, Place, BuildStoredHasher>,
    /// By the time they are due.
    in_order: BTreeMap<Place, Arc<Owner>>,
    added: u64,
    /// When the engine looks at them next.
    planned: Option<Slot>,
}

/// When it is due, and a number to distinguish those that are due at the same time.
type Place = (Moment, u64);

impl Notes {
    fn plan(&mut self, at: Option<Moment>, timers: &Timers<Due>) {
        let slot = at.map(|at| timers.insert(at, Due::Repeat));
        if let Some(old) = std::mem::replace(&mut self.planned, slot) {
            timers.remove(old);
        }
    }

    fn add(&mut self, owner: &Arc<Owner>, at: Moment) {
        self.added += 1;
        let place = (at, self.added);
        let before = match self.of.get_mut(owner.lock.stored()) {
            Some(note) => Some(std::mem::replace(note, place)),
            None => self.of.insert(owner.lock.stored().clone(), place),
        };
        if let Some(before) = before {
            self.in_order.remove(&before);
        }
        self.in_order.insert(place, owner.clone());
    }

    fn take_due(&mut self, now: Moment) -> Vec<Arc<Owner>> {
        let mut due = Vec::new();
        while let Some(first) = self.in_order.first_entry().filter(|first| first.key().0 <= now) {
            let owner = first.remove();
            self.of.remove(owner.lock.stored());
            due.push(owner);
        }
        shrink(&mut self.of);
        due
    }

    fn next(&self) -> Option<Moment> {
        self.in_order.first_key_value().map(|((at, _), _)| *at)
    }
}

impl Repeats {
    pub(super) fn note(&self, owner: &Arc<Owner>, at: Moment, table: &LockTable) {
        let mut notes = self.notes();
        if notes.planned.is_none_or(|planned| at < planned.at()) {
            notes.plan(Some(at), table.timers());
        }
        notes.add(owner, at);
    }

    /// Takes out what is due.
    fn due(&self, table: &LockTable) -> Vec<Arc<Owner>> {
        let now = table.clock().now();
        let mut notes = self.notes();
        let due = notes.take_due(now);
        let next = notes.next();
        notes.plan(next, table.timers());
        due
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::key::LockKey;
    use crate::name::Label;
    use crate::namespace::Namespace;
    use crate::store::Limit;

    fn owner(namespace: &Namespace, key: &str) -> Arc<Owner> {
        let name = namespace.name(Label::Given("test".into()), LockKey::from(key));
        Arc::new(Owner::new(name.expect("a key"), String::new(), Limit::ALONE))
    }

    #[test]
    fn f30_a_note_costs_the_same_however_many_there_are() {
        const MANY: u64 = 100_000;
        let namespace = Namespace::new("").expect("no prefix");
        let mut notes = Notes::default();
        for n in 0..MANY {
            notes.add(&owner(&namespace, &n.to_string()), Moment::from_nanos(n));
        }
        let begun = Instant::now();
        for n in 0..MANY {
            assert_eq!(notes.next(), Some(Moment::from_nanos(n)));
            assert_eq!(notes.take_due(Moment::from_nanos(n)).len(), 1);
            // About a second in a debug build; looking through all of them each time takes many minutes.
            assert!(begun.elapsed().as_secs() < 60, "{n} of {MANY}");
        }
        assert!(notes.next().is_none());
    }

    #[test]
    fn the_last_release_of_a_lock_is_the_one_to_repeat() {
        let namespace = Namespace::new("").expect("no prefix");
        let at = Moment::from_nanos;
        let mut notes = Notes::default();
        let (first, last, other) =
            (owner(&namespace, "a"), owner(&namespace, "a"), owner(&namespace, "b"));
        notes.add(&first, at(5));
        notes.add(&other, at(6));
        notes.add(&last, at(7));
        assert_eq!(notes.next(), Some(at(6)));
        assert!(notes.take_due(at(5)).is_empty());
        let due = notes.take_due(at(9));
        assert!(due.len() == 2 && Arc::ptr_eq(&due[0], &other) && Arc::ptr_eq(&due[1], &last));
        assert!(notes.next().is_none() && notes.take_due(at(9)).is_empty());
    }
}
