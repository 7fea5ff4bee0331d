//! The metrics of locks, for the facade `metrics`: which there are, the recorder that gets them, and the handles
//! that are kept for it.
//!
//! The guide has the same table of metrics; dashboards and alerts are written against it.
//!
//! Handles are kept for each name of a lock, and only those of the recorder that the whole process has, because these
//! stay valid forever. A thread without a recorder of its own finds out which one that is. Before that, and on a
//! thread that has a recorder of its own (as in tests), handles are made for each event. A hold and a wait keep the
//! handles that they began with, so a gauge comes down where it went up.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit,
};

use super::log;
use super::observer::{Acquired, COMMANDS, Refused, Verb, Via};
use crate::error::LostReason;

/// The bucket bounds of the histograms, in seconds, from 0.1 ms to 60 s, for exporters that ask for them.
///
/// ```no_run
/// # mod metrics_exporter_prometheus {
/// #     pub struct PrometheusBuilder;
/// #     impl PrometheusBuilder {
/// #         pub fn new() -> Self { Self }
/// #         pub fn set_buckets(self, _: &[f64]) -> Result<Self, ()> { Ok(self) }
/// #     }
/// # }
/// # use distlock_runtime as distlock;
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// let builder = PrometheusBuilder::new().set_buckets(distlock::metrics::BUCKETS);
/// ```
///
/// The smallest bound fits the round trip to a nearby store, which takes about 0.1 ms.
pub const BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric, as the guide describes it.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [(&'static str, &'static [&'static str])],
    pub meaning: &'static str,
}

const OUTCOMES: [&str; 7] =
    ["acquired", "busy", "backend", "deadlock", "invalid", "closed", "cancelled"];
const REASONS: [&str; 5] = ["expired", "taken", "forced", "max_hold", "closed"];
const STORES: [&str; 6] = ["memory", "redis", "redlock", "postgres", "etcd", "zookeeper"];
/// The outcomes of what succeeds or fails, in the order of `bool`.
const OK: [&str; 2] = ["failed", "ok"];

const ACQUISITIONS: &str = "distlock_acquisitions_total";
const WAIT: &str = "distlock_wait_seconds";
const HOLD: &str = "distlock_hold_seconds";
const WAITING: &str = "distlock_waiting";
const HELD: &str = "distlock_held";
const LONGEST_HOLD: &str = "distlock_longest_hold_seconds";
const LOST: &str = "distlock_lost_total";
const RENEWALS: &str = "distlock_renewals_total";
const LATE_RELEASES: &str = "distlock_late_releases_total";
const COMMAND: &str = "distlock_command_seconds";
const CONNECTIONS: &str = "distlock_connections";
const INFO: &str = "distlock_info";

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, &'static [&'static str])],
    meaning: &'static str,
) -> Metric {
    Metric { name, kind, labels, meaning }
}

/// All metrics. A label without values here may have any.
pub const METRICS: &[Metric] = &[
    metric(
        ACQUISITIONS,
        Kind::Counter,
        &[("lock", &[]), ("outcome", &OUTCOMES)],
        "calls, each once, by how they ended",
    ),
    metric(
        WAIT,
        Kind::Histogram,
        &[("lock", &[]), ("outcome", &["acquired", "refused"])],
        "from the call to its answer",
    ),
    metric(HOLD, Kind::Histogram, &[("lock", &[])], "from the grant until the release is sent"),
    metric(WAITING, Kind::Gauge, &[("lock", &[])], "calls of this process that wait"),
    metric(HELD, Kind::Gauge, &[("lock", &[])], "locks that this process holds"),
    metric(
        LONGEST_HOLD,
        Kind::Gauge,
        &[("lock", &[])],
        "age of the oldest hold, as of the last time that it was to be renewed",
    ),
    metric(
        LOST,
        Kind::Counter,
        &[("lock", &[]), ("reason", &REASONS)],
        "leases that were lost while they were held",
    ),
    metric(RENEWALS, Kind::Counter, &[("lock", &[]), ("outcome", &OK)], "renewals of leases"),
    metric(
        LATE_RELEASES,
        Kind::Counter,
        &[("lock", &[])],
        "bodies that have returned, whose lock could not be freed at once",
    ),
    metric(
        COMMAND,
        Kind::Histogram,
        &[("command", &COMMANDS), ("outcome", &OK)],
        "the store's round trips",
    ),
    metric(CONNECTIONS, Kind::Gauge, &[("state", &["up", "down"])], "connections for commands"),
    metric(INFO, Kind::Gauge, &[("version", &[]), ("store", &STORES)], "always 1"),
];

