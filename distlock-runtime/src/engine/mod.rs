//! One thread per manager, with a runtime of its own: it owns the connections, the time, and
//! whatever callers leave unfinished.
//!
//! Users' runtimes come and go, get blocked, and shut down while locks are held; nothing that must
//! happen may depend on them. What is hot stays with the callers: they send their own commands,
//! and a connection they use much is read on their runtime until the engine takes it back. The
//! engine renews, watches deadlines, and finishes releases.

pub(crate) mod janitor;
pub(crate) mod keeper;
pub(crate) mod schedule;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::error::{BackendKind, LockError};
use crate::lock::table::LockTable;
use crate::race::until;
use crate::store::{Fault, News, Store};
use schedule::{Due, Schedule};

/// Longest uninterrupted sleep of the engine. Tokio's timers do not count suspend: after a resume
/// the schedule is looked at again within this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// The engine of one manager. Dropping it lets the thread finish what is unfinished and end.
pub(crate) struct Engine {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) table: Arc<LockTable>,
    background: Background,
}

/// Where work goes that must not depend on a caller.
#[derive(Clone)]
pub(crate) struct Background {
    handle: Handle,
    shared: Arc<Shared>,
}

/// What the thread and its tasks know of each other.
#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    /// Releases that are not confirmed yet.
    unfinished: AtomicUsize,
    finished: Notify,
}

impl Background {
    /// Runs a release to its end, whatever becomes of the caller.
    pub(crate) fn finish(&self, release: impl Future<Output = ()> + Send + 'static) {
        let unfinished = Unfinished::new(self.shared.clone());
        self.handle.spawn(async move {
            release.await;
            drop(unfinished);
        });
    }

    /// Runs what nobody needs to wait for, for as long as the engine lives.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Runs what belongs to a store: on the engine's clock if it is `remote`, else on the caller's,
    /// who may have paused it.
    pub(crate) fn spawn_here(&self, remote: bool, work: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(own) if !remote => own.spawn(work),
            _ => self.handle.spawn(work),
        };
    }
}

impl Engine {
    /// Starts the thread. `store` is made from the handle of its runtime, where its tasks live;
    /// `patience` is how long an answer is waited for.
    pub(crate) fn start(
        patience: Duration,
        store: impl FnOnce(&Handle, &Arc<Schedule>) -> Arc<dyn Store>,
    ) -> Result<Self, LockError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| no_thread(&error))?;
        let schedule = Arc::new(Schedule::default());
        let background =
            Background { handle: runtime.handle().clone(), shared: Arc::new(Shared::default()) };
        let store = store(&background.handle, &schedule);
        let table = LockTable::new(store.clone(), schedule.clone(), background.clone(), patience);
        let heard = Arc::downgrade(&table);
        let ears = Box::new(move |news: News<'_>| {
            if let Some(table) = heard.upgrade() {
                table.hear(news);
            }
        });
        store.listen(table.process(), ears);
        let work = run(schedule.clone(), table.clone(), background.shared.clone());
        std::thread::Builder::new()
            .name("distlock".into())
            .spawn(move || runtime.block_on(work))
            .map_err(|error| no_thread(&error))?;
        Ok(Self { schedule, store, table, background })
    }

    pub(crate) fn clock(&self) -> Clock {
        self.table.clock()
    }

    /// How many releases are not confirmed yet.
    pub(crate) fn unfinished(&self) -> usize {
        self.background.shared.unfinished.load(Ordering::Acquire)
    }

    /// Resolves when no release is unconfirmed.
    pub(crate) async fn all_finished(&self) {
        loop {
            let mut finished = pin!(self.background.shared.finished.notified());
            finished.as_mut().enable();
            if self.unfinished() == 0 {
                return;
            }
            finished.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.background.shared.stopping.store(true, Ordering::Release);
        self.schedule.nudge();
    }
}

struct Unfinished(Arc<Shared>);

impl Unfinished {
    fn new(shared: Arc<Shared>) -> Self {
        shared.unfinished.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.unfinished.fetch_sub(1, Ordering::AcqRel);
        self.0.finished.notify_waiters();
    }
}

/// The engine's thread: wakes whoever is due, tends leases, and sleeps until the next entry.
async fn run(schedule: Arc<Schedule>, table: Arc<LockTable>, shared: Arc<Shared>) {
    let clock = table.clock();
    loop {
        let (due, next) = schedule.take_due(clock.now());
        let mut claims = Vec::new();
        for entry in due {
            match entry {
                Due::Wake(waker) => waker.wake(),
                Due::Tend(claim) => claims.push(claim),
                Due::Attend(lock) => table.attend(&lock),
                Due::Repair => table.repair(),
            }
        }
        keeper::tend(claims, &table);
        if shared.stopping.load(Ordering::Acquire) {
            if shared.unfinished.load(Ordering::Acquire) == 0 {
                return;
            }
            let done = until(shared.finished.notified(), tokio::time::sleep(LONGEST_SLEEP));
            until(done, schedule.changed()).await;
        } else if next == crate::clock::Moment::NEVER {
            schedule.changed().await;
        } else {
            let rest = next.since(clock.now()).min(LONGEST_SLEEP);
            until(schedule.changed(), tokio::time::sleep(rest)).await;
        }
    }
}

fn no_thread(error: &std::io::Error) -> LockError {
    let text = format!("the engine's thread could not be started: {error}");
    Fault::lasting(BackendKind::Other, text).into_error(None)
}
