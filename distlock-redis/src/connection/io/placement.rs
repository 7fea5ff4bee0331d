//! Which side drives a connection at present: the engine, or a task on a caller's runtime.
//!
//! Nothing depends on the caller's runtime. While a caller's task drives, the engine checks it every few milliseconds.
//! A task loses the connection to the engine if it was woken and did not run, because its runtime is blocked, busy or
//! gone. It also loses the connection if it has nothing to do.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use tokio::runtime::Id;

use super::socket::SocketMover;

/// How often the engine checks the caller's task.
const ROUND: Duration = Duration::from_millis(10);
/// A task that was idle for more rounds than this loses the connection.
const IDLE_ROUNDS: u32 = 2;
/// If the engine itself sends this many commands in a round, it reads the replies better itself.
const ENGINE_COMMANDS: u64 = 8;
/// After a task did not run, no other task is started for this long, and twice as long the next time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A task that was spawned and has not run for this long is no longer waited for: others may be spawned.
const SPAWN_TIMEOUT: Duration = Duration::from_millis(100);

/// If one thread sends this many commands within [`FREQUENT`], its commands are frequent.
const SAMPLE: usize = 64;
const FREQUENT: Duration = Duration::from_millis(200);

/// The side that drives a connection.
pub(crate) struct Placement {
    mover: SocketMover,
    /// The task that drives on a caller's runtime.
    task: Mutex<Option<CallerTask>>,
    spawned: Mutex<Spawned>,
    /// Whether there is such a task.
    with_caller: AtomicBool,
    /// Whether that task was woken and has not run since.
    woken: AtomicBool,
    /// How often the task has run.
    polls: AtomicU64,
    /// The number of commands that the engine has sent.
    engine_commands: AtomicU64,
    /// Whether commands were left unwritten, to be written together.
    deferred: AtomicBool,
    /// No task drives before this time.
    not_before: AtomicU64,
    pause: Mutex<Duration>,
}

/// A caller's task, as others know it.
struct CallerTask {
    number: u64,
    waker: Waker,
}

/// The tasks that were spawned and have not run yet. On a runtime that does not run they never do.
#[derive(Default)]
struct Spawned {
    last: u64,
    /// Their numbers, at most one for each runtime.
    runtimes: Vec<(Id, u64)>,
    /// Until when the last one is waited for.
    until: Option<Moment>,
}

/// The commands that one thread sends.
#[derive(Default)]
pub(crate) struct Traffic {
    sent: AtomicUsize,
    /// When the last sample was complete, and how many commands the engine had sent by then.
    since: AtomicU64,
    engine_commands: AtomicU64,
}

impl Placement {
    pub(crate) fn new(mover: SocketMover) -> Self {
        Self {
            mover,
            task: Mutex::default(),
            spawned: Mutex::default(),
            with_caller: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            engine_commands: AtomicU64::new(0),
            deferred: AtomicBool::new(false),
            not_before: AtomicU64::new(0),
            pause: Mutex::default(),
        }
    }

    pub(crate) fn is_with_caller(&self) -> bool {
        self.with_caller.load(Ordering::Acquire)
    }

