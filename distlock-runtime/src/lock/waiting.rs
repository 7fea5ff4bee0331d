//! Waiting in this process: first come, first served, and only the first one asks the store.
//!
//! Tasks that wait for the same lock stand in one line. The head looks at the store, woken by a
//! release of this process or by its own timer; the others cost nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::error::LockName;
use crate::store::Fault;

const SHARDS: usize = 16;

type Lines = HashMap<Box<str>, Line>;

#[derive(Default)]
struct Line {
    waiters: VecDeque<Arc<Waiter>>,
    /// Why the head's last look had no answer: those behind it know no better.
    trouble: Option<Fault>,
}

/// The lines of one manager.
#[derive(Default)]
pub(crate) struct Waiting {
    shards: [Mutex<Lines>; SHARDS],
    ids: AtomicU64,
    /// How many wait, over all locks: most of the time nobody does, and nothing is looked up.
    waiters: AtomicUsize,
}

struct Waiter {
    id: u64,
    head: AtomicBool,
    /// The lock may be free: look at once.
    hint: AtomicBool,
    /// It is the head now, or there is a hint.
    news: Notify,
}

impl Waiter {
    fn give_hint(&self) {
        self.hint.store(true, Ordering::Release);
        self.news.notify_one();
    }
}

impl Waiting {
    /// Somebody already waits for the lock here.
    pub(crate) fn has_line(&self, lock: &str) -> bool {
        self.anybody() && self.lines(lock).contains_key(lock)
    }

    fn anybody(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Takes the last place in the lock's line.
    pub(crate) fn join(self: &Arc<Self>, lock: &Arc<LockName>) -> Place {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let mut lines = self.lines(lock.stored());
        let line = lines.entry(lock.stored().into()).or_default();
        let head = AtomicBool::new(line.waiters.is_empty());
        let hint = AtomicBool::new(false);
        let waiter = Arc::new(Waiter { id, head, hint, news: Notify::new() });
        line.waiters.push_back(waiter.clone());
        drop(lines);
        Place { waiting: self.clone(), lock: lock.clone(), waiter, served: false }
    }

    /// The lock was released by this process: the head looks at once.
    pub(crate) fn freed(&self, lock: &str) {
        if !self.anybody() {
            return;
        }
        if let Some(head) = self.lines(lock).get(lock).and_then(|line| line.waiters.front()) {
            head.give_hint();
        }
    }

    fn leave(&self, lock: &str, waiter: &Waiter, served: bool) {
        let mut lines = self.lines(lock);
        let Some(line) = lines.get_mut(lock) else { return };
        if let Some(at) = line.waiters.iter().position(|other| other.id == waiter.id) {
            line.waiters.remove(at);
            self.waiters.fetch_sub(1, Ordering::SeqCst);
        }
        match line.waiters.front() {
            None => {
                lines.remove(lock);
            }
            Some(next) => {
                if next.head.swap(true, Ordering::AcqRel) {
                    return;
                }
                // One who leaves with the lock leaves nothing to look at yet; the next one only
                // sets its timer. One who gives up may have had a hint that nobody else heard.
                if served { next.news.notify_one() } else { next.give_hint() }
            }
        }
    }

    fn lines(&self, lock: &str) -> MutexGuard<'_, Lines> {
        // Any spread will do; the standard hasher's seed is not reachable without a map.
        let sum = lock.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        self.shards[sum % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a line; dropping it leaves the line.
pub(crate) struct Place {
    waiting: Arc<Waiting>,
    lock: Arc<LockName>,
    waiter: Arc<Waiter>,
    served: bool,
}

impl Place {
    pub(crate) fn is_head(&self) -> bool {
        self.waiter.head.load(Ordering::Acquire)
    }

    /// Resolves when this place has become the head, or has a hint.
    pub(crate) async fn news(&self) {
        self.waiter.news.notified().await;
    }

    /// Whether the lock may have become free since this was last asked.
    pub(crate) fn take_hint(&self) -> bool {
        self.waiter.hint.swap(false, Ordering::AcqRel)
    }

    /// Tells the line what the head's look came to.
    pub(crate) fn report(&self, trouble: Option<&Fault>) {
        if let Some(line) = self.waiting.lines(self.lock.stored()).get_mut(self.lock.stored()) {
            line.trouble = trouble.cloned();
        }
    }

    /// Why the head's last look had no answer, if it had none.
    pub(crate) fn trouble(&self) -> Option<Fault> {
        self.waiting.lines(self.lock.stored()).get(self.lock.stored())?.trouble.clone()
    }

    /// Leaves with the lock in hand.
    pub(crate) fn served(mut self) {
        self.served = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.leave(self.lock.stored(), &self.waiter, self.served);
    }
}
