//! The log, and the thread that writes it.
//!
//! The log consists of events of `tracing`. Their names and fields are a contract: dashboards and alerts depend on
//! them, and the guide lists them. Keys never appear.
//!
//! As an [`Observer`], [`Log`] writes what is lost or fails in the background. What happens at the very end of a
//! call is written at once, in the caller's spans.
//!
//! Logs and observers belong to the user: they may block on every event, or panic. So events of the background
//! are put into a queue, and a thread of its own [reports](report) them. It starts with the first event, and ends
//! when it had nothing to do for a while. If the queue is full, events are dropped and counted.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use distlock_core::catch_panic::shield;
use distlock_core::name::LockName;
use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::{Dispatch, Level, dispatcher};

use super::observer::{Connection, Lost, Observer, ReleasedLate};
use crate::error::LockError;

/// Writes an event about a lock.
macro_rules! about {
    ($level:ident, $label:expr, $event:literal, $($fields:tt)*) => {{
        let (name, template) = $label;
        tracing::$level!(
            target: "distlock",
            { lock.name = name, lock.template = template, $($fields)* },
            $event
        );
    }};
}

/// The observer that writes the log, on the thread that reports events.
pub(super) struct Log;

impl Observer for Log {
    fn lost(&self, lock: &LockName, event: &Lost) {
        let Lost { fencing_token, reason, .. } = event;
        about!(warn, label(lock), "lost", fencing_token, reason = %reason);
    }

    fn released_late(&self, lock: &LockName, event: &ReleasedLate) {
        let error = &event.error;
        match event.given_up {
            false => about!(warn, label(lock), "released_late", error = %error),
            true => about!(warn, label(lock), "release_given_up", error = %error),
        }
    }

    fn connection(&self, event: &Connection) {
        match event {
            Connection::Denied { error } => tracing::warn!(
                target: "distlock",
                error = %error,
                "wake_ups_denied: waiters poll up to once a second instead of being notified; allow HELLO, SUBSCRIBE, PUBLISH and PUBSUB|NUMSUB, and the channels `<prefix>:wake:*`"
            ),
            Connection::MayEvict { policy } => tracing::warn!(
                target: "distlock",
                policy,
                "may_evict: the server may throw away locks that are held; set `maxmemory-policy noeviction`"
            ),
            Connection::Connected | Connection::Disconnected => {}
        }
    }
}

/// Logs that a connection has been down for a second. `node` is empty if no node was found.
pub(super) fn link_down(node: &str, error: &str) {
    tracing::warn!(target: "distlock", node, error, "link_down");
}

/// Logs that the connection is up again, after this time.
pub(super) fn link_up(node: &str, after: Duration) {
    let seconds = after.as_secs_f64();
    tracing::info!(target: "distlock", node, seconds, "link_up");
}

/// Logs that a renewal failed. It is tried again while the lease lasts.
pub(super) fn renew_failed(lock: &LockName, error: &impl fmt::Display) {
    about!(debug, label(lock), "renew_failed", error = %error);
}

/// Logs that a locked function skipped its body for another reason than that the lock is held elsewhere. Its return
/// type has no place for an error.
pub(crate) fn not_returned(error: &LockError) {
    let named = error.lock().map_or(("", None), label);
    write_here(|| about!(error, named, "not_returned", error = %error));
}

/// Logs that a locked function did not run because the lock is held elsewhere. It returned as if it had nothing to
/// do.
pub(crate) fn skipped(error: &LockError) {
    let named = error.lock().map_or(("", None), label);
    write_here(|| about!(debug, named, "skipped",));
}

/// Logs that the servers of a quorum do not count before this time has passed, because no process has watched them
/// for as long as `restart_guard`.
pub(crate) fn quorum_waits(wait: Duration) {
    let seconds = wait.as_secs() + 1;
    write_here(|| tracing::warn!(target: "distlock", seconds, "quorum_waits"));
}

/// Logs that a leader's body has ended with an error, or that a campaign cannot succeed.
pub(crate) fn term_failed(name: &impl fmt::Display, error: &str) {
    write_here(|| tracing::error!(target: "distlock", { lock.name = %name, error }, "term_failed"));
}

/// Logs how many events were dropped because the log was too slow. Called on the thread that reports events.
pub(super) fn events_dropped(count: u64) {
    tracing::warn!(target: "distlock", count, "events_dropped");
}

/// Writes an event on the caller's thread, in the caller's spans. A panic of the log is caught here.
fn write_here(write: impl FnOnce()) {
    shield(write);
}

fn label(lock: &LockName) -> (&str, Option<&'static str>) {
    (lock.name(), lock.template())
}