fn describe(recorder: &dyn Recorder) {
    for Metric { name, kind, meaning, .. } in METRICS {
        let (key, text) = (KeyName::from_const_str(name), SharedString::const_str(meaning));
        let unit = name.ends_with("_seconds").then_some(Unit::Seconds).or(Some(Unit::Count));
        match kind {
            Kind::Counter => recorder.describe_counter(key, unit, text),
            Kind::Gauge => recorder.describe_gauge(key, unit, text),
            Kind::Histogram => recorder.describe_histogram(key, unit, text),
        }
    }
}

/// The scope of the recorder that a thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecorderScope {
    /// The thread has no recorder. One without any state counts as none.
    None,
    /// The recorder of the process. It lasts as long as the process, and threads without their own have it.
    OfProcess,
    /// A recorder that this thread has for a while.
    OfThread,
}

/// The address of the recorder of the process; zero before it is known.
static OF_PROCESS: AtomicUsize = AtomicUsize::new(0);
/// The addresses of recorders that belong to one thread.
static OF_THREAD: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Whether any thread had a recorder so far.
static SEEN: AtomicBool = AtomicBool::new(false);
/// At most this many of them are remembered.
const REMEMBERED: usize = 64;

/// Returns the address of this thread's recorder; zero if it has none.
#[inline]
fn address() -> usize {
    metrics::with_recorder(|recorder| {
        let is_none = size_of_val(recorder) == 0;
        if is_none { 0 } else { std::ptr::from_ref(recorder).cast::<()>().addr() }
    })
}

/// Returns the scope of this thread's recorder.
#[inline]
fn current() -> RecorderScope {
    match address() {
        0 => RecorderScope::None,
        address if address == OF_PROCESS.load(Ordering::Relaxed) => RecorderScope::OfProcess,
        address => find_out(address),
    }
}

/// Finds out whether the recorder at this address belongs to the process or to this thread.
#[cold]
fn find_out(here: usize) -> RecorderScope {
    SEEN.store(true, Ordering::Relaxed);
    // The recorder of the process is set once.
    if OF_PROCESS.load(Ordering::Relaxed) != 0 {
        return RecorderScope::OfThread;
    }
    let of_thread = || OF_THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if of_thread().contains(&here) {
        return RecorderScope::OfThread;
    }
    // A new thread has no recorder of its own.
    let elsewhere = std::thread::Builder::new().name("distlock-metrics".into()).spawn(address);
    let elsewhere = elsewhere.ok().and_then(|thread| thread.join().ok()).unwrap_or(0);
    if elsewhere != 0 {
        OF_PROCESS.store(elsewhere, Ordering::Relaxed);
    }
    if elsewhere == here {
        return RecorderScope::OfProcess;
    }
    let mut of_thread = of_thread();
    if of_thread.len() == REMEMBERED {
        of_thread.clear();
    }
    of_thread.push(here);
    RecorderScope::OfThread
}

static METADATA: Metadata<'static> = Metadata::new("distlock", Level::INFO, Some("distlock"));

/// The handles of the series of one name.
struct LockSeries {
    name: Box<str>,
    acquired: Counter,
    /// In the order of `OUTCOMES`, without the first.
    refused: [Counter; OUTCOMES.len() - 1],
    waited: Histogram,
    waited_refused: Histogram,
    hold: Histogram,
    waiting: Gauge,
    held: Gauge,
    longest: Gauge,
    /// The beginning of the hold whose age `longest` shows; `NEVER` if there is none.
    oldest: AtomicU64,
    lost: [Counter; REASONS.len()],
    renewed: [Counter; OK.len()],
    late: Counter,
}

/// The handles of the series without a name.
struct ManagerSeries {
    commands: [[Histogram; OK.len()]; COMMANDS.len()],
    up: Gauge,
    down: Gauge,
}

