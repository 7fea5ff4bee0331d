//! What moves a connection's bytes: driven by the engine, by a resident, and by callers.
//!
//! The driver of a multiplexed connection is a future that takes commands from a channel, writes
//! them, reads answers and hands them out. The engine polls it, because it must go on whatever
//! becomes of callers; while a runtime uses the connection often, a [resident](super::resident)
//! does so there. Waking either to write a single command costs as much as the loopback's round
//! trip, so a caller polls the driver itself, once, right after it put its command into the
//! channel: each does while few commands are under way, and one for several while many are.
//!
//! No wake-up is lost: whatever wakes the driver rings the doorbell, which wakes whoever drives,
//! except on a thread that is just about to poll the driver itself. If it then cannot, or if the
//! bell rings again while it polls, it rings after all.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use tokio::task::coop::{has_budget_remaining, unconstrained};

use super::resident::Residence;
use super::socket::Mover;
use crate::clock::{Clock, Moment};
use crate::home::Home;
use crate::shards::PerThread;
use crate::shield::shield;

/// With more than this under way from one thread others will follow: writing them together is
/// cheaper.
const FEW: usize = 8;
/// So many together are written without waiting for more, so that the server has something to do.
const TOGETHER: usize = 16;
/// So many commands from one thread in so short a time are worth a resident.
const SAMPLE: usize = 64;
const BRISK: Duration = Duration::from_millis(200);

/// What the client gives us to poll.
pub(crate) type Bytes = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's driver, shared by the engine and callers.
pub(crate) struct Driver {
    /// `None` once the connection has ended.
    bytes: Mutex<Option<Bytes>>,
    bell: Arc<Doorbell>,
    /// The bell as the driver knows it.
    waker: Waker,
    traffic: PerThread<Traffic>,
    ended: AtomicBool,
    home: Home,
    /// Commands since it was polled last.
    unwritten: AtomicUsize,
}

impl Driver {
    pub(crate) fn new(bytes: Bytes, mover: Mover) -> Self {
        let residence = Residence::new(mover);
        let (engine, engine_thread) = (OnceLock::new(), OnceLock::new());
        let bell = Arc::new(Doorbell { engine, engine_thread, residence });
        let waker = Waker::from(bell.clone());
        Self {
            bytes: Mutex::new(Some(bytes)),
            bell,
            waker,
            traffic: PerThread::default(),
            ended: AtomicBool::new(false),
            home: Home::here(),
            unwritten: AtomicUsize::new(0),
        }
    }

    /// The engine's part: resolves when the connection has ended.
    pub(crate) async fn run(&self) {
        while !self.has_ended() {
            poll_fn(|cx| {
                self.bell.belongs_to(cx.waker());
                if self.bell.residence.is_taken() {
                    return Poll::Ready(());
                }
                self.poll(&mut self.bytes())
            })
            .await;
            self.bell.residence.look_after(|| self.has_ended()).await;
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn bytes(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn home(&self) -> Home {
        self.home
    }

    pub(super) fn residence(&self) -> &Residence {
        &self.bell.residence
    }

    pub(super) fn ring_engine(&self) {
        self.bell.ring_engine();
    }

    /// The resident's part: ready when the connection has ended.
    pub(super) fn poll_as_resident(&self) -> Poll<()> {
        // A forked child that goes on with its parent's runtime has this task, and the parent's
        // sockets: what it reads the parent would miss. Callers were asked before they came here.
        if !self.home.is_here() {
            return Poll::Pending;
        }
        let polled = self.poll(&mut self.bytes());
        if polled.is_ready() {
            self.bell.ring_engine();
        }
        polled
    }

    /// Ends the connection: everything under way fails.
    pub(crate) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.residence.dismiss();
        let bytes = self.bytes().take();
        shield(|| drop(bytes));
    }

    /// Runs `call`, which sends a command over this connection and waits for its answer.
    pub(crate) async fn carry<T>(
        self: &Arc<Self>,
        mut call: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let (_, traffic) = self.traffic.own();
        let residence = &self.bell.residence;
        if self.bell.is_on_engine() {
            residence.note_command_of_engine();
        } else if traffic.is_brisk(residence.commands_of_engine()) {
            residence.invite(self);
        }
        let under_way = UnderWay::new(&traffic.under_way);
        let mut sent = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut sent, true) {
                return call.as_mut().poll(cx);
            }
            let many = under_way.now() > FEW;
            if many && self.unwritten.fetch_add(1, Ordering::Relaxed) + 1 < TOGETHER {
                self.bell.residence.leave_for_others();
                return send(call.as_mut(), cx);
            }
            let (out, rang) = self.bell.hold_back(|| send(call.as_mut(), cx));
            // With many, the first of them has rung.
            if (rang || many) && !self.poll_here() {
                self.bell.ring();
            }
            out
        })
        .await
    }

    /// Polls the driver on the caller's thread; false if somebody else is at it.
    fn poll_here(&self) -> bool {
        let mut bytes = match self.bytes.try_lock() {
            Ok(bytes) => bytes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let (ended, rang) = self.bell.hold_back(|| self.poll(&mut bytes).is_ready());
        drop(bytes);
        // The end of the connection, which its supervisor must see; or more than one poll can do. A
        // caller's task that has used up tokio's budget for this poll does not even ring: its
        // wake-ups are put off until its thread has nothing to do, and it may block before that.
        if ended {
            self.bell.ring_engine();
        } else if rang || !has_budget_remaining() {
            self.bell.ring();
        }
        true
    }

    fn poll(&self, bytes: &mut Option<Bytes>) -> Poll<()> {
        let Some(running) = bytes else { return Poll::Ready(()) };
        self.unwritten.store(0, Ordering::Relaxed);
        let mut cx = Context::from_waker(&self.waker);
        // It wakes those whose answers have come. If one of their wakers panics, the client is left
        // halfway: the next connection is a whole one.
        let polled = shield(|| running.as_mut().poll(&mut cx)).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.ended.store(true, Ordering::Release);
            let ended = bytes.take();
            shield(|| drop(ended));
        }
        polled
    }
}

