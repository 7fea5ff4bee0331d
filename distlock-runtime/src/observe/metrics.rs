//! The feature `metrics`: what happens to locks, as metrics of the facade `metrics`.
//!
//! Handles are kept for each name, and only of the recorder that the whole process has: they are good
//! for ever. Which one that is is found out on a thread that can have none of its own; before, and where
//! a thread has a recorder of its own, in tests, handles are made for each event. A hold and a wait keep
//! the handles that they began with: a gauge comes down where it went up.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use super::handles::{OfLock, OfManager};
use super::recorder::{self, Recorder, with_recorder};
use super::register::{MOST_NAMES, REGISTERED};
use super::{Acquired, Command, LostReason, Refused, log, metric_table, reporter};
use crate::clock::Moment;
use crate::name::LockName;

pub use super::register::register;
pub use metric_table::BUCKETS;
#[doc(hidden)]
pub use metric_table::{Kind, METRICS, Metric};

const OTHER: &str = "other";

/// The metrics of one manager.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Shared>);

#[derive(Default)]
struct Shared {
    store: OnceLock<&'static str>,
    names: RwLock<HashSet<Box<str>>>,
    too_many: AtomicBool,
    /// Of the recorder of the process.
    manager: OnceLock<OfManager>,
    locks: RwLock<HashMap<Box<str>, Arc<OfLock>, BuildHasherDefault<NameHasher>>>,
    links: Mutex<Links>,
    /// The recorder has not been given them yet.
    links_changed: AtomicBool,
}

/// Quick, for some hundred names that a program gives its own locks.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many connections are up and down now, and how many the recorder has been given.
#[derive(Default)]
struct Links {
    now: [i64; 2],
    told: [i64; 2],
}

/// The handles of the recorder that has counted a lock as held: the end of the hold goes to the same one.
#[derive(Default)]
pub(super) struct Hold {
    handles: OnceLock<Arc<OfLock>>,
    held: AtomicBool,
}

/// A call that waits, until this is dropped.
#[derive(Default)]
pub(crate) struct InLine {
    _place: Option<Place>,
}

struct Place(Arc<OfLock>);

impl Drop for Place {
    fn drop(&mut self) {
        crate::shield::shield(|| self.0.waiting.decrement(1.0));
    }
}

impl Hold {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.held.load(Ordering::SeqCst)
    }

    fn take(&self) -> Option<&Arc<OfLock>> {
        let was_held = self.held.swap(false, Ordering::SeqCst);
        self.handles.get().filter(|_| was_held)
    }
}

impl Metrics {
    pub(super) fn started(&self, store: &'static str) {
        let _ = self.0.store.set(store);
        self.of_manager(|_| {});
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        recorder::current() != Recorder::None
    }

    /// Whether there may be a recorder, at less cost: every call and every connection looks whether there is.
    #[inline]
    pub(super) fn has_been_on(&self) -> bool {
        recorder::was_seen()
    }

    pub(super) fn waiting(&self, lock: &LockName) -> InLine {
        let handles = self.of_lock(lock);
        if let Some(handles) = &handles {
            handles.waiting.increment(1.0);
        }
        InLine { _place: handles.map(Place) }
    }

    pub(super) fn acquired(&self, lock: &LockName, hold: &Hold, event: &Acquired) {
        let Some(handles) = self.of_lock(lock) else { return };
        if event.index == 0 {
            handles.acquired.increment(1);
            handles.waited.record(event.waited.as_secs_f64());
        }
        if event.via != super::Via::Outer {
            handles.held.increment(1.0);
            let _ = hold.handles.set(handles);
            hold.held.store(true, Ordering::Release);
        }
    }

    pub(super) fn refused(&self, lock: &LockName, event: &Refused<'_>) {
        let Some(handles) = self.of_lock(lock) else { return };
        handles.refused(event.outcome()).increment(1);
        if event.error.is_some() {
            handles.waited_in_vain.record(event.waited.as_secs_f64());
        }
    }

    pub(super) fn ended(&self, hold: &Hold, since: Moment, held: Duration) {
        if let Some(handles) = hold.take() {
            handles.held.decrement(1.0);
            handles.hold.record(held.as_secs_f64());
            handles.is_not_oldest(since);
        }
    }

    pub(super) fn lost(&self, lock: &LockName, hold: &Hold, reason: LostReason) {
        let handles = hold.handles.get().cloned().or_else(|| self.of_lock(lock));
        if let Some(handles) = handles {
            handles.lost(reason).increment(1);
        }
    }

    pub(super) fn renewed(&self, lock: &LockName, ok: bool) {
        if let Some(handles) = self.of_lock(lock) {
            handles.renewed(ok).increment(1);
        }
    }

