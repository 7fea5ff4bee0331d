//! Releases that are sent a second time, at a known moment: see [`release`](super::release).
//!
//! A lock that was kept for its `min_hold`, or reserved for a process that died before it took it, would
//! otherwise become free unnoticed, with waiters in the queue. Only the last release of each lock is sent again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use distlock_core::clock::Moment;
use distlock_core::collections::shrink;
use distlock_core::name::{BuildStoredHasher, StoredName};
use distlock_core::store::owner::Owner;

use super::services::Due;
use crate::engine::timers::{Slot, Timers};

/// The releases of one manager that are to be sent again.
#[derive(Default)]
pub(super) struct Rechecks(Mutex<Agenda>);

/// The last release of each lock, and when it is due.
#[derive(Default)]
struct Agenda {
    of_lock: HashMap<StoredName, Key, BuildStoredHasher>,
    /// By the time they are due.
    in_order: BTreeMap<Key, Arc<Owner>>,
    added: u64,
    /// When the engine looks at them next.
    planned: Option<Slot>,
}

/// The time at which one is due, and a number to distinguish those that are due at the same time.
type Key = (Moment, u64);

impl Rechecks {
    /// Has the release of a token sent again at a moment.
    pub(super) fn add(&self, owner: &Arc<Owner>, at: Moment, timers: &Timers<Due>) {
        let mut agenda = self.agenda();
        if agenda.planned.is_none_or(|planned| at < planned.at()) {
            agenda.plan(Some(at), timers);
        }
        agenda.add(owner, at);
    }

    /// Takes out the tokens whose release is due, and plans the next look.
    pub(super) fn take_due(&self, now: Moment, timers: &Timers<Due>) -> Vec<Arc<Owner>> {
        let mut agenda = self.agenda();
        let due = agenda.take_due(now);
        let next = agenda.next();
        agenda.plan(next, timers);
        due
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agenda {
    fn plan(&mut self, at: Option<Moment>, timers: &Timers<Due>) {
        let slot = at.map(|at| timers.insert(at, Due::Recheck));
        if let Some(old) = std::mem::replace(&mut self.planned, slot) {
            timers.remove(old);
        }
    }

    fn add(&mut self, owner: &Arc<Owner>, at: Moment) {
        self.added += 1;
        let key = (at, self.added);
        let before = match self.of_lock.get_mut(owner.lock.stored()) {
            Some(known) => Some(std::mem::replace(known, key)),
            None => self.of_lock.insert(owner.lock.stored().clone(), key),
        };
        if let Some(before) = before {
            self.in_order.remove(&before);
        }
        self.in_order.insert(key, owner.clone());
    }

    fn take_due(&mut self, now: Moment) -> Vec<Arc<Owner>> {
        let mut due = Vec::new();
        while let Some(first) = self.in_order.first_entry().filter(|first| first.key().0 <= now) {
            let owner = first.remove();
            self.of_lock.remove(owner.lock.stored());
            due.push(owner);
        }
        shrink(&mut self.of_lock);
        due
    }

    fn next(&self) -> Option<Moment> {
        self.in_order.first_key_value().map(|((at, _), _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use distlock_core::key::LockKey;
    use distlock_core::name::Label;
    use distlock_core::store::Limit;

    use super::*;
    use crate::namespace::Namespace;

    fn owner(namespace: &Namespace, key: &str) -> Arc<Owner> {
        let name = namespace.name(Label::Given("test".into()), LockKey::from(key));
        Arc::new(Owner::new(name.expect("a key"), String::new(), Limit::ALONE))
    }

    #[test]
    fn f30_a_note_costs_the_same_however_many_there_are() {
        const MANY: u64 = 100_000;
        let namespace = Namespace::new("").expect("no prefix");
        let mut agenda = Agenda::default();
        for n in 0..MANY {
            agenda.add(&owner(&namespace, &n.to_string()), Moment::from_nanos(n));
        }
        let begun = Instant::now();
        for n in 0..MANY {
            assert_eq!(agenda.next(), Some(Moment::from_nanos(n)));
            assert_eq!(agenda.take_due(Moment::from_nanos(n)).len(), 1);
            // About a second in a debug build; looking through all of them each time takes many minutes.
            assert!(begun.elapsed().as_secs() < 60, "{n} of {MANY}");
        }
        assert!(agenda.next().is_none());
    }

    #[test]
    fn the_last_release_of_a_lock_is_the_one_to_send_again() {
        let namespace = Namespace::new("").expect("no prefix");
        let at = Moment::from_nanos;
        let mut agenda = Agenda::default();
        let (first, last, other) =
            (owner(&namespace, "a"), owner(&namespace, "a"), owner(&namespace, "b"));
        agenda.add(&first, at(5));
        agenda.add(&other, at(6));
        agenda.add(&last, at(7));
        assert_eq!(agenda.next(), Some(at(6)));
        assert!(agenda.take_due(at(5)).is_empty());
        let due = agenda.take_due(at(9));
        assert!(due.len() == 2 && Arc::ptr_eq(&due[0], &other) && Arc::ptr_eq(&due[1], &last));
        assert!(agenda.next().is_none() && agenda.take_due(at(9)).is_empty());
    }
}
