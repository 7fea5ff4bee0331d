//! Events in the background on their way to the log and to observers.
//!
//! Both belong to the user: they may block on every event or panic at it. So events are put into a queue
//! here, and a thread of their own reports them. It starts with the first event and ends when there was
//! none for a while. Where the queue is full, events are dropped and counted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};
use tracing::{Dispatch, Level, dispatcher};

use super::log;
use crate::shield::shield;

/// So many events may wait. Leases are lost in crowds, when a server is gone.
const LONGEST: usize = 1 << 16;
/// The thread ends when there was nothing to write for so long.
const IDLE: Duration = Duration::from_secs(5);

static QUEUE: Queue = Queue::new();

struct Queue {
    /// The process whose thread writes; 0 before the first event.
    process: AtomicU32,
    waiting: Mutex<Waiting>,
    more: Condvar,
}

struct Waiting {
    events: VecDeque<Event>,
    /// The events to report later, and when.
    later: Vec<(Instant, Event)>,
    /// How many there was no room for since that was last said.
    dropped: u64,
    /// There is a thread that writes.
    is_written: bool,
}

impl Waiting {
    const NONE: Self =
        Self { events: VecDeque::new(), later: Vec::new(), dropped: 0, is_written: false };
}

impl Waiting {
    /// Returns a delayed event whose time has come, if there is one.
    fn due(&mut self, now: Instant) -> Option<Event> {
        let at = self.later.iter().position(|(at, _)| *at <= now)?;
        Some(self.later.remove(at).1)
    }
}

/// An event, and the log of the thread it arose on.
struct Event {
    log: Dispatch,
    write: Box<dyn FnOnce() + Send>,
}

/// Whether a log may write events of this level. The log itself is only asked on the other thread.
pub(super) fn is_logged(level: Level) -> bool {
    level <= STATIC_MAX_LEVEL && level <= LevelFilter::current()
}

/// Has the reporter's thread report an event, in order, to the log of the thread this is called on. No code
/// of the log runs here. `tell` is to write one line at most.
pub(super) fn report(tell: impl FnOnce() + Send + 'static) {
    QUEUE.put(Box::new(tell), None);
}

/// Reports an event after a while, however busy other threads are.
pub(super) fn report_after(pause: Duration, tell: impl FnOnce() + Send + 'static) {
    QUEUE.put(Box::new(tell), Some(Instant::now() + pause));
}

impl Queue {
    const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            waiting: Mutex::new(Waiting::NONE),
            more: Condvar::new(),
        }
    }

    fn put(&'static self, write: Box<dyn FnOnce() + Send>, at: Option<Instant>) {
        if !self.is_ours() {
            return;
        }
        let event = Event { log: dispatcher::get_default(Dispatch::clone), write };
        let refused = self.add(event, at);
        // Not under the mutex: it may be the last that knows of its log.
        drop(refused);
    }

    /// Whether the queue is this process's. A forked child begins with an empty one: its parent's
    /// thread, and what that was to write, is the parent's. If another thread of the parent had the
    /// mutex in the moment of the fork it is never unlocked in the child, and nothing is written.
    fn is_ours(&self) -> bool {
        let here = std::process::id();
        let of = self.process.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire);
        if of.is_ok() || of == Err(here) {
            return true;
        }
        let old = match self.waiting.try_lock() {
            Ok(mut waiting) => std::mem::replace(&mut *waiting, Waiting::NONE),
            Err(TryLockError::Poisoned(waiting)) => {
                std::mem::replace(&mut *waiting.into_inner(), Waiting::NONE)
            }
            Err(TryLockError::WouldBlock) => return false,
        };
        self.process.store(here, Ordering::Release);
        drop(old);
        true
    }

    /// Gives an event back for which there is no room.
    fn add(&'static self, event: Event, at: Option<Instant>) -> Option<Event> {
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

    /// The thread's part.
    fn write_all(&self) {
        while let Some((event, dropped)) = self.next() {
            let Event { log, write } = event;
            let write = || {
                dispatcher::with_default(&log, || {
                    write();
                    if dropped > 0 {
                        log::events_dropped(dropped);
                    }
                });
                // Its log may end with it.
                drop(log);
            };
            shield(write);
        }
    }

    /// The next event, and how many were dropped before; `None` after a while without one.
    fn next(&self) -> Option<(Event, u64)> {
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

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// Counts lines by what they say, and blocks at each until it is let go.
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

    struct Log(Arc<Slow>);

    impl tracing::Subscriber for Log {
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

    /// Not that of the process, which other tests use.
    static OWN: Queue = Queue::new();

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
        tracing::subscriber::with_default(Log(slow.clone()), || {
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
