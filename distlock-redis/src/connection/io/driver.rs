//! The driver of one connection: it polls the client library's future on the engine, in callers, or in a task on a
//! caller's runtime.
//!
//! The engine polls the future, because the connection must progress whatever callers do. A caller polls it once, right
//! after it has put a command into the channel, if few commands are in flight. While many are in flight, one caller in
//! sixteen polls for all of them.
//!
//! If callers of one runtime send many commands, a task on that runtime drives the connection instead. Then the thread
//! that reads a reply also runs the task that waits for it, and writes the next command of that task. With the engine
//! as the driver, two threads would wake each other for every few locks. Where processors are idle, that takes longer
//! than the lock itself.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::thread::ThreadId;

use distlock_core::catch_panic::shield;
use distlock_core::clock::Clock;
use distlock_core::fork_guard::ForkGuard;
use distlock_core::per_thread::PerThread;
use distlock_core::store::DrivenBy;
use tokio::runtime::Handle;
use tokio::task::coop::{has_budget_remaining, unconstrained};

use super::placement::{Placement, Traffic};
use super::socket::{SocketMover, watches_sockets};

/// With more commands than this in flight from one thread, others will follow, and writing them together is cheaper.
const FEW: u32 = 8;
/// The number of commands that are written without waiting for more, so that the server has something to do.
const TOGETHER: usize = 16;
/// The counter step of a command that begins: the high half counts sent commands, the low half those in flight.
const BEGINS: u64 = (1 << 32) | 1;

/// The client library's future of a connection. It resolves when the connection has ended.
pub(crate) type ClientDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The driver of a connection, shared by the engine and callers.
pub(crate) struct Driver {
    /// `None` once the connection has ended.
    client: Mutex<Option<ClientDriver>>,
    bell: Arc<Doorbell>,
    /// The bell, as a waker for the client library's future.
    waker: Waker,
    ended: AtomicBool,
    /// The numbers of commands that were sent and that are in flight ([`BEGINS`]), by thread.
    commands: PerThread<AtomicU64>,
    /// The number of commands that were sent since the last poll.
    unwritten: AtomicUsize,
    /// Present if a task on a caller's runtime may drive the connection.
    on_callers: Option<OnCallers>,
}

/// The state for driving a connection on a caller's runtime.
struct OnCallers {
    placement: Arc<Placement>,
    traffic: PerThread<Traffic>,
    home: ForkGuard,
    /// The driver itself, for the task.
    driver: Weak<Driver>,
}

/// The waker of a connection's driver.
struct Doorbell {
    /// The engine's task that runs the driver. It is the same for as long as the connection lives.
    engine: OnceLock<Waker>,
    engine_thread: OnceLock<ThreadId>,
    /// Tells whether a task on a caller's runtime drives instead, if one may.
    placement: Option<Arc<Placement>>,
}

/// The task that drives a connection on a caller's runtime.
struct DriverTask {
    driver: Weak<Driver>,
    number: u64,
    /// The task has taken the connection over.
    entered: bool,
    /// The task has let other tasks run first.
    yielded: bool,
}

/// A command in flight.
struct InFlight<'a> {
    driver: &'a Driver,
    thread: u8,
}

/// Runs `call`, which sends a command over this connection and waits for its reply.
///
/// Cancel safe: the first poll sends the command. If this future is dropped afterwards, the reply is dropped.
pub(crate) async fn send_over<T>(
    driver: &Driver,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> T {
    let in_flight = InFlight { driver, thread: driver.begin() };
    let mut sent = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut sent, true) {
            return call.as_mut().poll(cx);
        }
        let mut out = Poll::Pending;
        // Ignores tokio's budget of the caller: commands must reach the channel in the order of their first polls.
        driver.send(in_flight.thread, || out = pin!(unconstrained(call.as_mut())).poll(cx));
        out
    })
    .await
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // Releases, so that a thread that sees the end of this command sends after it.
        self.driver.commands.part(self.thread).fetch_sub(1, Ordering::Release);
    }
}

impl Driver {
    /// Makes a driver that runs on the engine, and in callers while they send.
    pub(crate) fn for_engine(client: ClientDriver) -> Arc<Self> {
        Arc::new(Self::new(client, None))
    }

    /// Makes a driver that may also run in a task on a caller's runtime. `mover` moves its socket there and back.
    pub(crate) fn for_callers(client: ClientDriver, mover: SocketMover) -> Arc<Self> {
        Arc::new_cyclic(|driver| {
            let on_callers = OnCallers {
                placement: Arc::new(Placement::new(mover)),
                traffic: PerThread::default(),
                home: ForkGuard::here(),
                driver: driver.clone(),
            };
            Self::new(client, Some(on_callers))
        })
    }