/// The most events that may wait. Many leases are lost at once when a server is gone.
const LONGEST: usize = 1 << 16;
/// The thread ends after this long without an event.
const IDLE: Duration = Duration::from_secs(5);

static QUEUE: EventQueue = EventQueue::new();

/// The events on their way to the thread that reports them.
struct EventQueue {
    /// The id of the process whose thread writes; 0 before the first event.
    process: AtomicU32,
    waiting: Mutex<WaitingEvents>,
    more: Condvar,
}

struct WaitingEvents {
    events: VecDeque<QueuedEvent>,
    /// The events to report later, and when.
    later: Vec<(Instant, QueuedEvent)>,
    /// The number of events without room since that was last logged.
    dropped: u64,
    /// Whether a thread is writing.
    is_written: bool,
}

impl WaitingEvents {
    const NONE: Self =
        Self { events: VecDeque::new(), later: Vec::new(), dropped: 0, is_written: false };

    /// Returns a delayed event whose time has come, if there is one.
    fn due(&mut self, now: Instant) -> Option<QueuedEvent> {
        let at = self.later.iter().position(|(at, _)| *at <= now)?;
        Some(self.later.remove(at).1)
    }
}

/// An event, and the log of the thread on which it happened.
struct QueuedEvent {
    log: Dispatch,
    write: Box<dyn FnOnce() + Send>,
}