    pub(super) fn lasts(&self, hold: &Hold, since: Moment, age: Duration) {
        let Some(handles) = hold.handles.get().filter(|_| !hold.is_empty()) else { return };
        handles.is_held_since(since, age);
        // It may have ended meanwhile: one of the two sees the other.
        if hold.is_empty() {
            handles.is_not_oldest(since);
        }
    }

    pub(super) fn released_late(&self, lock: &LockName) {
        if let Some(handles) = self.of_lock(lock) {
            handles.late.increment(1);
        }
    }

    pub(super) fn command(&self, event: &Command) {
        self.of_manager(|handles| {
            if let Some(took) = handles.command(event.command, event.ok) {
                took.record(event.took.as_secs_f64());
            }
        });
    }

    /// A connection was made, lost, or is not wanted any more.
    #[cfg(any(feature = "redis", feature = "postgres", feature = "etcd", feature = "zookeeper"))]
    pub(super) fn link(&self, was_up: Option<bool>, is_up: Option<bool>) {
        {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
            for (link, by) in [(was_up, -1), (is_up, 1)] {
                if let Some(up) = link {
                    links.now[usize::from(up)] += by;
                }
            }
            self.0.links_changed.store(true, Ordering::Release);
        }
        self.of_manager(|_| {});
    }

    /// Handles of the recorder there is, if there is one.
    fn of_lock(&self, lock: &LockName) -> Option<Arc<OfLock>> {
        let name = lock.name();
        match recorder::current() {
            Recorder::None => None,
            Recorder::OfProcess => {
                let known = self.0.locks.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(handles) = known.get(name) {
                    return Some(handles.clone());
                }
                drop(known);
                Some(self.new_of_lock(name))
            }
            Recorder::OfThread => {
                let label = self.label(name);
                self.of_manager(|_| {});
                Some(Arc::new(with_recorder(|recorder| OfLock::register(recorder, label))))
            }
        }
    }

    fn new_of_lock(&self, name: &str) -> Arc<OfLock> {
        let label = self.label(name);
        self.of_manager(|_| {});
        let known = self.0.locks.read().unwrap_or_else(PoisonError::into_inner).get(label).cloned();
        // Nothing of the recorder's runs under the mutex.
        let new = known.unwrap_or_else(|| {
            Arc::new(with_recorder(|recorder| OfLock::register(recorder, label)))
        });
        let mut locks = self.0.locks.write().unwrap_or_else(PoisonError::into_inner);
        locks.entry(label.into()).or_insert(new).clone()
    }

    /// What a lock of that name is called in a label.
    fn label<'n>(&self, name: &'n str) -> &'n str {
        let names = self.0.names.read().unwrap_or_else(PoisonError::into_inner);
        if names.contains(name) {
            return name;
        }
        let is_full = names.len() >= MOST_NAMES;
        drop(names);
        if !is_full {
            let mut names = self.0.names.write().unwrap_or_else(PoisonError::into_inner);
            if names.len() < MOST_NAMES {
                names.insert(name.into());
                return name;
            }
        }
        if !self.0.too_many.swap(true, Ordering::Relaxed)
            && reporter::is_logged(tracing::Level::WARN)
        {
            reporter::report(|| log::too_many_names(MOST_NAMES));
        }
        OTHER
    }

    fn of_manager(&self, act: impl FnOnce(&OfManager)) {
        let register = || {
            let store = self.0.store.get().copied().unwrap_or_default();
            with_recorder(|recorder| OfManager::register(recorder, store))
        };
        match recorder::current() {
            Recorder::None => {}
            Recorder::OfThread => {
                let handles = register();
                let now = self.0.links.lock().unwrap_or_else(PoisonError::into_inner).now;
                handles.down.set(now[0] as f64);
                handles.up.set(now[1] as f64);
                act(&handles);
            }
            Recorder::OfProcess => {
                let handles = match self.0.manager.get() {
                    Some(handles) => handles,
                    None => {
                        let names = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
                        let names = names.clone();
                        with_recorder(|recorder| {
                            names.iter().for_each(|name| drop(OfLock::register(recorder, name)));
                        });
                        let new = register();
                        self.0.manager.get_or_init(|| new)
                    }
                };
                self.tell_links(handles);
                act(handles);
            }
        }
    }

    /// By how many: other managers of the process have connections, too.
    #[inline]
    fn tell_links(&self, handles: &OfManager) {
        if !self.0.links_changed.load(Ordering::Acquire) {
            return;
        }
        let by = {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
            let by = [links.now[0] - links.told[0], links.now[1] - links.told[1]];
            links.told = links.now;
            self.0.links_changed.store(false, Ordering::Release);
            by
        };
        for (gauge, by) in [&handles.down, &handles.up].into_iter().zip(by) {
            if by != 0 {
                gauge.increment(by as f64);
            }
        }
    }
}
