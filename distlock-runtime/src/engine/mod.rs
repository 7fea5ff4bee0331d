//! One thread per manager, with a runtime of its own: it owns the connections, the time, and
//! whatever callers leave unfinished.
//!
//! Users' runtimes come and go, get blocked, and shut down while locks are held; nothing that must
//! happen may depend on them. The engine knows no locks and no store: it wakes the tasks whose
//! [alarms](alarm) have come due, hands what else is due to the layer above it, and counts the work
//! that has to be finished before its thread may end.

pub(crate) mod alarm;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use alarm::Alarms;
use distlock_core::catch_panic::shield;
use distlock_core::clock::{Clock, Moment};
use distlock_core::fork_guard::ForkGuard;
use distlock_core::select::until;
pub(crate) use distlock_core::timers;
use distlock_core::timers::{Plan, Timers};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Longest uninterrupted sleep of the engine where leases age on a clock that counts suspend. Tokio's
/// timers do not: after a resume what is due is looked for within this time.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// The engine of one manager; `D` is what it is to call the layer above for. Dropping it lets the
/// thread finish what is unfinished and end.
pub(crate) struct Engine<D> {
    alarms: Arc<Alarms>,
    timers: Arc<Timers<D>>,
    plan: Arc<Plan>,
    background: Background,
    /// It runs on a runtime that it was given.
    given: bool,
    home: ForkGuard,
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
    /// How much must still be finished.
    unfinished: AtomicUsize,
    finished: Notify,
}

impl Background {
    /// Runs work that must be finished, whatever becomes of the caller.
    pub(crate) fn finish(&self, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = self.unfinished();
        self.handle.spawn(async move {
            work.await;
            drop(unfinished);
        });
    }

    /// Counts as work that must be finished until it is dropped.
    pub(crate) fn unfinished(&self) -> Unfinished {
        Unfinished::new(self.shared.clone())
    }

    /// Runs work that may end with the engine.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// Runs what belongs to a store: on the engine's clock if it is `remote`, else on the caller's,
    /// which may be paused.
    pub(crate) fn spawn_here(&self, remote: bool, work: impl Future<Output = ()> + Send + 'static) {
        match Handle::try_current() {
            Ok(own) if !remote => own.spawn(work),
            _ => self.handle.spawn(work),
        };
    }
}

impl<D: Send + 'static> Engine<D> {
    /// Starts it; it does nothing before it is [set going](Self::run).
    pub(crate) fn start(runs_on: RunsOn) -> io::Result<(Self, Idle)> {
        let given = matches!(runs_on, RunsOn::Runtime(_));
        let (handle, idle) = match runs_on {
            RunsOn::Thread => {
                let thread = Thread::start()?;
                (thread.handle().clone(), Idle::Thread(thread))
            }
            RunsOn::Runtime(handle) => (handle.clone(), Idle::Runtime(handle)),
        };
        let plan = Arc::new(Plan::default());
        let engine = Self {
            alarms: Arc::new(Alarms::new(plan.clone())),
            timers: Arc::new(Timers::new(plan.clone())),
            plan,
            background: Background { handle, shared: Arc::new(Shared::default()) },
            given,
            home: ForkGuard::here(),
        };
        Ok((engine, idle))
    }

    /// Sets it going. Everything that is due on `clock` is given to `serve`, on the engine's thread.
    pub(crate) fn run(&self, idle: Idle, clock: Clock, serve: impl FnMut(Vec<D>) + Send + 'static) {
        let (alarms, timers) = (self.alarms.clone(), self.timers.clone());
        let (plan, shared) = (self.plan.clone(), self.background.shared.clone());
        let rounds = Rounds { alarms, timers, plan, clock, serve };
        let work: Work = Box::pin(rounds.run(shared));
        match idle {
            Idle::Thread(thread) => thread.run(work),
            Idle::Runtime(handle) => drop(handle.spawn(work)),
        }
    }

    /// Whether its thread sees that clock as callers do. One that is tokio's may be paused on theirs.
    pub(crate) fn reads(&self, clock: Clock) -> bool {
        self.given || matches!(clock, Clock::Boottime)
    }

    /// The runtime that it runs on.
    pub(crate) fn handle(&self) -> &Handle {
        &self.background.handle
    }

    pub(crate) fn alarms(&self) -> &Arc<Alarms> {
        &self.alarms
    }

    pub(crate) fn timers(&self) -> &Arc<Timers<D>> {
        &self.timers
    }

    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// How much is not finished yet.
    pub(crate) fn unfinished(&self) -> usize {
        self.background.shared.unfinished.load(Ordering::Acquire)
    }

    /// Resolves when everything is finished.
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