/// Returns whether a log may write events of this level. The log itself is asked only on the other thread.
pub(super) fn is_logged(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

/// Queues an event, which the thread of the log reports in order, to the log of the calling thread. No code of the log
/// runs here. `tell` may write one line at most.
pub(super) fn report(tell: impl FnOnce() + Send + 'static) {
    QUEUE.put(Box::new(tell), None);
}

/// Reports an event after a while, however busy other threads are.
pub(super) fn report_after(pause: Duration, tell: impl FnOnce() + Send + 'static) {
    QUEUE.put(Box::new(tell), Some(Instant::now() + pause));
}

impl EventQueue {
    const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            waiting: Mutex::new(WaitingEvents::NONE),
            more: Condvar::new(),
        }
    }

    fn put(&'static self, write: Box<dyn FnOnce() + Send>, at: Option<Instant>) {
        if !self.is_ours() {
            return;
        }
        let event = QueuedEvent { log: dispatcher::get_default(Dispatch::clone), write };
        let refused = self.add(event, at);
        // Not under the mutex: dropping an event may drop its log, which is code of the user.
        drop(refused);
    }

    /// Returns whether the queue belongs to this process. A forked child begins with an empty queue, because the
    /// thread and its events belong to the parent. If another thread of the parent held the mutex at the moment of
    /// the fork, it is never unlocked in the child, and the child logs nothing.
    fn is_ours(&self) -> bool {
        let here = std::process::id();
        let of = self.process.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire);
        if of.is_ok() || of == Err(here) {
            return true;
        }
        let old = match self.waiting.try_lock() {
            Ok(mut waiting) => std::mem::replace(&mut *waiting, WaitingEvents::NONE),
            Err(TryLockError::Poisoned(waiting)) => {
                std::mem::replace(&mut *waiting.into_inner(), WaitingEvents::NONE)
            }
            Err(TryLockError::WouldBlock) => return false,
        };
        self.process.store(here, Ordering::Release);
        drop(old);
        true
    }

    /// Adds an event, or gives it back if there is no room.
    fn add(&'static self, event: QueuedEvent, at: Option<Instant>) -> Option<QueuedEvent> {
        {
            let mut waiting = self.waiting();
            if waiting.events.len().max(waiting.later.len()) >= LONGEST {
                waiting.dropped += 1;
                return Some(event);
            }
            match at {
                Some(at) => waiting.later.push((at, event)),
                None => waiting.events.push_back(event),
            }
            if std::mem::replace(&mut waiting.is_written, true) {
                self.more.notify_one();
                return None;
            }
        }
        let thread = std::thread::Builder::new().name("distlock-log".into());
        if thread.spawn(|| self.write_all()).is_err() {
            // The next event tries again.
            self.waiting().is_written = false;
        }
        None
    }

    /// Reports events until there are none for a while. Runs on a thread of its own.
    fn write_all(&self) {
        while let Some((event, dropped)) = self.next() {
            let QueuedEvent { log, write } = event;
            let write = || {
                dispatcher::with_default(&log, || {
                    write();
                    if dropped > 0 {
                        events_dropped(dropped);
                    }
                });
                // It may be the last reference to its log, whose destructor may panic.
                drop(log);
            };
            shield(write);
        }
    }

    /// Returns the next event and the number of those dropped before it; `None` after a while without one.
    fn next(&self) -> Option<(QueuedEvent, u64)> {
        let mut waiting = self.waiting();
        loop {
            let event = waiting.due(Instant::now());
            if let Some(event) = event.or_else(|| waiting.events.pop_front()) {
                return Some((event, std::mem::take(&mut waiting.dropped)));
            }
            let first = waiting.later.iter().map(|(at, _)| *at).min();
            let pause = first.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
            let (now, waited) =
                self.more.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner);
            waiting = now;
            if waited.timed_out() && waiting.events.is_empty() && waiting.later.is_empty() {
                waiting.events.shrink_to_fit();
                waiting.is_written = false;
                return None;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use distlock_core::clock::Moment;
    use distlock_core::name::Label;
    use distlock_core::store::Fault;

    use super::*;
    use crate::error::{IntoLockError, LostReason};
    use crate::key_encoding::KeyText;
    use crate::namespace::Namespace;
    use crate::observe::documented::{EventLog, documented_events};
    use crate::observe::{Account, Observers};

    #[test]
    fn f32_every_event_and_its_fields_are_in_the_guide() {
        let lock = Namespace::new("distlock").expect("a prefix");
        let key = KeyText::new(&[]).key("k", format_args!("k"));
        let lock = lock.name(Label::Given("name".into()), key).expect("a key");
        let fault = Fault::timed_out();
        let error = || fault.clone().into_error(Some(&lock));
        let log = EventLog::default();
        let mut expected = documented_events();
        // Their own tests compare these with the guide: they are written by code of other features.
        assert!(
            ["answered", "too_many_names"].iter().all(|event| expected.remove(*event).is_some())
        );
        // With one subscriber known, an event that another test writes for the first time meanwhile, on a
        // thread without any, counts as one that no subscriber wants.
        let _second = tracing::Dispatch::new(log.clone());
        tracing::subscriber::with_default(log.clone(), || {
            let observers = Observers::default();
            let now = Moment::from_nanos(1);
            observers.lost(&lock, &Account::new(now), (LostReason::Expired, 1), now);
            observers.renew_failed(&lock, fault.clone());
            observers.connection(Connection::Denied { error: "NOPERM".to_owned() });
            observers.connection(Connection::MayEvict { policy: "allkeys-lru".to_owned() });
            observers.released_late(&lock, error(), false);
            observers.released_late(&lock, error(), true);
            link_down("host:6379", "no answer");
            link_up("host:6379", Duration::from_secs(2));
            events_dropped(1);
            not_returned(&error());
            skipped(&error());
            term_failed(&"name", "the body has failed");
            quorum_waits(Duration::from_secs(3));
            for _ in 0..3000 {
                if log.seen().len() >= expected.len() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(log.seen(), expected);
        });
    }

    /// A log that keeps its lines, and blocks at each until the gate opens.
    struct Slow {
        lines: Mutex<Vec<String>>,
        gate: Mutex<std::sync::mpsc::Receiver<()>>,
    }

    struct Text(String);

    impl tracing::field::Visit for Text {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            self.0 += &format!("{field}={value:?} ");
        }
    }

    struct SlowLog(Arc<Slow>);

    impl tracing::Subscriber for SlowLog {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lines.lock().expect("no panic").push(text.0);
            let _ = self.0.gate.lock().expect("no panic").recv();
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// A queue of this test alone: other tests use that of the process.
    static OWN: EventQueue = EventQueue::new();

    #[test]
    fn f32_a_log_that_stands_still_is_not_waited_for_and_hears_how_many_lines_were_dropped() {
        let (open, gate) = channel();
        let slow = Arc::new(Slow { lines: Mutex::default(), gate: Mutex::new(gate) });
        let lines = || slow.lines.lock().expect("no panic").clone();
        let wait = |what: &str, done: &dyn Fn() -> bool| {
            for _ in 0..6000 {
                if done() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("{what}: {} lines", lines().len());
        };
        tracing::subscriber::with_default(SlowLog(slow.clone()), || {
            let line = |n: usize| OWN.put(Box::new(move || tracing::warn!(n, "line")), None);
            line(0);
            wait("the first is being written", &|| lines().len() == 1);
            (1..LONGEST + 8).for_each(line);
            drop(open);
            wait("the others are written", &|| lines().iter().any(|line| line.contains("dropped")));
        });
        let lines = lines();
        let numbers = lines.iter().filter(|line| line.contains("message=line"));
        let in_order = numbers.enumerate().all(|(n, line)| line.contains(&format!("n={n} ")));
        assert!(in_order, "{:?}", &lines[..9]);
        assert!(lines[2].contains("count=7"), "{}", lines[2]);
    }
}
