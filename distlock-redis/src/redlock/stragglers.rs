//! Replies that no call waits for any more, because a majority has decided without them.
//!
//! There are two for every lock, one to its votes and one to its release, and nearly all are only a moment late. A task
//! for each, woken on the engine's thread, costs a third of the time for the lock. So the next calls poll them in
//! passing, and only those that are still missing after a while become tasks.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

/// A reply that is still missing after this has passed twice becomes a task.
const WHILE: Duration = Duration::from_millis(10);
/// How many a call polls. That is more than a call leaves behind, so that they do not accumulate.
const AT_ONCE: usize = 3;

/// The rest of a request whose replies are late.
type Straggler = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The late replies of a quorum.
pub(super) struct Stragglers {
    handle: Handle,
    alarms: Arc<Alarms>,
    state: Mutex<StragglerQueue>,
}

/// The late replies, in the order in which they were left.
#[derive(Default)]
struct StragglerQueue {
    /// The late replies, each with the number of sweeps before it was left.
    works: VecDeque<(u64, Straggler)>,
    sweeps: u64,
    /// Whether another sweep is scheduled.
    is_swept: bool,
}

impl Stragglers {
    pub(super) fn new(handle: &Handle, alarms: &Arc<Alarms>) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { handle: handle.clone(), alarms: alarms.clone(), state })
    }

    /// Continues `work` in the background. It was polled before, or waits only for futures that were.
    pub(super) fn leave(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let mut work: Straggler = Box::pin(work);
        // The caller that it has woken so far is gone.
        if poll(&mut work).is_ready() {
            return;
        }
        let is_swept = {
            let mut state = self.state();
            let before = state.sweeps;
            state.works.push_back((before, work));
            std::mem::replace(&mut state.is_swept, true)
        };
        if !is_swept {
            self.handle.spawn(self.clone().sweep());
        }
    }

    /// Polls some of the late replies.
    pub(super) fn look(&self) {
        for _ in 0..AT_ONCE {
            // Polls and drops it while the mutex is free.
            let Some((since, mut work)) = self.state().works.pop_front() else { return };
            if poll(&mut work).is_pending() {
                self.state().works.push_back((since, work));
                return;
            }
        }
    }

    /// Makes tasks of those that are late for long, until none is left.
    async fn sweep(self: Arc<Self>) {
        loop {
            Alarm::at(&self.alarms, Clock::Boottime, Clock::Boottime.now().after(WHILE)).await;
            let mut old = Vec::new();
            let is_over = {
                let mut state = self.state();
                let now = state.sweeps;
                for (since, work) in std::mem::take(&mut state.works) {
                    if since < now {
                        old.push(work);
                    } else {
                        state.works.push_back((since, work));
                    }
                }
                state.sweeps += 1;
                state.is_swept = !state.works.is_empty();
                !state.is_swept
            };
            old.into_iter().for_each(|work| drop(self.handle.spawn(work)));
            if is_over {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, StragglerQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Polls it without waking a task, because it is polled again anyway.
fn poll(work: &mut Straggler) -> Poll<()> {
    pin!(unconstrained(work)).poll(&mut Context::from_waker(Waker::noop()))
}
