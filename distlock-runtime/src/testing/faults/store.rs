//! The store between the engine and a real one.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::script::Fate;
use super::switches::State;
use crate::clock::{Clock, Moment};
use crate::engine::alarm::{Alarm, Alarms};
use crate::error::BackendKind;
use crate::itself::Itself;
use crate::name::LockName;
use crate::store::StoreStatus;
use crate::store::admin::StoreAdmin;
use crate::store::owner::Owner;
use crate::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Letter, Listener,
    Notification, Op, OpOn, Outage, ProcessDirectory, Records, Renewal, Renewed, Store, Term,
};

/// Hands operations on, as often as the script says, and breaks what the switches say.
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Delays must pass on whatever runtime an operation is polled.
    alarms: Arc<Alarms>,
    /// What is wrong with it, and perhaps with others as well: at least one.
    states: Vec<Arc<State>>,
    /// The first try that found it down; `None` while it is up.
    down_since: Mutex<Option<Moment>>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn Store>, alarms: Arc<Alarms>, states: Vec<Arc<State>>) -> Self {
        Self { inner, alarms, states, down_since: Mutex::default() }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.states[0].clone()
    }

    fn down_since(&self) -> MutexGuard<'_, Option<Moment>> {
        self.down_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_busy(&self) -> bool {
        self.states.iter().any(|state| state.is_busy())
    }

    /// Carries an operation out as the script says. With its first poll the first delivery is under
    /// way, as the order of operations demands.
    async fn deliver<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        answer_by: Moment,
        mut operation: impl FnMut() -> F,
    ) -> Result<T, Fault> {
        let Self { states, .. } = self;
        let now = self.inner.clock().now();
        let is_down = is_down(states);
        {
            let mut since = self.down_since();
            *since = is_down.then(|| since.unwrap_or(now));
        }
        if is_down {
            return Err(switched_off());
        }
        if let Some(kind) = states.iter().find_map(|state| state.refusal()) {
            return Err(Fault::lasting(kind, "refused, as the test wants it"));
        }
        let fate = states.iter().find_map(|state| state.fate()).unwrap_or(Fate::FAITHFUL);
        let mut answer = operation().await;
        for _ in 1..fate.deliveries {
            answer = operation().await;
        }
        let delay: Duration = states.iter().map(|state| state.delay()).sum();
        let late = delay.saturating_add(fate.delay);
        if !late.is_zero() && !self.comes_by(answer_by, late).await {
            return Err(Fault::timed_out());
        }
        if fate.lost {
            return Err(Fault::passing(BackendKind::Unreachable, "the answer was lost"));
        }
        answer
    }

    /// Waits for an answer that is so late; false if the caller has stopped waiting when it comes.
    async fn comes_by(&self, answer_by: Moment, late: Duration) -> bool {
        let clock = self.inner.clock();
        let at = clock.now().after(late);
        Alarm::at(&self.alarms, clock, at.min(answer_by)).await;
        at <= answer_by
    }
}

fn switched_off() -> Fault {
    Fault::passing(BackendKind::Unreachable, "switched off")
}

fn is_down(states: &[Arc<State>]) -> bool {
    states.iter().any(|state| state.is_down())
}

impl StoreAdmin for FaultyStore {}

impl Store for FaultyStore {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn needs_renewal(&self) -> bool {
        self.inner.needs_renewal()
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(
            async move { self.deliver(answer_by, || self.inner.clone().ready(answer_by)).await },
        )
    }

    fn is_notified(&self, lock: &LockName) -> bool {
        self.inner.is_notified(lock)
    }

    fn first_look(&self) -> Duration {
        self.inner.first_look()
    }

    fn outage(&self) -> Option<Outage> {
        if !is_down(&self.states) {
            return self.inner.outage();
        }
        let since = *self.down_since();
        since.map(|since| Outage { since, fault: switched_off() })
    }

    fn listen(&self, process: &str, listener: Listener) {
        let states = self.states.clone();
        let notified = move |notification: Notification<'_>| {
            if !is_down(&states) {
                listener(notification);
            }
        };
        self.inner.listen(process, Box::new(notified));
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move {
            if self.is_busy() {
                return self
                    .deliver(answer_by, async || Ok(Answer::Taken { remaining: None }))
                    .await;
            }
            self.deliver(answer_by, || self.inner.try_acquire(attempt.clone(), answer_by)).await
        })
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move {
            if self.is_busy() {
                let ticket = entry.ticket;
                let queued = async || {
                    Ok(Entered::Queued {
                        ticket,
                        remaining: None,
                        rank: 0,
                        behind: 0,
                        added: false,
                    })
                };
                return self.deliver(answer_by, queued).await;
            }
            self.deliver(answer_by, || self.inner.clone().enter(entry.clone(), answer_by)).await
        })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move {
            self.deliver(answer_by, || self.inner.clone().release(owner.clone(), keep, answer_by))
                .await
        })
    }

    fn lane(&self, lock: &LockName) -> usize {
        self.inner.lane(lock)
    }

    fn has_many_counters(&self) -> bool {
        self.inner.has_many_counters()
    }

    fn lift(self: Arc<Self>, locks: Vec<Arc<LockName>>, fence: u64, answer_by: Moment) -> Op<()> {
        self.inner.clone().lift(locks, fence, answer_by)
    }

    fn part(&self, lock: &LockName) -> usize {
        self.inner.part(lock)
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move {
            let exchanged = || self.inner.clone().exchange(exchange.clone(), answer_by);
            self.deliver(answer_by, exchanged).await
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            self.deliver(Moment::NEVER, || {
                self.states[0].count_renewal();
                self.inner.clone().renew(renewals.clone())
            })
            .await
        })
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(
            async move { self.deliver(answer_by, || self.inner.clone().ping(answer_by)).await },
        )
    }

    fn begin_term(&self, owner: &Owner, term: Term) {
        self.inner.begin_term(owner, term);
    }

    fn status(&self) -> StoreStatus {
        let connected = !is_down(&self.states);
        let status = self.inner.status();
        StoreStatus { connected: connected && status.connected, ..status }
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            self.deliver(answer_by, || self.inner.clone().inspect(lock.clone(), answer_by)).await
        })
    }
}

impl ProcessDirectory for FaultyStore {
    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        self.inner.clone().tell_taken(lock, token);
    }

    fn introduce(&self, itself: &Itself) {
        self.inner.introduce(itself);
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        self.inner.clone().take_leave(process, answer_by)
    }

    fn tell(self: Arc<Self>, letters: Vec<Letter>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move {
            self.deliver(answer_by, || self.inner.clone().tell(letters.clone(), answer_by)).await
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        self.inner.clone().recorded(prefix, answer_by)
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        self.inner.clone().records(prefix, processes, answer_by)
    }
}