impl LockSeries {
    fn register(recorder: &dyn Recorder, name: &str) -> Self {
        let lock = Label::new("lock", name.to_owned());
        let key = |metric| Key::from_parts(metric, vec![lock.clone()]);
        let key_of = |metric, label: &'static str, value: &'static str| {
            Key::from_parts(metric, vec![lock.clone(), Label::from_static_parts(label, value)])
        };
        let counter = |key: &Key| recorder.register_counter(key, &METADATA);
        let gauge = |metric| recorder.register_gauge(&key(metric), &METADATA);
        let histogram = |key: &Key| recorder.register_histogram(key, &METADATA);
        let outcome = |at: usize| counter(&key_of(ACQUISITIONS, "outcome", OUTCOMES[at]));
        Self {
            name: name.into(),
            acquired: outcome(0),
            refused: std::array::from_fn(|at| outcome(at + 1)),
            waited: histogram(&key_of(WAIT, "outcome", "acquired")),
            waited_refused: histogram(&key_of(WAIT, "outcome", "refused")),
            hold: histogram(&key(HOLD)),
            waiting: gauge(WAITING),
            held: gauge(HELD),
            longest: gauge(LONGEST_HOLD),
            oldest: AtomicU64::new(Moment::NEVER.as_nanos()),
            lost: REASONS.map(|reason| counter(&key_of(LOST, "reason", reason))),
            renewed: OK.map(|ok| counter(&key_of(RENEWALS, "outcome", ok))),
            late: counter(&key(LATE_RELEASES)),
        }
    }

    /// Returns the value of the label `lock`.
    #[inline]
    fn name(&self) -> &str {
        &self.name
    }

    fn refused(&self, outcome: &str) -> &Counter {
        let at = OUTCOMES[1..].iter().position(|known| *known == outcome);
        &self.refused[at.unwrap_or_default()]
    }

    fn lost(&self, reason: LostReason) -> &Counter {
        let at = REASONS.iter().position(|known| *known == reason.as_str());
        &self.lost[at.unwrap_or_default()]
    }

    fn renewed(&self, ok: bool) -> &Counter {
        &self.renewed[usize::from(ok)]
    }

    /// Notes the age of a hold.
    fn is_held_since(&self, since: Moment, age: Duration) {
        let since = since.as_nanos();
        if self.oldest.fetch_min(since, Ordering::SeqCst) >= since {
            self.longest.set(age.as_secs_f64());
        }
    }

    /// Notes that a hold has ended. The next renewal tells which one is the oldest now.
    fn is_not_oldest(&self, since: Moment) {
        let (since, never) = (since.as_nanos(), Moment::NEVER.as_nanos());
        let order = Ordering::SeqCst;
        if self.oldest.load(order) == since
            && self.oldest.compare_exchange(since, never, order, order).is_ok()
        {
            self.longest.set(0.0);
        }
    }
}

impl ManagerSeries {
    fn register(recorder: &dyn Recorder, store: &'static str) -> Self {
        describe(recorder);
        let gauge = |key: &Key| recorder.register_gauge(key, &METADATA);
        let state = |state| {
            let label = Label::from_static_parts("state", state);
            gauge(&Key::from_parts(CONNECTIONS, vec![label]))
        };
        let info = vec![
            Label::from_static_parts("version", env!("CARGO_PKG_VERSION")),
            Label::from_static_parts("store", store),
        ];
        gauge(&Key::from_parts(INFO, info)).set(1.0);
        let command = |command, ok| {
            let labels = vec![
                Label::from_static_parts("command", command),
                Label::from_static_parts("outcome", ok),
            ];
            recorder.register_histogram(&Key::from_parts(COMMAND, labels), &METADATA)
        };
        let commands = COMMANDS.map(|name| OK.map(|ok| command(name, ok)));
        Self { commands, up: state("up"), down: state("down") }
    }

    #[inline]
    fn command(&self, verb: Verb, ok: bool) -> &Histogram {
        &self.commands[verb as usize][usize::from(ok)]
    }
}

/// Every name has a place of its own; the names beyond the limit share one more.
const PLACES: usize = MOST_NAMES + 1;
/// The number of names that are found without the map.
const RECENT: usize = 64;