    pub(crate) fn count_engine_command(&self) {
        self.engine_commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn engine_commands(&self) -> u64 {
        self.engine_commands.load(Ordering::Relaxed)
    }

    /// Reserves a number for a task that is about to be spawned on this runtime. Returns `None` if there is a task, if
    /// one was spawned and may still come, or if the last one failed a short time ago.
    pub(crate) fn reserve(&self, runtime: impl FnOnce() -> Option<Id>) -> Option<u64> {
        if self.is_with_caller() {
            return None;
        }
        let now = Clock::Boottime.now();
        if now.as_nanos() < self.not_before.load(Ordering::Acquire) {
            return None;
        }
        let runtime = runtime()?;
        let mut spawned = self.spawned();
        let here = spawned.runtimes.iter().any(|(id, _)| *id == runtime);
        if here || spawned.until.is_some_and(|until| now < until) {
            return None;
        }
        spawned.last += 1;
        let number = spawned.last;
        spawned.runtimes.push((runtime, number));
        spawned.until = Some(now.after(SPAWN_TIMEOUT));
        Some(number)
    }

    /// Notes that a spawned task has run, or never will.
    pub(crate) fn cancel_reservation(&self, number: u64) {
        let mut spawned = self.spawned();
        spawned.runtimes.retain(|(_, own)| *own != number);
        if number == spawned.last {
            spawned.until = None;
        }
    }

    /// Wakes the caller's task to poll the driver. Returns `false` if there is none.
    pub(crate) fn wake_caller(&self) -> bool {
        // The waker is read under the mutex, because the engine polls the driver after it has removed a task. So either
        // that poll sees the cause of this wake-up, or this call sees that the task is gone.
        let waker = self.task().as_ref().map(|task| task.waker.clone());
        let Some(waker) = waker else { return false };
        self.woken.store(true, Ordering::Release);
        waker.wake();
        true
    }

    /// Notes that the next poll of the driver finds a command, and that others will follow.
    pub(crate) fn defer(&self) {
        self.deferred.store(true, Ordering::Relaxed);
    }

    /// Whether commands were left unwritten since the last call.
    pub(crate) fn take_deferred(&self) -> bool {
        self.deferred.swap(false, Ordering::Relaxed)
    }

    /// Gives the connection back to the engine, which must poll the driver afterwards.
    pub(crate) fn reclaim(&self) {
        let number = self.task().as_ref().map(|task| task.number);
        number.map(|number| self.leave(number));
    }

    /// Runs the engine's part while a caller's task drives. Resolves when no task drives, or at the end of the
    /// connection.
    pub(crate) async fn watch_caller(&self, has_ended: impl Fn() -> bool) {
        let over = || has_ended() || !self.is_with_caller();
        let begun = Clock::Boottime.now();
        let (mut polls_before, mut woken_before, mut idle) = (0, false, 0);
        let mut engine_commands = self.engine_commands();
        while !over() {
            let mut round = pin!(tokio::time::sleep(ROUND));
            poll_fn(|cx| if over() { Poll::Ready(()) } else { round.as_mut().poll(cx) }).await;
            let (polls, woken) =
                (self.polls.load(Ordering::Acquire), self.woken.load(Ordering::Acquire));
            let ran = polls != polls_before;
            idle = if ran { 0 } else { idle + 1 };
            if woken_before && woken && !ran {
                self.back_off(begun);
                self.reclaim();
            } else if idle > IDLE_ROUNDS
                || self.engine_commands() - engine_commands >= ENGINE_COMMANDS
            {
                self.reclaim();
            }
            engine_commands = self.engine_commands();
            (polls_before, woken_before) = (polls, woken);
        }
    }

    /// Notes that a task that has driven since `begun` did not run when it was woken.
    pub(crate) fn back_off(&self, begun: Moment) {
        let now = Clock::Boottime.now();
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let longer = if now.since(begun) < LONGEST_PAUSE { *pause * 2 } else { FIRST_PAUSE };
        *pause = longer.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.not_before.store(now.after(*pause).as_nanos(), Ordering::Release);
    }

    /// Lets a new task take the connection over, on its own runtime. Returns `false` if the socket could not be moved
    /// there: then the connection is lost. Returns `None` if another task has the connection, because a task that runs
    /// late may find the next one here.
    pub(crate) fn enter(&self, number: u64, waker: &Waker) -> Option<bool> {
        let new = waker.clone();
        let mut task = self.task();
        if task.is_some() {
            return None;
        }
        // From here on the engine does not poll. It is woken to notice that.
        self.with_caller.store(true, Ordering::Release);
        *task = Some(CallerTask { number, waker: new });
        Some(self.mover.move_to_this_runtime())
    }

    /// Begins a poll by the task with this number. Returns `false` if the connection was taken from it.
    pub(crate) fn begin_poll(&self, number: u64, waker: &Waker) -> bool {
        // Dropping the last waker of a task drops the task, which calls `leave`: that must not happen under the mutex.
        let mut new = waker.clone();
        match self.task().as_mut().filter(|task| task.number == number) {
            Some(task) => std::mem::swap(&mut task.waker, &mut new),
            None => return false,
        }
        self.woken.store(false, Ordering::Release);
        self.polls.fetch_add(1, Ordering::Release);
        true
    }

    /// Ends the driving by the task with this number. Returns `false` if it did not drive.
    pub(crate) fn leave(&self, number: u64) -> bool {
        let gone = {
            let mut task = self.task();
            if task.as_ref().is_none_or(|task| task.number != number) {
                return false;
            }
            self.mover.move_to_engine();
            self.with_caller.store(false, Ordering::Release);
            task.take()
        };
        // Wakes the task so that it runs, and ends.
        gone.into_iter().for_each(|gone| gone.waker.wake());
        true
    }

    fn task(&self) -> MutexGuard<'_, Option<CallerTask>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawned(&self) -> MutexGuard<'_, Spawned> {
        self.spawned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Traffic {
    /// Counts a command. Returns once per sample whether commands are frequent. They are not if the engine sends some
    /// as well, as it does while locks are waited for: then the engine must be woken for those replies anyway.
    pub(crate) fn is_frequent(&self, engine_commands: u64) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        if !(sent + 1).is_multiple_of(SAMPLE) {
            return false;
        }
        let now = Clock::Boottime.now();
        let since = Moment::from_nanos(self.since.swap(now.as_nanos(), Ordering::Relaxed));
        let before = self.engine_commands.swap(engine_commands, Ordering::Relaxed);
        // Saturates, because another thread that shares this part may be a moment ahead.
        let of_engine = engine_commands.saturating_sub(before);
        now.since(since) < FREQUENT && of_engine < SAMPLE as u64 / 8
    }
}
