//! A connection's driver, which one side polls at a time.
//!
//! The client library's driver is a future that takes commands from a channel, writes them, reads
//! answers and hands them out. The engine polls it, because it must go on whatever becomes of
//! callers; a caller's task does while it has the connection, and a caller does once, right after it
//! has put its command into the channel.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::has_budget_remaining;

use super::doorbell::Doorbell;
use super::placement::Placement;
use super::portable_socket::SocketMover;
use super::traffic::Traffic;
use crate::home::Home;
use crate::shards::PerThread;
use crate::shield::shield;

/// The client library's driver: resolves when the connection has ended.
pub(in super::super) type Bytes = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection's driver, shared by the engine and callers.
pub(in super::super) struct Driver {
    /// `None` once the connection has ended.
    bytes: Mutex<Option<Bytes>>,
    pub(super) bell: Arc<Doorbell>,
    /// The bell as the client library's driver knows it.
    waker: Waker,
    pub(super) traffic: PerThread<Traffic>,
    ended: AtomicBool,
    home: Home,
    /// Commands that were sent since it was polled last.
    pub(super) unwritten: AtomicUsize,
}

impl Driver {
    pub(in super::super) fn new(bytes: Bytes, mover: SocketMover) -> Self {
        let bell = Doorbell::new(Placement::new(mover));
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
    pub(in super::super) async fn run(&self) {
        while !self.has_ended() {
            poll_fn(|cx| {
                self.bell.belongs_to(cx.waker());
                if self.bell.placement.is_with_caller() {
                    return Poll::Ready(());
                }
                self.poll(&mut self.bytes())
            })
            .await;
            self.bell.placement.watch_caller(|| self.has_ended()).await;
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

    pub(super) fn placement(&self) -> &Placement {
        &self.bell.placement
    }

    /// A task on a caller's runtime drives it.
    pub(in super::super) fn is_with_caller(&self) -> bool {
        self.bell.placement.is_with_caller()
    }

    /// The part of a caller's task: ready when the connection has ended.
    pub(super) fn poll_as_caller(&self) -> Poll<()> {
        // A forked child that goes on with its parent's runtime has this task, and the parent's
        // sockets: what it reads the parent would miss. Callers were checked before they came here.
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
    pub(in super::super) fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.placement.reclaim();
        let bytes = self.bytes().take();
        shield(|| drop(bytes));
    }

    /// Polls the driver on the thread of a caller who has sent a command; false if it is being polled
    /// elsewhere.
    pub(super) fn poll_here(&self) -> bool {
        let mut bytes = match self.bytes.try_lock() {
            Ok(bytes) => bytes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let (ended, rang) = self.bell.hold_back(|| self.poll(&mut bytes).is_ready());
        drop(bytes);
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

    fn poll(&self, bytes: &mut Option<Bytes>) -> Poll<()> {
        let Some(running) = bytes else { return Poll::Ready(()) };
        self.unwritten.store(0, Ordering::Relaxed);
        let mut cx = Context::from_waker(&self.waker);
        // It wakes the tasks whose answers have come. If one of their wakers panics, the client
        // library is left in an unknown state: the connection ends.
        let polled = shield(|| running.as_mut().poll(&mut cx)).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.ended.store(true, Ordering::Release);
            let ended = bytes.take();
            shield(|| drop(ended));
        }
        polled
    }
}
