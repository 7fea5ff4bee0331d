//! Stores that fail on demand, for tests of code that uses locks, and of the locks themselves.
//!
//! A real server is slow to break, and hard to break at one exact moment. Here the test breaks the store with
//! [`Switches`], or with a seeded [`Script`] that delivers commands more than once and loses or delays answers, the same
//! way every time.
//!
//! ```
//! use distlock_runtime::testing::faults::Faults;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let (manager, switches) = Faults::in_memory().start()?;
//! switches.busy(true);
//! assert!(manager.lock("k").acquire().await.is_err_and(|error| error.is_busy()));
//! switches.busy(false);
//! manager.lock("k").acquire().await?.release().await?;
//! # Ok::<_, distlock_runtime::LockError>(())
//! # }).unwrap();
//! ```

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::key::LockKey;
use distlock_core::name::{Label, LockName};
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::admin::StoreAdmin;
use distlock_core::store::owner::Owner;
use distlock_core::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Listener,
    Notification, Op, OpOn, Outage, ProcessDirectory, ProcessMessage, Records, Renewal, Renewed,
    Store, StoreStatus, Term,
};

use crate::builder::LockManagerBuilder;
use crate::engine::RunsOn;
use crate::engine::alarm::{Alarm, Alarms};
use crate::error::{BackendKind, IntoLockError, LockError};
use crate::lock::guard::LockGuard;
use crate::manager::LockManager;
use crate::memory::MemoryStore;
use crate::namespace::Namespace;

/// Makes a [`LockManager`] whose store fails on demand.
#[derive(Debug)]
#[must_use = "nothing is made before `start`"]
pub struct Faults {
    builder: LockManagerBuilder,
    as_remote: bool,
    script: Option<Script>,
    identity: Option<String>,
}

impl Faults {
    /// Uses locks in memory, on the caller's tokio clock, which may be paused. A renewed lease has
    /// no end there; to make renewals fail use [`as_remote`](Self::as_remote).
    pub fn in_memory() -> Self {
        Self::over(LockManager::builder().url("memory://"))
    }

    /// Uses locks in memory that behave as on a server: a lease ends unless it is renewed in time.
    /// Time is real time.
    pub fn as_remote() -> Self {
        Self { as_remote: true, ..Self::in_memory() }
    }

    /// Uses the store that this builder names.
    pub fn over(builder: LockManagerBuilder) -> Self {
        Self { builder, as_remote: false, script: None, identity: None }
    }

    /// Changes the manager's settings.
    pub fn with(mut self, set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder) -> Self {
        self.builder = set(self.builder);
        self
    }

    /// Sets the faults of the network. Default: none.
    pub fn script(mut self, script: Script) -> Self {
        self.script = Some(script);
        self
    }

    /// Sets the beginning of the manager's tokens, which are counted from 0: 32 letters and digits. Two managers with one
    /// identity are like a virtual machine that is resumed twice from one snapshot.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = Some(identity.to_owned());
        self
    }

    /// Returns the manager, and the switches of its store.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::build`].
    pub fn start(self) -> Result<(LockManager, Switches), LockError> {
        let Self { builder, as_remote, script, identity } = self;
        let builder = builder.identity(identity);
        let mut parts = None;
        let manager = builder.build_over(RunsOn::Thread, |store, _, alarms| {
            let inner: Arc<dyn Store> =
                if as_remote { Arc::new(MemoryStore::as_remote()) } else { store };
            let state = vec![Arc::new(FaultState::new(script))];
            let faulty = Arc::new(FaultyStore::new(inner.clone(), alarms.clone(), state));
            parts = Some((inner, faulty.state()));
            faulty
        })?;
        let (inner, state) = parts.ok_or(LockError::NotConfigured)?;
        let namespace = manager.locks().namespace.clone();
        Ok((manager, Switches::new(inner, state, namespace)))
    }
}

/// A script of faults: it delivers commands more than once, and loses and delays answers. The same seed does the same to
/// the same sequence of commands.
#[derive(Debug, Clone)]
pub struct Script {
    state: u64,
    most_deliveries: u32,
    lost_percent: u32,
    longest_delay: Duration,
}

