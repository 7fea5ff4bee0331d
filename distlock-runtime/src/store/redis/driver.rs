//! What moves a connection's bytes: driven by the engine, and by callers while they are few.
//!
//! The driver of a multiplexed connection is a future that takes commands from a channel, writes
//! them, reads answers and hands them out. The engine polls it, because it must go on whatever
//! becomes of callers, and because many commands are then written at once. But waking the
//! engine's thread to write a single command costs as much as the loopback's round trip. So while
//! few commands are under way, a caller polls the driver itself, once, right after it put its
//! command into the channel. Readiness stays with the engine's reactor, and so do answers.
//!
//! No wake-up is lost: whatever wakes the driver rings the doorbell, which wakes the engine, except
//! on a thread that is just about to poll the driver itself. If it then cannot, or if the bell
//! rings again while it polls, it wakes the engine after all.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};

/// With more than this under way the engine is awake anyway, and writing them together is cheaper.
const FEW: usize = 16;

/// What the client gives us to poll.
pub(crate) type Bytes = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's driver, shared by the engine and callers.
pub(crate) struct Driver {
    /// `None` once the connection has ended.
    bytes: Mutex<Option<Bytes>>,
    bell: Arc<Doorbell>,
    /// The bell as the driver knows it.
    waker: Waker,
    under_way: AtomicUsize,
}

impl Driver {
    pub(crate) fn new(bytes: Bytes) -> Self {
        let bell = Arc::new(Doorbell { engine: OnceLock::new() });
        let waker = Waker::from(bell.clone());
        Self { bytes: Mutex::new(Some(bytes)), bell, waker, under_way: AtomicUsize::new(0) }
    }

    /// The engine's part: resolves when the connection has ended.
    pub(crate) async fn run(&self) {
        poll_fn(|cx| {
            self.bell.belongs_to(cx.waker());
            let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            self.poll(&mut bytes)
        })
        .await;
    }

    /// Ends the connection: everything under way fails.
    pub(crate) fn stop(&self) {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(bytes);
    }

    /// Runs `call`, which sends a command over this connection and waits for its answer.
    pub(crate) async fn carry<T>(&self, mut call: Pin<&mut impl Future<Output = T>>) -> T {
        let _under_way = UnderWay::new(&self.under_way);
        let mut sent = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut sent, true) || self.under_way.load(Ordering::Relaxed) > FEW {
                return call.as_mut().poll(cx);
            }
            let (out, rang) = self.bell.hold_back(|| call.as_mut().poll(cx));
            if rang && !self.poll_here() {
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
        // Out of budget, or the end of the connection, which its supervisor must see.
        if rang || ended {
            self.bell.ring();
        }
        true
    }

    fn poll(&self, bytes: &mut Option<Bytes>) -> Poll<()> {
        let Some(running) = bytes else { return Poll::Ready(()) };
        let polled = running.as_mut().poll(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            *bytes = None;
        }
        polled
    }
}

/// Wakes the engine, unless the thread that rings is about to look after the driver itself.
struct Doorbell {
    /// The task that runs the driver, one for as long as the connection lives.
    engine: OnceLock<Waker>,
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
    }

    fn ring(&self) {
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

/// Counts a command that is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