    fn new(client: ClientDriver, on_callers: Option<OnCallers>) -> Self {
        let placement = on_callers.as_ref().map(|on_callers| on_callers.placement.clone());
        let (engine, engine_thread) = (OnceLock::new(), OnceLock::new());
        let bell = Arc::new(Doorbell { engine, engine_thread, placement });
        let waker = Waker::from(bell.clone());
        Self {
            client: Mutex::new(Some(client)),
            bell,
            waker,
            ended: AtomicBool::new(false),
            commands: PerThread::default(),
            unwritten: AtomicUsize::new(0),
            on_callers,
        }
    }

    /// Runs the engine's part. Resolves when the connection has ended.
    pub(crate) async fn run(&self) {
        let Some(OnCallers { placement, .. }) = &self.on_callers else {
            return self.run_while(|| true).await;
        };
        while !self.has_ended() {
            self.run_while(|| !placement.is_with_caller()).await;
            placement.watch_caller(|| self.has_ended()).await;
        }
    }

    /// Drives the connection on the engine while it is `on_engine`. Resolves at the end of the connection as well.
    async fn run_while(&self, on_engine: impl Fn() -> bool) {
        poll_fn(|cx| {
            self.bell.belongs_to(cx.waker());
            if self.has_ended() || !on_engine() {
                return Poll::Ready(());
            }
            self.poll()
        })
        .await;
    }