/// The faults of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    /// How often the store carries the command out, at least once. The last answer counts.
    deliveries: u32,
    /// Whether the answer is lost.
    lost: bool,
    /// The delay of the answer.
    delay: Duration,
}

impl Fate {
    const FAITHFUL: Self = Self { deliveries: 1, lost: false, delay: Duration::ZERO };
}

impl Script {
    /// Makes a script without faults, which draws from this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed, most_deliveries: 1, lost_percent: 0, longest_delay: Duration::ZERO }
    }

    /// Makes the store carry out every command once to `most` times.
    pub fn deliveries(mut self, most: u32) -> Self {
        self.most_deliveries = most.max(1);
        self
    }

    /// Loses this percentage of the answers. Their commands were carried out.
    pub fn lost(mut self, percent: u32) -> Self {
        self.lost_percent = percent;
        self
    }

    /// Delays answers by up to this time.
    pub fn delays(mut self, longest: Duration) -> Self {
        self.longest_delay = longest;
        self
    }

    fn next(&mut self) -> Fate {
        let deliveries = 1 + self.draw(u64::from(self.most_deliveries));
        let lost = self.draw(100) < u64::from(self.lost_percent);
        let longest = u64::try_from(self.longest_delay.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(self.draw(longest.max(1)));
        Fate { deliveries: u32::try_from(deliveries).unwrap_or(1), lost, delay }
    }

    /// Draws a number below `bound`, with splitmix64. Its bias does not matter here.
    fn draw(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// The present faults of a store.
#[derive(Debug, Default)]
pub(super) struct FaultState {
    busy: AtomicBool,
    /// The number of reasons for which the store is down.
    down: AtomicUsize,
    refusal: Mutex<Option<BackendKind>>,
    delay_nanos: AtomicU64,
    script: Mutex<Option<Script>>,
    /// The number of renewals that the store has carried out, whether the answer arrived or not.
    renewals: AtomicU64,
}

impl FaultState {
    fn new(script: Option<Script>) -> Self {
        Self { script: Mutex::new(script), ..Self::default() }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire) > 0
    }

    /// Adds a reason to be down.
    pub(super) fn goes_down(&self) {
        self.down.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a reason to be down.
    pub(super) fn comes_up(&self) {
        self.down.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses everything with this kind of failure. Returns the kind before.
    pub(super) fn refuse(&self, kind: Option<BackendKind>) -> Option<BackendKind> {
        std::mem::replace(&mut self.refusal.lock().unwrap_or_else(PoisonError::into_inner), kind)
    }

    fn refusal(&self) -> Option<BackendKind> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delays every answer by this time. Returns the delay before.
    pub(super) fn slow_down(&self, by: Duration) -> Duration {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.delay_nanos.swap(nanos, Ordering::AcqRel))
    }

    /// Returns the faults of the next command; `None` without a script.
    fn fate(&self) -> Option<Fate> {
        self.script().as_mut().map(Script::next)
    }

    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::Acquire))
    }

    fn script(&self) -> MutexGuard<'_, Option<Script>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_renewal(&self) {
        self.renewals.fetch_add(1, Ordering::AcqRel);
    }
}

/// Switches that break a store and repair it again, at once and for every clone of its manager.
#[derive(Clone)]
pub struct Switches {
    /// The store without the faults.
    inner: Arc<dyn Store>,
    state: Arc<FaultState>,
    namespace: Namespace,
}

impl Switches {
    fn new(inner: Arc<dyn Store>, state: Arc<FaultState>, namespace: Namespace) -> Self {
        Self { inner, state, namespace }
    }

    /// Makes every attempt find its lock held elsewhere. Present holders keep their locks and can release them.
    pub fn busy(&self, on: bool) {
        self.state.busy.store(on, Ordering::Release);
    }

