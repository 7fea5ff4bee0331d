//! Answers that no call waits for any more: a majority has decided without them.
//!
//! For every lock there are two, one to its votes and one to its release, and nearly all are only a moment late. A
//! task for each, on the manager's thread and woken by its answer, cost a third of the lock. So they are
//! looked at in passing, by the next calls that ask the nodes something, and only what is still out after
//! a while becomes a task.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_core::alarm::{Alarm, Alarms};
use distlock_core::clock::Clock;
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;

/// What is still out when this has passed twice becomes a task.
const WHILE: Duration = Duration::from_millis(10);
/// At how many a call looks: more than it leaves itself, so that they do not gather.
const AT_ONCE: usize = 3;

type Straggler = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What goes on with late answers.
pub(super) struct Stragglers {
    handle: Handle,
    alarms: Arc<Alarms>,
    state: Mutex<StragglerQueue>,
}

#[derive(Default)]
struct StragglerQueue {
    /// With the sweep before which each was left.
    works: VecDeque<(u64, Straggler)>,
    sweeps: u64,
    /// Another sweep is on its way.
    is_swept: bool,
}

impl Stragglers {
    pub(super) fn new(handle: &Handle, alarms: &Arc<Alarms>) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { handle: handle.clone(), alarms: alarms.clone(), state })
    }

    /// Has `work` go on by itself. It was polled before, or waits for nothing but what was.
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

    /// Looks at some.
    pub(super) fn look(&self) {
        for _ in 0..AT_ONCE {
            // Polled, and dropped, while the mutex is free.
            let Some((since, mut work)) = self.state().works.pop_front() else { return };
            if poll(&mut work).is_pending() {
                self.state().works.push_back((since, work));
                return;
            }
        }
    }

    /// Makes tasks of those that have been there for long, until none is left.
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

/// It wakes no task: it is looked at again.
fn poll(work: &mut Straggler) -> Poll<()> {
    pin!(unconstrained(work)).poll(&mut Context::from_waker(Waker::noop()))
}
