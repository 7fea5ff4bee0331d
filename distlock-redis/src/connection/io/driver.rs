//! A connection driven by the engine, and by callers for the moment in which they send.
//!
//! The engine polls the client library's driver, because it must go on whatever becomes of callers. A
//! caller polls it once, right after it has put a command into the channel, if few commands are under
//! way; while many are, one caller in sixteen does so for all of them.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::thread::ThreadId;

use distlock_core::catch_panic::shield;
use distlock_core::per_thread::PerThread;
use distlock_core::store::DrivenBy;
use tokio::task::coop::{has_budget_remaining, unconstrained};

use super::placement::Placement;

/// With more commands than this under way from one thread others will follow: writing them together
/// is cheaper.
const FEW: u32 = 8;
/// So many are written without waiting for more, so that the server has something to do.
const TOGETHER: usize = 16;
/// A command as it begins: in the high half one that was sent, in the low one that is under way.
const BEGINS: u64 = (1 << 32) | 1;

/// A connection's driver, shared by the engine and callers.
pub(crate) struct Driver {
    /// `None` once the connection has ended.
    client: Mutex<Option<ClientDriver>>,
    bell: Arc<Doorbell>,
    /// The bell as the client library's driver knows it.
    waker: Waker,
    ended: AtomicBool,
    /// How many commands were sent, and how many of them are under way ([`BEGINS`]), by thread.
    commands: PerThread<AtomicU64>,
    /// Commands that were sent since it was polled last.
    unwritten: AtomicUsize,
}

impl Driver {
    pub(crate) fn start(client: ClientDriver) -> Arc<dyn Carry> {
        Arc::new(Self::new(client, None))
    }

    /// With `placement` a task on a caller's runtime may drive it in the engine's place.
    pub(crate) fn new(client: ClientDriver, placement: Option<Arc<Placement>>) -> Self {
        let bell = Doorbell::new(placement);
        let waker = Waker::from(bell.clone());
        Self {
            client: Mutex::new(Some(client)),
            bell,
            waker,
            ended: AtomicBool::new(false),
            commands: PerThread::default(),
            unwritten: AtomicUsize::new(0),
        }
    }

    /// Drives it on the engine as long as that is `on_engine`; resolves at the end of the connection
    /// as well.
    pub(crate) async fn run_while(&self, on_engine: impl Fn() -> bool) {
        poll_fn(|cx| {
            self.bell.belongs_to(cx.waker());
            if self.has_ended() || !on_engine() {
                return Poll::Ready(());
            }
            self.poll()
        })
        .await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn is_on_engine(&self) -> bool {
        self.bell.is_on_engine()
    }

    pub(crate) fn ring_engine(&self) {
        self.bell.ring_engine();
    }

    /// Polls it, once no other thread does. Ready at the end of the connection.
    pub(crate) fn poll(&self) -> Poll<()> {
        self.poll_locked(&mut self.client())
    }

    /// Polls it on the thread of a caller that has sent a command; false if another thread does.
    fn poll_here(&self) -> bool {
        let mut client = match self.client.try_lock() {
            Ok(client) => client,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let (ended, rang) = self.bell.hold_back(|| self.poll_locked(&mut client).is_ready());
        drop(client);
        // At the end of the connection its supervisor must run; and one poll may not have been
        // enough. A caller's task that has used up tokio's budget for this poll does not even ring:
        // its wake-ups are put off until its thread has nothing to do, and it may block before that.
        if ended {
            self.bell.ring_engine();
        } else if rang || !has_budget_remaining() {
            self.bell.ring();
        }
        true
    }

    fn poll_locked(&self, client: &mut Option<ClientDriver>) -> Poll<()> {
        let Some(running) = client else { return Poll::Ready(()) };
        self.unwritten.store(0, Ordering::Relaxed);
        let mut cx = Context::from_waker(&self.waker);
        // It wakes the tasks whose answers have come. If one of their wakers panics, the client
        // library is left in an unknown state: the connection ends.
        let polled = shield(|| running.as_mut().poll(&mut cx)).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.ended.store(true, Ordering::Release);
            let ended = client.take();
            shield(|| drop(ended));
        }
        polled
    }

    /// From here on nothing polls it any more.
    pub(crate) fn set_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Drops the client's driver, with which everything under way fails.
    pub(crate) fn drop_client(&self) {
        let client = self.client().take();
        shield(|| drop(client));
    }

    fn client(&self) -> MutexGuard<'_, Option<ClientDriver>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carry for Driver {
    fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.run_while(|| true))
    }

    fn begin(&self) -> u8 {
        let (thread, commands) = self.commands.own();
        commands.fetch_add(BEGINS, Ordering::Relaxed);
        thread
    }

    fn send(&self, thread: u8, put: &mut dyn FnMut()) {
        let many = under_way(self.commands.part(thread).load(Ordering::Relaxed)) > FEW;
        if many && self.unwritten.fetch_add(1, Ordering::Relaxed) + 1 < TOGETHER {
            self.bell.defer();
            return put();
        }
        let ((), rang) = self.bell.hold_back(put);
        // With many under way, the first of them has rung.
        if (rang || many) && !self.poll_here() {
            self.bell.ring();
        }
    }

    fn end(&self, thread: u8) {
        // A thread that sees that it has ended sends behind it.
        self.commands.part(thread).fetch_sub(1, Ordering::Release);
    }

    fn sent(&self) -> u32 {
        let parts = self.commands.parts().map(|part| sent(part.load(Ordering::Acquire)));
        parts.fold(0, u32::wrapping_add)
    }

    fn sent_while_idle(&self) -> Option<u32> {
        // Its own first: to read another thread's takes the cache line from that one.
        if under_way(self.commands.own().1.load(Ordering::Relaxed)) != 0 {
            return None;
        }
        self.commands.parts().try_fold(0, |before: u32, part| {
            let commands = part.load(Ordering::Acquire);
            (under_way(commands) == 0).then(|| before.wrapping_add(sent(commands)))
        })
    }

    fn stop(&self) {
        self.set_ended();
        self.drop_client();
    }

    fn driven_by(&self) -> DrivenBy {
        DrivenBy::Manager
    }
}