    /// Ends the connection: everything in flight fails.
    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(OnCallers { placement, .. }) = &self.on_callers {
            placement.reclaim();
        }
        let client = self.client().take();
        shield(|| drop(client));
    }

    /// Returns whose runtime reads and writes at present.
    pub(crate) fn driven_by(&self) -> DrivenBy {
        match &self.on_callers {
            Some(OnCallers { placement, .. }) if placement.is_with_caller() => DrivenBy::Callers,
            _ => DrivenBy::Manager,
        }
    }

    /// Returns the number of commands that were sent until now.
    pub(crate) fn sent(&self) -> u32 {
        let parts = self.commands.parts().map(|part| sent(part.load(Ordering::Acquire)));
        parts.fold(0, u32::wrapping_add)
    }

    /// Returns the same if no command is in flight. The next command is then sent after all of them.
    pub(crate) fn sent_while_idle(&self) -> Option<u32> {
        // Looks at its own part first: reading another thread's part takes the cache line from that thread.
        if in_flight(self.commands.own().1.load(Ordering::Relaxed)) != 0 {
            return None;
        }
        self.commands.parts().try_fold(0, |before: u32, part| {
            let commands = part.load(Ordering::Acquire);
            (in_flight(commands) == 0).then(|| before.wrapping_add(sent(commands)))
        })
    }

    /// Counts a command that the current thread is about to send. Returns the thread's part of the counters.
    fn begin(&self) -> u8 {
        let (thread, commands) = self.commands.own();
        commands.fetch_add(BEGINS, Ordering::Relaxed);
        if let Some(OnCallers { placement, traffic, .. }) = &self.on_callers {
            if self.bell.is_on_engine() {
                placement.count_engine_command();
            } else if traffic.part(thread).is_frequent(placement.engine_commands()) {
                self.spawn_here();
            }
        }
        thread
    }

    /// Calls `put`, which puts a command into the client library's channel, and ensures that the command is written.
    fn send(&self, thread: u8, put: impl FnOnce()) {
        let many = in_flight(self.commands.part(thread).load(Ordering::Relaxed)) > FEW;
        if many && self.unwritten.fetch_add(1, Ordering::Relaxed) + 1 < TOGETHER {
            self.bell.defer();
            return put();
        }
        let ((), rang) = self.bell.hold_back(put);
        // With many in flight, the first of them has rung.
        if (rang || many) && !self.poll_here() {
            self.bell.ring();
        }
    }

    /// Starts a task that drives the connection on the current runtime, unless one does or soon will.
    fn spawn_here(&self) {
        let Some(OnCallers { placement, driver, .. }) = &self.on_callers else { return };
        let mut runtime = None;
        let current = || {
            runtime = Handle::try_current().ok();
            runtime.as_ref().map(Handle::id)
        };
        let number = placement.reserve(current);
        if let (Some(number), Some(runtime)) = (number, runtime) {
            let driver = driver.clone();
            // No mutex is held here: a runtime that has shut down drops the task at once.
            runtime.spawn(DriverTask { driver, number, entered: false, yielded: false });
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Polls the client library's future, once no other thread does. Ready at the end of the connection.
    fn poll(&self) -> Poll<()> {
        self.poll_locked(&mut self.client())
    }

    /// Polls on the thread of a caller that has sent a command. Returns `false` if another thread is polling.
    fn poll_here(&self) -> bool {
        let mut client = match self.client.try_lock() {
            Ok(client) => client,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let (ended, rang) = self.bell.hold_back(|| self.poll_locked(&mut client).is_ready());
        drop(client);
        // The supervisor must run at the end of the connection, and one poll may not have been enough.
        // A caller's task without tokio budget does not even ring: tokio delays its wake-ups until its thread has
        // nothing to do, and the thread may block before that.
        if ended {
            self.bell.ring_engine();
        } else if rang || !has_budget_remaining() {
            self.bell.ring();
        }
        true
    }

    /// Polls in a task on a caller's runtime. Ready at the end of the connection.
    fn poll_on_caller(&self, home: &ForkGuard) -> Poll<()> {
        // A forked child that keeps its parent's runtime has this task and the parent's sockets. If it read from them,
        // the parent would miss those bytes. Callers were checked before they came here.
        if !home.is_here() {
            return Poll::Pending;
        }
        let polled = self.poll();
        if polled.is_ready() {
            self.bell.ring_engine();
        }
        polled
    }

    fn poll_locked(&self, client: &mut Option<ClientDriver>) -> Poll<()> {
        let Some(running) = client else { return Poll::Ready(()) };
        self.unwritten.store(0, Ordering::Relaxed);
        let mut cx = Context::from_waker(&self.waker);
        // The poll wakes the tasks whose replies have arrived. If one of their wakers panics, the client library is
        // left in an unknown state, so the connection ends.
        let polled = shield(|| running.as_mut().poll(&mut cx)).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.ended.store(true, Ordering::Release);
            let ended = client.take();
            shield(|| drop(ended));
        }
        polled
    }

    fn client(&self) -> MutexGuard<'_, Option<ClientDriver>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the high half.
fn sent(commands: u64) -> u32 {
    (commands >> 32) as u32
}

/// Returns the low half.
fn in_flight(commands: u64) -> u32 {
    commands as u32
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = self.driver.upgrade() else { return Poll::Ready(()) };
        let Some(OnCallers { placement, home, .. }) = &driver.on_callers else {
            return Poll::Ready(());
        };
        if !self.entered {
            if !watches_sockets() {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
            self.entered = true;
            let moved = placement.enter(self.number, cx.waker());
            // Only after it has entered: otherwise callers would start another task on its runtime.
            placement.cancel_reservation(self.number);
            let Some(moved) = moved else { return Poll::Ready(()) };
            driver.bell.ring_engine();
            if !moved {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
        }
        if !placement.begin_poll(self.number, cx.waker()) {
            return Poll::Ready(());
        }
        // The other tasks that are ready now have commands to write, too.
        if !self.yielded && placement.take_deferred() {
            self.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = false;
        driver.poll_on_caller(home)
    }
}

impl Drop for DriverTask {
    /// Gives the connection back to the engine: the task has ended, or its runtime has shut down.
    fn drop(&mut self) {
        let Some(driver) = self.driver.upgrade() else { return };
        let Some(OnCallers { placement, home, .. }) = &driver.on_callers else { return };
        if !home.is_here() {
            return;
        }
        if !self.entered {
            placement.cancel_reservation(self.number);
        } else if placement.leave(self.number) {
            driver.bell.ring_engine();
        }
    }
}

thread_local! {
    /// The bell that this thread holds back, and whether it has rung.
    static HELD_BACK: Cell<Option<(usize, bool)>> = const { Cell::new(None) };
}

impl Doorbell {
    fn number(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Notes that the current task and thread are the engine's.
    fn belongs_to(&self, waker: &Waker) {
        self.engine.get_or_init(|| waker.clone());
        self.engine_thread.get_or_init(|| thread::current().id());
    }

    fn is_on_engine(&self) -> bool {
        self.engine_thread.get().is_none_or(|engine| *engine == thread::current().id())
    }

    fn ring(&self) {
        if !self.placement.as_ref().is_some_and(|placement| placement.wake_caller()) {
            self.ring_engine();
        }
    }

    fn ring_engine(&self) {
        if let Some(engine) = self.engine.get() {
            engine.wake_by_ref();
        }
    }

    /// Notes that the next poll of the driver finds a command, and that others will follow.
    fn defer(&self) {
        if let Some(placement) = &self.placement {
            placement.defer();
        }
    }

    /// Runs `act`. Returns whether the bell would have rung meanwhile.
    fn hold_back<T>(self: &Arc<Self>, act: impl FnOnce() -> T) -> (T, bool) {
        /// Restores the state even if `act` panics: otherwise every later ring on this thread would be lost.
        struct Restore(Option<(usize, bool)>);
        impl Drop for Restore {
            fn drop(&mut self) {
                HELD_BACK.set(self.0);
            }
        }
        let restore = Restore(HELD_BACK.replace(Some((self.number(), false))));
        let out = act();
        let rang = HELD_BACK.get().is_some_and(|(_, rang)| rang);
        drop(restore);
        (out, rang)
    }
}

impl Wake for Doorbell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match HELD_BACK.get() {
            Some((held, _)) if held == self.number() => HELD_BACK.set(Some((held, true))),
            _ => self.ring(),
        }
    }
}
