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
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::{BackendKind, LockError};
use crate::lock::table::LockTable;
use crate::race::until;
use crate::shield::shield;
use crate::store::{Fault, News, Store};
use schedule::{Due, Schedule};

/// Longest uninterrupted sleep of the engine where leases age on a clock that counts suspend. Tokio's
/// timers do not: after a resume the schedule is looked at again within this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// The engine of one manager. Dropping it lets the thread finish what is unfinished and end.
pub(crate) struct Engine {
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) table: Arc<LockTable>,
    background: Background,
}

/// Which runtime an engine runs on.
pub(crate) enum RunsOn {
    /// One of its own, on a thread of its own.
    Thread,
    /// One that it is given: all of it is in that one's time, which a test may have paused.
    #[cfg_attr(not(feature = "test-util"), allow(dead_code))]
    Runtime(Handle),
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

    /// Counts as a release that is not confirmed yet.
    pub(crate) fn unfinished(&self) -> Unfinished {
        Unfinished::new(self.shared.clone())
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
    /// Starts it. `store` is made from the handle of its runtime, where its tasks live; `patience` is
    /// how long an answer is waited for.
    pub(crate) fn start(
        runs_on: RunsOn,
        patience: Duration,
        store: impl FnOnce(&Handle, &Arc<Schedule>) -> Arc<dyn Store>,
    ) -> Result<Self, LockError> {
        let (handle, thread) = match runs_on {
            RunsOn::Thread => {
                let (handle, thread) = start_thread().map_err(|error| no_thread(&error))?;
                (handle, Some(thread))
            }
            RunsOn::Runtime(handle) => (handle, None),
        };
        let schedule = Arc::new(Schedule::default());
        let background = Background { handle, shared: Arc::new(Shared::default()) };
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
        match thread {
            // It waits for this, unless something is very wrong: then its runtime is gone, too.
            Some(thread) => drop(thread.send(Box::pin(work))),
            None => drop(background.handle.spawn(work)),
        }
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
        if !self.table.home().is_here() {
            return;
        }
        self.background.shared.stopping.store(true, Ordering::Release);
        self.schedule.nudge();
    }
}

/// A release that is not confirmed yet: the engine's thread does not end before it is dropped.
pub(crate) struct Unfinished(Arc<Shared>);

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
    let longest_sleep = if clock.counts_suspend() { LONGEST_SLEEP } else { Duration::MAX };
    loop {
        let next = round(&schedule, &table);
        // Whatever is due again at once: the connections and all else on this thread have their turn.
        tokio::task::yield_now().await;
        if shared.stopping.load(Ordering::Acquire) {
            if shared.unfinished.load(Ordering::Acquire) == 0 {
                return;
            }
            let done = until(shared.finished.notified(), tokio::time::sleep(LONGEST_SLEEP));
            until(done, schedule.changed()).await;
        } else if next == Moment::NEVER {
            schedule.changed().await;
        } else {
            let rest = next.since(clock.now()).min(longest_sleep);
            until(schedule.changed(), tokio::time::sleep(rest)).await;
        }
    }
}

/// Sees to everything that is due, each by itself: what goes wrong with one must not keep the others
/// from being seen to. Says when the next entry is due.
fn round(schedule: &Arc<Schedule>, table: &Arc<LockTable>) -> Moment {
    let (due, next) = schedule.take_due(table.clock().now());
    let mut claims = Vec::new();
    for entry in due {
        match entry {
            Due::Wake(waker) => drop(shield(|| waker.wake())),
            Due::Tend(claim) => claims.push(claim),
            Due::Attend(lock) => drop(shield(|| table.attend(&lock))),
            Due::Repair => drop(shield(|| table.repair())),
        }
    }
    keeper::tend(claims, table);
    next
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A thread with a runtime of its own, which runs the first work it is given. The runtime is made and
/// dropped there: the caller's thread may be one of another runtime, where that would panic.
fn start_thread() -> io::Result<(Handle, Sender<Work>)> {
    let (made, runtime) = channel();
    let (thread, work) = channel::<Work>();
    std::thread::Builder::new().name("distlock".into()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let given = made.send(Ok(runtime.handle().clone()));
                if let (Ok(()), Ok(work)) = (given, work.recv()) {
                    runtime.block_on(work);
                }
            }
            Err(error) => drop(made.send(Err(error))),
        }
    })?;
    let handle = runtime.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    Ok((handle, thread))
}

fn no_thread(error: &io::Error) -> LockError {
    let text = format!("the engine's thread could not be started: {error}");
    Fault::lasting(BackendKind::Other, text).into_error(None)
}
