//! The feature `metrics`: what happens to locks, as metrics of the facade `metrics`.
//!
//! Handles are kept for each name, and only of the recorder that the whole process has: they are good
//! for ever. Which one that is is found out on a thread that can have none of its own; before, and where
//! a thread has a recorder of its own, in tests, handles are made for each event. A hold and a wait keep
//! the handles that they began with: a gauge comes down where it went up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use super::handles::{OfLock, OfManager};
use super::kept::Kept;
use super::recorder::{self, with_recorder};
use super::register::{MOST_NAMES, REGISTERED};
use super::verb::Verb;
use super::{Acquired, LostReason, Refused, log, metric_table, reporter};
use crate::clock::Moment;
use crate::name::LockName;

pub(super) use super::recorder::Recorder;
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
    locks: Kept,
    links: Mutex<Links>,
    /// The recorder has not been given them yet.
    links_changed: AtomicBool,
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
    /// Bits, and where handles are kept that are of the recorder of the process.
    state: AtomicUsize,
    /// Others.
    own: OnceLock<Arc<OfLock>>,
}

/// It is counted as held.
const IS_HELD: usize = 1 << (usize::BITS - 1);
/// Its handles are kept.
const IS_KEPT: usize = IS_HELD >> 1;

/// A call that waits, until this is dropped.
#[derive(Default)]
pub(crate) struct InLine {
    place: Option<Place>,
}

impl InLine {
    /// Its end has to be counted as well.
    pub(crate) fn is_counted(&self) -> bool {
        self.place.is_some()
    }
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
        self.state.load(Ordering::SeqCst) & IS_HELD == 0
    }

    /// Whether it was held until now.
    #[inline]
    fn end(&self) -> bool {
        self.state.fetch_and(!IS_HELD, Ordering::SeqCst) & IS_HELD != 0
    }
}

/// The handles for an event.
enum Found<'a> {
    Kept(usize, &'a Arc<OfLock>),
    Own(Arc<OfLock>),
}

impl std::ops::Deref for Found<'_> {
    type Target = Arc<OfLock>;

    #[inline]
    fn deref(&self) -> &Arc<OfLock> {
        match self {
            Self::Kept(_, handles) => handles,
            Self::Own(handles) => handles,
        }
    }
}

impl Metrics {
    pub(super) fn started(&self, store: &'static str) {
        let _ = self.0.store.set(store);
        self.of_manager(recorder::current(), |_| {});
    }

    /// The recorder of this thread. To find it is most of what a call costs where there is none: it asks once.
    #[inline]
    pub(super) fn recorder(&self) -> Recorder {
        recorder::current()
    }

    /// Whether there may be a recorder, at less cost.
    #[inline]
    pub(super) fn has_been_on(&self) -> bool {
        recorder::was_seen()
    }

    pub(super) fn waiting(&self, lock: &LockName) -> InLine {
        let handles = self.of_lock(lock, recorder::current());
        if let Some(handles) = &handles {
            handles.waiting.increment(1.0);
        }
        InLine { place: handles.map(|handles| Place(handles.clone())) }
    }

    pub(super) fn acquired(
        &self,
        lock: &LockName,
        recorder: Recorder,
        hold: &Hold,
        event: &Acquired,
    ) {
        let Some(handles) = self.of_lock(lock, recorder) else { return };
        if event.index == 0 {
            handles.acquired.increment(1);
            handles.waited.record(event.waited.as_secs_f64());
        }
        if event.via == super::Via::Outer {
            return;
        }
        handles.held.increment(1.0);
        let kept = match handles {
            Found::Kept(place, _) => place | IS_KEPT,
            Found::Own(handles) => {
                let _ = hold.own.set(handles);
                0
            }
        };
        hold.state.store(kept | IS_HELD, Ordering::Release);
    }

    pub(super) fn refused(&self, lock: &LockName, event: &Refused<'_>) {
        self.with(lock, |handles| {
            handles.refused(event.outcome()).increment(1);
            if event.error.is_some() {
                handles.waited_in_vain.record(event.waited.as_secs_f64());
            }
        });
    }

    #[inline]
    pub(super) fn ended(&self, hold: &Hold, since: Moment, held: Duration) {
        if hold.end()
            && let Some(handles) = self.of_hold(hold)
        {
            handles.held.decrement(1.0);
            handles.hold.record(held.as_secs_f64());
            handles.is_not_oldest(since);
        }
    }