    /// Makes every operation fail, as without a connection. Nothing reaches the store.
    pub fn down(&self, on: bool) {
        self.state.down.store(usize::from(on), Ordering::Release);
    }

    /// Delays every answer by this time. The commands are carried out at once.
    pub fn delay(&self, by: Duration) {
        self.state.slow_down(by);
    }

    /// Replaces the script; `None` for a faithful network.
    pub fn script(&self, script: Option<Script>) {
        *self.state.script() = script;
    }

    /// Returns how often leases were renewed, whether the answer arrived or not.
    pub fn renewals(&self) -> u64 {
        self.state.renewals.load(Ordering::Acquire)
    }

    /// Ends a lease halfway, like a thread that is paused in the middle of doing so: the lease is no longer held, but the
    /// engine still has it. Dropping the guard does the rest.
    pub fn end_halfway(&self, guard: &LockGuard) {
        for lease in guard.leases() {
            lease.retire();
        }
    }

    /// Takes a lock away without a notification, and returns whether it was held. Holders notice the loss at their next
    /// renewal or release.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store itself fails.
    pub async fn lose(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        let lock = self.namespace.name(Label::Given("lose".into()), key.into())?;
        let limit = self.inner.clock().now().after(Duration::from_secs(60));
        let held = self.inner.clone().inspect(lock.clone(), limit).await;
        let Some(held) = held.map_err(|fault| fault.into_error(None))? else { return Ok(false) };
        let mut lost = false;
        for holder in held.holders {
            let owner = Arc::new(Owner::stray(lock.clone(), holder.token));
            let freed = self.inner.clone().release(owner, None, limit).await;
            lost |= freed.map_err(|fault| fault.into_error(None))?.was_ours;
        }
        Ok(lost)
    }
}

impl fmt::Debug for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switches").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The store between the engine and another one. It passes operations on as often as the script demands, and fails as
/// the switches demand.
pub(super) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// The alarms for delays, which work on every runtime that polls an operation.
    alarms: Arc<Alarms>,
    /// Its faults, some of which it may share with other stores. At least one.
    states: Vec<Arc<FaultState>>,
    /// The first operation that found it down; `None` while it is up.
    down_since: Mutex<Option<Moment>>,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl FaultyStore {
    pub(super) fn new(
        inner: Arc<dyn Store>,
        alarms: Arc<Alarms>,
        states: Vec<Arc<FaultState>>,
    ) -> Self {
        Self { inner, alarms, states, down_since: Mutex::default() }
    }

    fn state(&self) -> Arc<FaultState> {
        self.states[0].clone()
    }

    fn down_since(&self) -> MutexGuard<'_, Option<Moment>> {
        self.down_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_busy(&self) -> bool {
        self.states.iter().any(|state| state.is_busy())
    }

    /// Carries an operation out as the script demands. Its first poll begins the first delivery, as the order of
    /// operations requires.
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

    /// Waits for a late answer. Returns false if the caller has stopped waiting by then.
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

fn is_down(states: &[Arc<FaultState>]) -> bool {
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

    fn introduce(&self, itself: &ProcessInfo) {
        self.inner.introduce(itself);
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        self.inner.clone().take_leave(process, answer_by)
    }

    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move {
            self.deliver(answer_by, || self.inner.clone().tell(messages.clone(), answer_by)).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_does_the_same_and_another_does_not() {
        let fates = |seed| {
            let script = Script::seeded(seed).deliveries(3).lost(30);
            let mut script = script.delays(Duration::from_millis(5));
            (0..100).map(|_| script.next()).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        for deliveries in 1..=3 {
            assert!(fates(1).iter().any(|fate| fate.deliveries == deliveries));
        }
        let lost = fates(1).iter().filter(|fate| fate.lost).count();
        assert!((10..60).contains(&lost), "{lost}");
        assert!(fates(1).iter().all(|fate| fate.delay < Duration::from_millis(5)));
    }

    #[test]
    fn without_settings_nothing_happens() {
        let mut script = Script::seeded(7);
        assert!((0..100).all(|_| script.next() == Fate::FAITHFUL));
    }
}