/// The handles that are kept for each name.
#[derive(Default)]
struct KeptSeries {
    tables: OnceLock<Box<SeriesTables>>,
}

struct SeriesTables {
    /// In the order of their arrival. They never move, because a hold remembers a place.
    places: [OnceLock<Arc<LockSeries>>; PLACES],
    by_name: RwLock<HashMap<Box<str>, usize, BuildHasherDefault<NameHasher>>>,
    /// The places of names that were looked up last. A name that a program gives its locks mostly keeps its address
    /// in memory, so the address is the index here.
    recent: [AtomicUsize; RECENT],
}

impl KeptSeries {
    #[inline]
    fn at(&self, place: usize) -> Option<&Arc<LockSeries>> {
        self.tables.get()?.places.get(place)?.get()
    }

    /// Finds the place of a name, and the handles there.
    #[inline]
    fn find(&self, name: &str) -> Option<(usize, &Arc<LockSeries>)> {
        let tables = self.tables.get()?;
        let recent = &tables.recent[(name.as_ptr().addr() >> 3) % RECENT];
        let place = recent.load(Ordering::Relaxed);
        if let Some(handles) = tables.places[place % PLACES].get()
            && handles.name() == name
        {
            return Some((place, handles));
        }
        let place = *tables.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name)?;
        recent.store(place, Ordering::Relaxed);
        Some((place, tables.places[place].get()?))
    }

    /// Keeps these handles, unless others of the same name are kept already. Returns the kept ones and their place.
    fn keep(&self, new: LockSeries) -> (usize, &Arc<LockSeries>) {
        let tables = self.tables.get_or_init(|| {
            Box::new(SeriesTables {
                places: [const { OnceLock::new() }; PLACES],
                by_name: RwLock::default(),
                recent: [const { AtomicUsize::new(0) }; RECENT],
            })
        });
        let mut by_name = tables.by_name.write().unwrap_or_else(PoisonError::into_inner);
        // The callers make no more labels than there are places.
        let next = by_name.len().min(PLACES - 1);
        let place = *by_name.entry(new.name().into()).or_insert(next);
        (place, tables.places[place].get_or_init(|| Arc::new(new)))
    }
}

/// A fast hash for some hundred names that a program gives its own locks.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(SPREAD);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The most names with series of their own in one manager.
const MOST_NAMES: usize = 500;

/// Makes the series of the locks with these names begin at zero, in the recorder that is installed and in one that is
/// installed later. Otherwise a series begins with the first call, and an alert on an increase misses that one.
///
/// ```
/// # use distlock_runtime as distlock;
/// // Before or after the recorder is installed.
/// distlock::metrics::register(["orders::pay", "nightly"]);
/// ```
///
/// A lock's name is the `name` of its attribute or request. Otherwise it is the function's path as
/// `module_path!()` prints it, or the file and line of a request. Names that are registered already change nothing.
/// At most 500 names are registered; further ones are ignored.
pub fn register<N: Into<String>>(names: impl IntoIterator<Item = N>) {
    let mut new = Vec::new();
    {
        let mut known = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names.into_iter().map(Into::into).take(MOST_NAMES) {
            if known.len() < MOST_NAMES && !known.contains(&name) {
                known.push(name.clone());
                new.push(name);
            }
        }
    }
    if current() != RecorderScope::None {
        metrics::with_recorder(|recorder| {
            describe(recorder);
            new.iter().for_each(|name| drop(LockSeries::register(recorder, name)));
        });
    }
}

/// The registered names.
static REGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The label that names beyond the limit share.
const OTHER: &str = "other";

/// The metrics of one manager.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<ManagerMetrics>);

#[derive(Default)]
struct ManagerMetrics {
    store: OnceLock<&'static str>,
    names: RwLock<HashSet<Box<str>>>,
    too_many: AtomicBool,
    /// The handles of the recorder of the process, as `locks`.
    manager: OnceLock<ManagerSeries>,
    locks: KeptSeries,
    links: Mutex<LinkCounts>,
    /// Whether `links` has changed since the recorder was told.
    links_changed: AtomicBool,
}

/// The number of connections that are down and up: now, and as the recorder was told.
#[derive(Default)]
struct LinkCounts {
    now: [i64; 2],
    told: [i64; 2],
}