    /// The handles of a lock that is held, or was.
    #[inline]
    fn of_hold<'a>(&'a self, hold: &'a Hold) -> Option<&'a Arc<OfLock>> {
        let state = hold.state.load(Ordering::Acquire);
        match state & IS_KEPT {
            0 => hold.own.get(),
            _ => self.0.locks.at(state & !IS_KEPT & !IS_HELD),
        }
    }

    pub(super) fn lost(&self, lock: &LockName, hold: &Hold, reason: LostReason) {
        match self.of_hold(hold) {
            Some(handles) => handles.lost(reason).increment(1),
            None => self.with(lock, |handles| handles.lost(reason).increment(1)),
        }
    }

    pub(super) fn renewed(&self, lock: &LockName, ok: bool) {
        self.with(lock, |handles| handles.renewed(ok).increment(1));
    }

    pub(super) fn lasts(&self, hold: &Hold, since: Moment, age: Duration) {
        let Some(handles) = self.of_hold(hold).filter(|_| !hold.is_empty()) else { return };
        handles.is_held_since(since, age);
        // It may have ended meanwhile: one of the two sees the other.
        if hold.is_empty() {
            handles.is_not_oldest(since);
        }
    }

    pub(super) fn released_late(&self, lock: &LockName) {
        self.with(lock, |handles| handles.late.increment(1));
    }

    #[inline]
    pub(super) fn command(&self, recorder: Recorder, verb: Verb, took: Duration, ok: bool) {
        self.of_manager(recorder, |handles| handles.command(verb, ok).record(took.as_secs_f64()));
    }

    /// A connection was made, lost, or is not wanted any more.
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
        self.of_manager(recorder::current(), |_| {});
    }

    /// Acts on the handles of the recorder there is, if there is one.
    fn with(&self, lock: &LockName, act: impl FnOnce(&OfLock)) {
        if let Some(handles) = self.of_lock(lock, recorder::current()) {
            act(&handles);
        }
    }

    #[inline]
    fn of_lock(&self, lock: &LockName, recorder: Recorder) -> Option<Found<'_>> {
        let name = lock.name();
        match recorder {
            Recorder::None => None,
            Recorder::OfProcess => Some(match self.0.locks.find(name) {
                Some((place, handles)) => Found::Kept(place, handles),
                None => self.new_of_lock(name),
            }),
            Recorder::OfThread => {
                let label = self.label(name);
                self.of_manager(recorder, |_| {});
                let new = with_recorder(|recorder| OfLock::register(recorder, label));
                Some(Found::Own(Arc::new(new)))
            }
        }
    }

    #[cold]
    fn new_of_lock(&self, name: &str) -> Found<'_> {
        let label = self.label(name);
        self.of_manager(Recorder::OfProcess, |_| {});
        // Nothing of the recorder's runs under the mutex.
        let new = || self.0.locks.keep(with_recorder(|recorder| OfLock::register(recorder, label)));
        let (place, handles) = self.0.locks.find(label).unwrap_or_else(new);
        Found::Kept(place, handles)
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

    #[inline]
    fn of_manager(&self, recorder: Recorder, act: impl FnOnce(&OfManager)) {
        match recorder {
            Recorder::None => {}
            Recorder::OfThread => {
                let handles = self.new_of_manager();
                let now = self.0.links.lock().unwrap_or_else(PoisonError::into_inner).now;
                handles.down.set(now[0] as f64);
                handles.up.set(now[1] as f64);
                act(&handles);
            }
            Recorder::OfProcess => {
                let handles = self.0.manager.get().unwrap_or_else(|| self.first_of_manager());
                self.tell_links(handles);
                act(handles);
            }
        }
    }

    fn new_of_manager(&self) -> OfManager {
        let store = self.0.store.get().copied().unwrap_or_default();
        with_recorder(|recorder| OfManager::register(recorder, store))
    }

    #[cold]
    fn first_of_manager(&self) -> &OfManager {
        let names = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        with_recorder(|recorder| {
            names.iter().for_each(|name| drop(OfLock::register(recorder, name)));
        });
        let new = self.new_of_manager();
        self.0.manager.get_or_init(|| new)
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