/// The first poll of a call, which puts its command into the channel whatever tokio's budget of the
/// caller is: what is sent after it must come behind it.
fn send<T>(call: Pin<&mut impl Future<Output = T>>, cx: &mut Context<'_>) -> Poll<T> {
    pin!(unconstrained(call)).poll(cx)
}

/// Wakes whoever drives, unless the thread that rings is about to poll the driver itself.
struct Doorbell {
    /// The task that runs the driver, one for as long as the connection lives.
    engine: OnceLock<Waker>,
    engine_thread: OnceLock<ThreadId>,
    residence: Residence,
}

thread_local! {
    /// Which bell this thread holds back, and whether it has rung.
    static HELD_BACK: Cell<Option<(usize, bool)>> = const { Cell::new(None) };
}

impl Doorbell {
    fn number(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    fn belongs_to(&self, waker: &Waker) {
        self.engine.get_or_init(|| waker.clone());
        self.engine_thread.get_or_init(|| thread::current().id());
    }

    fn is_on_engine(&self) -> bool {
        self.engine_thread.get().is_none_or(|engine| *engine == thread::current().id())
    }

    fn ring(&self) {
        if !self.residence.ask() {
            self.ring_engine();
        }
    }

    fn ring_engine(&self) {
        if let Some(engine) = self.engine.get() {
            engine.wake_by_ref();
        }
    }

    /// Runs `act` and says whether it would have rung.
    fn hold_back<T>(self: &Arc<Self>, act: impl FnOnce() -> T) -> (T, bool) {
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

/// What one thread sends.
#[derive(Default)]
struct Traffic {
    under_way: AtomicUsize,
    sent: AtomicUsize,
    /// When the last round number of them was full, and how many the engine had sent then.
    since: AtomicU64,
    of_engine: AtomicU64,
}

impl Traffic {
    /// Notes a command, and says once in a while whether they are frequent. Not if the engine sends
    /// some, too, as it does while locks are waited for: it is the one to wake for their answers.
    fn is_brisk(&self, of_engine: u64) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        if !(sent + 1).is_multiple_of(SAMPLE) {
            return false;
        }
        let now = Clock::Boottime.now();
        let since = Moment::from_nanos(self.since.swap(now.as_nanos(), Ordering::Relaxed));
        // Zero where another thread with the same part was a moment ahead.
        let of_engine = of_engine.saturating_sub(self.of_engine.swap(of_engine, Ordering::Relaxed));
        now.since(since) < BRISK && of_engine < SAMPLE as u64 / 8
    }
}

/// Counts a command that is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