/// The handles of the recorder that has counted a lock as held. The end of the hold goes to the same one.
#[derive(Default)]
pub(super) struct Hold {
    /// The bits below, and the place of the handles if they are kept.
    state: AtomicUsize,
    /// The handles, if they are not kept.
    own: OnceLock<Arc<LockSeries>>,
}

/// The lock is counted as held.
const IS_HELD: usize = 1 << (usize::BITS - 1);
/// The handles are kept.
const IS_KEPT: usize = IS_HELD >> 1;

/// The count of a call that waits, until it is dropped.
#[derive(Default)]
pub(crate) struct InLine {
    counted: Option<CountedWait>,
}

impl InLine {
    /// Returns whether the wait was counted, so that its end has to be counted as well.
    pub(crate) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }
}

struct CountedWait(Arc<LockSeries>);

impl Drop for CountedWait {
    fn drop(&mut self) {
        shield(|| self.0.waiting.decrement(1.0));
    }
}

impl Hold {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.state.load(Ordering::SeqCst) & IS_HELD == 0
    }

    /// Notes the end of the hold, and returns whether the lock was counted as held until now.
    #[inline]
    fn end(&self) -> bool {
        self.state.fetch_and(!IS_HELD, Ordering::SeqCst) & IS_HELD != 0
    }
}

/// The handles for an event.
enum EventHandles<'a> {
    Kept(usize, &'a Arc<LockSeries>),
    Own(Arc<LockSeries>),
}

impl std::ops::Deref for EventHandles<'_> {
    type Target = Arc<LockSeries>;

    #[inline]
    fn deref(&self) -> &Arc<LockSeries> {
        match self {
            Self::Kept(_, handles) => handles,
            Self::Own(handles) => handles,
        }
    }
}

impl Metrics {
    pub(super) fn started(&self, store: &'static str) {
        let _ = self.0.store.set(store);
        self.of_manager(current(), |_| {});
    }

    /// Returns the scope of this thread's recorder. Without a recorder, this look is most of the cost of a call's
    /// metrics, so a call looks once.
    #[inline]
    pub(super) fn recorder(&self) -> RecorderScope {
        current()
    }

    /// Returns whether there may be a recorder. This costs less than [`recorder`](Self::recorder).
    #[inline]
    pub(super) fn has_been_on(&self) -> bool {
        SEEN.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self, lock: &LockName) -> InLine {
        let handles = self.of_lock(lock, current());
        if let Some(handles) = &handles {
            handles.waiting.increment(1.0);
        }
        InLine { counted: handles.map(|handles| CountedWait(handles.clone())) }
    }

    pub(super) fn acquired(
        &self,
        lock: &LockName,
        recorder: RecorderScope,
        hold: &Hold,
        event: &Acquired,
    ) {
        let Some(handles) = self.of_lock(lock, recorder) else { return };
        if event.index == 0 {
            handles.acquired.increment(1);
            handles.waited.record(event.waited.as_secs_f64());
        }
        if event.via == Via::Outer {
            return;
        }
        handles.held.increment(1.0);
        let kept = match handles {
            EventHandles::Kept(place, _) => place | IS_KEPT,
            EventHandles::Own(handles) => {
                let _ = hold.own.set(handles);
                0
            }
        };
        hold.state.store(kept | IS_HELD, Ordering::Release);
    }

    pub(super) fn refused(&self, lock: &LockName, event: &Refused<'_>) {
        self.with(lock, |handles| {
            handles.refused(event.outcome()).increment(1);
            if event.error.is_some() {
                handles.waited_refused.record(event.waited.as_secs_f64());
            }
        });
    }

    #[inline]
    pub(super) fn ended(&self, hold: &Hold, since: Moment, held: Duration) {
        if hold.end()
            && let Some(handles) = self.of_hold(hold)
        {
            handles.held.decrement(1.0);
            handles.hold.record(held.as_secs_f64());
            handles.is_not_oldest(since);
        }
    }

    /// Returns the handles with which a hold began.
    #[inline]
    fn of_hold<'a>(&'a self, hold: &'a Hold) -> Option<&'a Arc<LockSeries>> {
        let state = hold.state.load(Ordering::Acquire);
        match state & IS_KEPT {
            0 => hold.own.get(),
            _ => self.0.locks.at(state & !IS_KEPT & !IS_HELD),
        }
    }

