//! The services that everything in `lock` uses: the store, its clock, the observers and the engine.
//!
//! Nothing here knows which locks are held. A [`LockTable`](super::table::LockTable) owns the services of its
//! manager, and whatever changes a line borrows them from it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::fork_guard::ForkGuard;
use distlock_core::name::LockName;
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::owner::Owner;
use distlock_core::store::{Fault, Op, Store};
use distlock_core::token::Identity;

use super::orphans::Orphans;
use crate::engine::alarm::Alarms;
use crate::engine::timers::Timers;
use crate::engine::{Background, Engine};
use crate::observe::Observers;

/// The services of one manager.
pub(crate) struct Services {
    pub(super) home: ForkGuard,
    /// The clock on which leases age.
    pub(super) clock: Clock,
    pub(super) store: Arc<dyn Store>,
    pub(super) observers: Observers,
    pub(super) background: Background,
    pub(super) timers: Arc<Timers<Due>>,
    pub(super) alarms: Arc<Alarms>,
    /// Whether the engine can read the clock on which leases age. It then looks at each line when something is
    /// due; otherwise the callers that wait do, see [`schedule`](super::schedule).
    pub(super) by_engine: bool,
    /// Issues owner tokens, and remembers them.
    pub(super) identity: Identity,
    pub(super) orphans: Orphans,
    /// The details of this process that others may learn; `None` if they may learn nothing.
    pub(super) itself: Option<ProcessInfo>,
    pub(super) command_timeout: Duration,
    /// Whether the store ends a lease that is not renewed.
    pub(super) needs_renewal: bool,
    /// How many numbers were given out to batches and claims.
    pub(super) numbers: AtomicU64,
    /// Whether the manager gives no more locks.
    pub(super) closed: AtomicBool,
}

/// Work for the engine, with the time at which it is due.
pub(crate) enum Due {
    /// Look at the line of this lock.
    Line(Arc<LockName>),
    /// Send the releases again that are due.
    Recheck,
    /// Release the tokens that only the store still knows.
    Orphans,
}

impl Services {
    pub(super) fn new(
        store: Arc<dyn Store>,
        engine: &Engine<Due>,
        command_timeout: Duration,
        (identity, identify): (Identity, bool),
        observers: Observers,
    ) -> Self {
        let (clock, needs_renewal) = (store.clock(), store.needs_renewal());
        Self {
            home: ForkGuard::here(),
            clock,
            store,
            observers,
            background: engine.background().clone(),
            timers: engine.timers().clone(),
            alarms: engine.alarms().clone(),
            by_engine: engine.reads(clock),
            itself: identify.then(|| ProcessInfo::new(identity.process())),
            identity,
            orphans: Orphans::default(),
            command_timeout,
            needs_renewal,
            numbers: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Notes that the last holder with this token is done, and that the lock must not be free before `end`.
    /// Call this before the token is retired (see `Try::undo`), and while its line still knows it.
    pub(super) fn keep_until(&self, owner: &Owner, end: Moment) {
        owner.keep_until(end);
        if let Some(number) = self.identity.number(&owner.token) {
            self.orphans.keep(number, end, self.clock.now());
        }
    }

    /// Sends what `op` has to send, here and now, and calls `then` with the answer when it is there.
    pub(super) fn follow<T: Send + 'static>(
        &self,
        mut op: Op<T>,
        then: impl FnOnce(Result<T, Fault>) + Send + 'static,
    ) {
        match Pin::new(&mut op).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => then(answer),
            Poll::Pending => {
                self.background.spawn_here(self.by_engine, async move { then(op.await) });
            }
        }
    }
}