fn sent(commands: u64) -> u32 {
    (commands >> 32) as u32
}

/// The low half.
fn under_way(commands: u64) -> u32 {
    commands as u32
}

/// The client library's driver: resolves when the connection has ended.
pub(crate) type ClientDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What moves the bytes of one connection.
pub(crate) trait Carry: Send + Sync {
    /// The engine's part: resolves when the connection has ended.
    fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// The current thread is about to send a command. Returns the thread's part of the counters.
    fn begin(&self) -> u8;

    /// Sees to it that the command is written which `put` puts into the client's channel. Calls `put`
    /// once, before it returns.
    fn send(&self, thread: u8, put: &mut dyn FnMut());

    /// The command was answered, or is not waited for any more.
    fn end(&self, thread: u8);

    /// How many commands were sent until now.
    fn sent(&self) -> u32;

    /// The same if none of them is under way: what is sent next is sent behind all of them.
    fn sent_while_idle(&self) -> Option<u32>;

    /// Ends the connection: everything under way fails.
    fn stop(&self);

    /// Whose runtime reads and writes at present.
    fn driven_by(&self) -> DrivenBy;
}

/// Runs `call`, which sends a command over this connection and waits for its answer.
///
/// Cancel safe: the command is under way once this was polled, and its answer is dropped if this is.
pub(crate) async fn carry<T>(
    carrier: &dyn Carry,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> T {
    let under_way = UnderWay { carrier, thread: carrier.begin() };
    let mut sent = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut sent, true) {
            return call.as_mut().poll(cx);
        }
        let mut out = Poll::Pending;
        // Whatever tokio's budget of the caller is: a command that is sent later must come behind.
        carrier.send(under_way.thread, &mut || out = pin!(unconstrained(call.as_mut())).poll(cx));
        out
    })
    .await
}

/// A command that is under way.
struct UnderWay<'a> {
    carrier: &'a dyn Carry,
    thread: u8,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.carrier.end(self.thread);
    }
}

/// The waker of a connection's driver.
pub(crate) struct Doorbell {
    /// The engine's task that runs the driver, one for as long as the connection lives.
    engine: OnceLock<Waker>,
    engine_thread: OnceLock<ThreadId>,
    /// Whether a task on a caller's runtime drives instead, if one may.
    placement: Option<Arc<Placement>>,
}

thread_local! {
    /// The bell this thread holds back, and whether it has rung.
    static HELD_BACK: Cell<Option<(usize, bool)>> = const { Cell::new(None) };
}

impl Doorbell {
    pub(crate) fn new(placement: Option<Arc<Placement>>) -> Arc<Self> {
        let (engine, engine_thread) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { engine, engine_thread, placement })
    }

    fn number(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// The current task and thread are the engine's.
    pub(crate) fn belongs_to(&self, waker: &Waker) {
        self.engine.get_or_init(|| waker.clone());
        self.engine_thread.get_or_init(|| thread::current().id());
    }

    pub(crate) fn is_on_engine(&self) -> bool {
        self.engine_thread.get().is_none_or(|engine| *engine == thread::current().id())
    }

    pub(crate) fn ring(&self) {
        if !self.placement.as_ref().is_some_and(|placement| placement.wake_caller()) {
            self.ring_engine();
        }
    }

    pub(crate) fn ring_engine(&self) {
        if let Some(engine) = self.engine.get() {
            engine.wake_by_ref();
        }
    }

    /// A command was put where the next poll of the driver finds it; others will follow.
    pub(crate) fn defer(&self) {
        if let Some(placement) = &self.placement {
            placement.defer();
        }
    }

    /// Runs `act` and says whether it would have rung.
    pub(crate) fn hold_back<T>(self: &Arc<Self>, act: impl FnOnce() -> T) -> (T, bool) {
        /// Also when `act` panics, or every later ring on this thread would be lost.
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