    pub(super) fn lost(&self, lock: &LockName, hold: &Hold, reason: LostReason) {
        match self.of_hold(hold) {
            Some(handles) => handles.lost(reason).increment(1),
            None => self.with(lock, |handles| handles.lost(reason).increment(1)),
        }
    }

    pub(super) fn renewed(&self, lock: &LockName, ok: bool) {
        self.with(lock, |handles| handles.renewed(ok).increment(1));
    }

    pub(super) fn lasts(&self, hold: &Hold, since: Moment, age: Duration) {
        let Some(handles) = self.of_hold(hold).filter(|_| !hold.is_empty()) else { return };
        handles.is_held_since(since, age);
        // The hold may have ended meanwhile: at least one of the two threads sees what the other has done.
        if hold.is_empty() {
            handles.is_not_oldest(since);
        }
    }

    pub(super) fn released_late(&self, lock: &LockName) {
        self.with(lock, |handles| handles.late.increment(1));
    }

    #[inline]
    pub(super) fn command(&self, recorder: RecorderScope, verb: Verb, took: Duration, ok: bool) {
        self.of_manager(recorder, |handles| handles.command(verb, ok).record(took.as_secs_f64()));
    }

    /// Counts that a connection was made, lost, or is no longer wanted.
    pub(super) fn link(&self, was_up: Option<bool>, is_up: Option<bool>) {
        {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
            for (link, by) in [(was_up, -1), (is_up, 1)] {
                if let Some(up) = link {
                    links.now[usize::from(up)] += by;
                }
            }
            self.0.links_changed.store(true, Ordering::Release);
        }
        self.of_manager(current(), |_| {});
    }

    /// Calls `act` with the handles of the present recorder, if there is one.
    fn with(&self, lock: &LockName, act: impl FnOnce(&LockSeries)) {
        if let Some(handles) = self.of_lock(lock, current()) {
            act(&handles);
        }
    }

    #[inline]
    fn of_lock(&self, lock: &LockName, recorder: RecorderScope) -> Option<EventHandles<'_>> {
        let name = lock.name();
        match recorder {
            RecorderScope::None => None,
            RecorderScope::OfProcess => Some(match self.0.locks.find(name) {
                Some((place, handles)) => EventHandles::Kept(place, handles),
                None => self.new_of_lock(name),
            }),
            RecorderScope::OfThread => {
                let label = self.label(name);
                self.of_manager(recorder, |_| {});
                let new = metrics::with_recorder(|recorder| LockSeries::register(recorder, label));
                Some(EventHandles::Own(Arc::new(new)))
            }
        }
    }

    #[cold]
    fn new_of_lock(&self, name: &str) -> EventHandles<'_> {
        let label = self.label(name);
        self.of_manager(RecorderScope::OfProcess, |_| {});
        // No code of the recorder runs under the mutex.
        let new = || {
            self.0
                .locks
                .keep(metrics::with_recorder(|recorder| LockSeries::register(recorder, label)))
        };
        let (place, handles) = self.0.locks.find(label).unwrap_or_else(new);
        EventHandles::Kept(place, handles)
    }

    /// Returns the label of a lock of this name.
    fn label<'n>(&self, name: &'n str) -> &'n str {
        let names = self.0.names.read().unwrap_or_else(PoisonError::into_inner);
        if names.contains(name) {
            return name;
        }
        let is_full = names.len() >= MOST_NAMES;
        drop(names);
        if !is_full {
            let mut names = self.0.names.write().unwrap_or_else(PoisonError::into_inner);
            if names.len() < MOST_NAMES {
                names.insert(name.into());
                return name;
            }
        }
        if !self.0.too_many.swap(true, Ordering::Relaxed) && log::is_logged(tracing::Level::WARN) {
            log::report(|| too_many_names(MOST_NAMES));
        }
        OTHER
    }

    #[inline]
    fn of_manager(&self, recorder: RecorderScope, act: impl FnOnce(&ManagerSeries)) {
        match recorder {
            RecorderScope::None => {}
            RecorderScope::OfThread => {
                let handles = self.new_of_manager();
                let now = self.0.links.lock().unwrap_or_else(PoisonError::into_inner).now;
                handles.down.set(now[0] as f64);
                handles.up.set(now[1] as f64);
                act(&handles);
            }
            RecorderScope::OfProcess => {
                let handles = self.0.manager.get().unwrap_or_else(|| self.first_of_manager());
                self.tell_links(handles);
                act(handles);
            }
        }
    }

    fn new_of_manager(&self) -> ManagerSeries {
        let store = self.0.store.get().copied().unwrap_or_default();
        metrics::with_recorder(|recorder| ManagerSeries::register(recorder, store))
    }

    #[cold]
    fn first_of_manager(&self) -> &ManagerSeries {
        let names = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        metrics::with_recorder(|recorder| {
            names.iter().for_each(|name| drop(LockSeries::register(recorder, name)));
        });
        let new = self.new_of_manager();
        self.0.manager.get_or_init(|| new)
    }

    /// Tells the gauges how the number of connections has changed. Other managers of the process have connections,
    /// too, so it is not set.
    #[inline]
    fn tell_links(&self, handles: &ManagerSeries) {
        if !self.0.links_changed.load(Ordering::Acquire) {
            return;
        }
        let by = {
            let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
            let by = [links.now[0] - links.told[0], links.now[1] - links.told[1]];
            links.told = links.now;
            self.0.links_changed.store(false, Ordering::Release);
            by
        };
        for (gauge, by) in [&handles.down, &handles.up].into_iter().zip(by) {
            if by != 0 {
                gauge.increment(by as f64);
            }
        }
    }
}

