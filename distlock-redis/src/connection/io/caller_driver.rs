//! A connection that a task on a caller's runtime drives while callers there use it often.
//!
//! An answer then wakes a task of the thread that read it, and what tasks send next is written by
//! that thread as well. With the engine as the driver every few locks cost two threads that wake each
//! other, which takes longer than the lock where processors are idle.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use distlock_core::catch_panic::Unable;
use distlock_core::clock::{Clock, Moment};
use distlock_core::fork_guard::Home;
use distlock_core::per_thread::PerThread;
use distlock_core::store::DrivenBy;
use tokio::runtime::{Handle, Id};

use super::driver::{Carry, ClientDriver, Driver};
use super::placement::Placement;
use super::socket::SocketMover;

/// A driver that changes runtime with its socket.
pub(crate) struct CallerDriver {
    driver: Driver,
    placement: Arc<Placement>,
    traffic: PerThread<Traffic>,
    home: Home,
    /// For the task on a caller's runtime.
    own: Weak<Self>,
}

impl CallerDriver {
    /// `mover` moves the socket of this driver.
    pub(crate) fn start(client: ClientDriver, mover: SocketMover) -> Arc<dyn Carry> {
        let placement = Arc::new(Placement::new(mover));
        Arc::new_cyclic(|own| Self {
            driver: Driver::new(client, Some(placement.clone())),
            placement,
            traffic: PerThread::default(),
            home: Home::here(),
            own: own.clone(),
        })
    }

    /// Has it driven on the current runtime, unless it is on one or soon will be.
    fn spawn_here(&self) {
        let mut runtime = None;
        let current = || {
            runtime = Handle::try_current().ok();
            runtime.as_ref().map(Handle::id)
        };
        let number = self.placement.reserve(current);
        if let (Some(number), Some(runtime)) = (number, runtime) {
            let connection = self.own.clone();
            // Under no mutex: a runtime that has shut down drops the task at once.
            runtime.spawn(DriverTask { connection, number, entered: false, yielded: false });
        }
    }

    /// The task's part: ready at the end of the connection.
    fn poll_on_caller(&self) -> Poll<()> {
        // A forked child that goes on with its parent's runtime has this task, and the parent's
        // sockets: what it reads the parent would miss. Callers were checked before they came here.
        if !self.home.is_here() {
            return Poll::Pending;
        }
        let polled = self.driver.poll();
        if polled.is_ready() {
            self.driver.ring_engine();
        }
        polled
    }
}

impl Carry for CallerDriver {
    fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            while !self.driver.has_ended() {
                self.driver.run_while(|| !self.placement.is_with_caller()).await;
                self.placement.watch_caller(|| self.driver.has_ended()).await;
            }
        })
    }

    fn begin(&self) -> u8 {
        let thread = self.driver.begin();
        if self.driver.is_on_engine() {
            self.placement.count_engine_command();
        } else if self.traffic.part(thread).is_brisk(self.placement.engine_commands()) {
            self.spawn_here();
        }
        thread
    }

    fn send(&self, thread: u8, put: &mut dyn FnMut()) {
        self.driver.send(thread, put);
    }

    fn end(&self, thread: u8) {
        self.driver.end(thread);
    }

    fn sent(&self) -> u32 {
        self.driver.sent()
    }

    fn sent_while_idle(&self) -> Option<u32> {
        self.driver.sent_while_idle()
    }

    fn stop(&self) {
        self.driver.set_ended();
        self.placement.reclaim();
        self.driver.drop_client();
    }

    fn driven_by(&self) -> DrivenBy {
        if self.placement.is_with_caller() { DrivenBy::Callers } else { DrivenBy::Manager }
    }
}

/// The task on a caller's runtime.
struct DriverTask {
    connection: Weak<CallerDriver>,
    number: u64,
    /// It has the connection.
    entered: bool,
    /// It has let other tasks run first.
    yielded: bool,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(connection) = self.connection.upgrade() else { return Poll::Ready(()) };
        let placement = &connection.placement;
        if !self.entered {
            if !watches_sockets() {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
            self.entered = true;
            let moved = placement.enter(self.number, cx.waker());
            // Only once it has entered, or its runtime would be asked for another task.
            placement.cancel_reservation(self.number);
            let Some(moved) = moved else { return Poll::Ready(()) };
            connection.driver.ring_engine();
            if !moved {
                placement.back_off(Clock::Boottime.now());
                return Poll::Ready(());
            }
        }
        if !placement.begin_poll(self.number, cx.waker()) {
            return Poll::Ready(());
        }
        // The tasks that are ready now have commands to write, too.
        if !self.yielded && placement.take_deferred() {
            self.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = false;
        connection.poll_on_caller()
    }
}

impl Drop for DriverTask {
    /// Gives the connection back to the engine: the task has ended, or its runtime has shut down.
    fn drop(&mut self) {
        let Some(connection) = self.connection.upgrade() else { return };
        if !connection.home.is_here() {
            return;
        }
        if !self.entered {
            connection.placement.cancel_reservation(self.number);
        } else if connection.placement.leave(self.number) {
            connection.driver.ring_engine();
        }
    }
}

/// Whether the runtime this is called on watches sockets.
fn watches_sockets() -> bool {
    static UNABLE: Unable<Id> = Unable::new();
    let Ok(here) = Handle::try_current() else { return false };
    // Without unwinding a runtime without I/O would end the program: then none is tried.
    cfg!(panic = "unwind")
        && UNABLE.attempt(here.id(), watch_one).is_some_and(|watched| watched.is_ok())
}

#[cfg(unix)]
fn watch_one() -> io::Result<()> {
    tokio::net::UnixDatagram::unbound().map(drop)
}

#[cfg(not(unix))]
fn watch_one() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket).map(drop)
}

/// This many commands from one thread within this time are frequent.
const SAMPLE: usize = 64;
const BRISK: Duration = Duration::from_millis(200);

/// What one thread sends.
#[derive(Default)]
pub(crate) struct Traffic {
    sent: AtomicUsize,
    /// When the last sample was full, and how many commands the engine had sent then.
    since: AtomicU64,
    engine_commands: AtomicU64,
}

impl Traffic {
    /// Counts a command, and says once per sample whether they are frequent. Not if the engine sends
    /// some as well, as it does while locks are waited for: it is the one to wake for their answers.
    pub(crate) fn is_brisk(&self, engine_commands: u64) -> bool {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        if !(sent + 1).is_multiple_of(SAMPLE) {
            return false;
        }
        let now = Clock::Boottime.now();
        let since = Moment::from_nanos(self.since.swap(now.as_nanos(), Ordering::Relaxed));
        let before = self.engine_commands.swap(engine_commands, Ordering::Relaxed);
        // Saturating: another thread that shares this part may have been a moment ahead.
        let of_engine = engine_commands.saturating_sub(before);
        now.since(since) < BRISK && of_engine < SAMPLE as u64 / 8
    }
}