impl<D> Drop for Engine<D> {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        self.background.shared.stopping.store(true, Ordering::Release);
        self.plan.nudge();
    }
}

/// What waits to be set going.
pub(crate) enum Idle {
    Thread(Thread),
    Runtime(Handle),
}

/// Work that must be finished: the engine's thread does not end before this is dropped.
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

/// What the engine's thread does: in each round it sees to what is due, then it sleeps until the next
/// entry.
struct Rounds<D, S> {
    alarms: Arc<Alarms>,
    timers: Arc<Timers<D>>,
    plan: Arc<Plan>,
    clock: Clock,
    serve: S,
}

impl<D, S: FnMut(Vec<D>)> Rounds<D, S> {
    async fn run(mut self, shared: Arc<Shared>) {
        let longest_sleep = if self.clock.counts_suspend() { LONGEST_SLEEP } else { Duration::MAX };
        loop {
            let next = self.round();
            // Whatever is due again at once: the connections and all else on this thread have their turn.
            tokio::task::yield_now().await;
            if shared.stopping.load(Ordering::Acquire) {
                if shared.unfinished.load(Ordering::Acquire) == 0 {
                    return;
                }
                let done = until(shared.finished.notified(), tokio::time::sleep(LONGEST_SLEEP));
                until(done, self.plan.changed()).await;
            } else if next == Moment::NEVER {
                self.plan.changed().await;
            } else {
                let pause = next.since(self.clock.now()).min(longest_sleep);
                until(self.plan.changed(), tokio::time::sleep(pause)).await;
            }
        }
    }

    /// Sees to everything that is due, and says when the next entry is.
    fn round(&mut self) -> Moment {
        let now = self.clock.now();
        let (mut wakers, mut due) = (Vec::new(), Vec::new());
        let next = self.plan.renew(|| {
            let (alarm, timer);
            (wakers, alarm) = self.alarms.take_due(now);
            (due, timer) = self.timers.take_due(now);
            alarm.min(timer)
        });
        for waker in wakers {
            // A waker that panics must not keep the others from being woken.
            shield(|| waker.wake());
        }
        (self.serve)(due);
        next
    }
}

/// The work that a thread runs once, to its end.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A thread with a runtime of its own, which waits for its work. It ends when this is dropped without.
pub(crate) struct Thread {
    handle: Handle,
    work: Sender<Work>,
}

impl Thread {
    /// The runtime is made and dropped on the new thread: the caller's may be one of another runtime,
    /// where that would panic.
    fn start() -> io::Result<Self> {
        let (made, runtime) = channel();
        let (work, given) = channel::<Work>();
        std::thread::Builder::new().name("distlock".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let sent = made.send(Ok(runtime.handle().clone()));
                    if let (Ok(()), Ok(work)) = (sent, given.recv()) {
                        runtime.block_on(work);
                    }
                }
                Err(error) => drop(made.send(Err(error))),
            }
        })?;
        let handle = runtime.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { handle, work })
    }

    fn handle(&self) -> &Handle {
        &self.handle
    }

    fn run(self, work: Work) {
        // It waits for this, unless something is very wrong: then its runtime is gone, too.
        let _ = self.work.send(work);
    }
}