/// Logs that a manager has locks of more names than there are labels for.
fn too_many_names(limit: usize) {
    tracing::warn!(
        target: "distlock",
        limit,
        "too_many_names: further ones have the label `other` in metrics; give locks names that do not contain values"
    );
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use metrics::NoopRecorder;

    use super::*;
    use crate::observe::documented::{EventLog, documented_events};

    #[test]
    fn fo10_buckets_distinguish_round_trips_of_less_than_a_millisecond() {
        let bucket = |seconds: f64| BUCKETS.iter().position(|bound| seconds <= *bound);
        let (fast, slow) = (bucket(0.0002), bucket(0.0009));
        assert!(fast > Some(0) && fast < slow && slow < bucket(0.002), "{BUCKETS:?}");
        assert!(BUCKETS.is_sorted());
    }

    /// Without upkeep, the recorder's memory grows with every sample.
    #[test]
    fn fo10_the_guides_recorder_has_its_upkeep_run() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/observability.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let installed = page.split("```").find(|block| block.contains(".install_recorder()"));
        assert!(installed.expect("the lines").contains(".run_upkeep()"));
    }

    #[test]
    fn what_is_found_is_that_names_own_wherever_the_name_lies() {
        let kept = KeptSeries::default();
        assert!(kept.find("pay").is_none());
        let names: Vec<String> = (0..MOST_NAMES).map(|n| format!("name {n}")).collect();
        for name in &names {
            let (place, handles) = kept.keep(LockSeries::register(&NoopRecorder, name));
            assert_eq!(handles.name(), name);
            assert!(Arc::ptr_eq(handles, kept.at(place).expect("kept")));
        }
        // More names than are found without the map, and each in the same place of the memory.
        let mut text = String::with_capacity(64);
        for name in names.iter().chain(&names) {
            text.clear();
            text.push_str(name);
            for _ in 0..2 {
                let (place, handles) = kept.find(&text).expect("kept");
                assert_eq!((handles.name(), names[place].as_str()), (text.as_str(), name.as_str()));
            }
        }
        assert!(kept.find("pay").is_none());
        let (again, _) = kept.keep(LockSeries::register(&NoopRecorder, &names[7]));
        assert_eq!(again, 7);
    }

    #[test]
    fn r1_the_event_of_too_many_names_is_in_the_guide() {
        let log = EventLog::default();
        let _second = tracing::Dispatch::new(log.clone());
        tracing::subscriber::with_default(log.clone(), || too_many_names(MOST_NAMES));
        assert_eq!(log.seen().get("too_many_names"), documented_events().get("too_many_names"));
    }
}
