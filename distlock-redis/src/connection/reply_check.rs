//! Decides how to recognize the replies to an attempt of the fast path (R3).
//! [`LiveConnection`](super::live::LiveConnection) checks the replies accordingly.
//!
//! The replies to an attempt contain nothing that identifies it. If a proxy loses one reply, every later caller gets
//! the reply to another command, until something reveals it: an `ECHO` of the end of the token, sent after the attempt.
//!
//! If replies are lost, an attempt receives replies to commands that were sent after it. So an attempt that finds its
//! connection idle needs no `ECHO`. It asks for one only if another command was sent before its replies arrived.
//! Replies that arrive late or twice are revealed by the fence counter, which otherwise is above all values seen. And a
//! mark was checked a moment before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock_core::clock::Moment;
use distlock_core::per_thread::PerThread;
use redis::Cmd;

use crate::connection::io::Driver;

/// The number of attempts of a thread per millisecond that carry an `ECHO` each. Of the others, one in [`ECHO_EVERY`]
/// does.
const ECHOES: u64 = 4;
const ECHO_EVERY: u64 = 64;
/// How long attempts on an idle connection need no `ECHO` after a mark was checked, in ns.
const CHECKED: u64 = 1_000_000;
/// How long no attempt is taken to be alone after another one was not, in ns. Asking later costs one more round trip.
const SHARED: u64 = 100_000_000;

/// How to recognize the replies to an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marking {
    /// By an `ECHO` after it.
    Echo,
    /// By the fact that nothing else is sent before they arrive. `before` is the number of commands that were sent
    /// earlier.
    Alone { before: u32 },
    /// By the `ECHO` of another attempt: replies that are shifted stay shifted until one reveals it.
    ByOthers,
}

/// The state of marks on a connection.
#[derive(Default)]
pub(crate) struct Marks {
    /// Whether this user may not run `ECHO`. Replies are then accepted as they arrive.
    denied: AtomicBool,
    /// By thread: a millisecond, and in the low 16 bits the number of attempts that were sent in it.
    tries: PerThread<AtomicU64>,
    /// When the last attempt was sent whose mark came back.
    checked: AtomicU64,
    /// When another command was last sent after an attempt that had been alone.
    shared: AtomicU64,
    /// Whether an attempt that was alone has no recognized replies yet. All attempts after it carry an `ECHO`.
    alone: AtomicBool,
}

impl Marks {
    /// Decides for an attempt that is sent now. On a busy connection not every attempt has an `ECHO`, because that
    /// costs 5 % of the throughput.
    pub(crate) fn next(&self, now: Moment, driver: &Driver) -> Marking {
        if self.denied.load(Ordering::Relaxed) {
            return Marking::ByOthers;
        }
        let tries = self.count(now);
        let now = now.as_nanos();
        if self.alone.load(Ordering::Relaxed) {
            return Marking::Echo;
        }
        let since = |moment: &AtomicU64| now.saturating_sub(moment.load(Ordering::Relaxed));
        if since(&self.checked) < CHECKED
            && since(&self.shared) >= SHARED
            && let Some(before) = driver.sent_while_idle()
        {
            self.alone.store(true, Ordering::Relaxed);
            return Marking::Alone { before };
        }
        if is_marked(tries) { Marking::Echo } else { Marking::ByOthers }
    }

    /// Decides whether a vote has an `ECHO`. A vote draws from no counter that would reveal replies that arrive twice,
    /// so being alone is not enough.
    pub(crate) fn next_of_votes(&self, now: Moment) -> bool {
        !self.denied.load(Ordering::Relaxed) && is_marked(self.count(now))
    }

    /// Counts an attempt. Returns its number within the millisecond.
    fn count(&self, now: Moment) -> u64 {
        const COUNT: u32 = 16;
        let millisecond = now.as_nanos() / 1_000_000;
        // Loads and stores in two steps: an uncounted attempt only costs one more `ECHO`.
        let (_, own) = self.tries.own();
        let before = own.load(Ordering::Relaxed);
        let counted = (before >> COUNT == millisecond).then_some(before);
        let tries = counted.unwrap_or(millisecond << COUNT) + 1;
        own.store(tries, Ordering::Relaxed);
        tries & ((1 << COUNT) - 1)
    }

    /// Notes that the mark of an attempt that was sent then came back.
    pub(crate) fn came_back(&self, sent: Moment) {
        self.checked.store(sent.as_nanos(), Ordering::Relaxed);
        self.are_known();
    }

    /// Notes that another command was sent after an attempt that had been alone.
    pub(crate) fn was_shared(&self, now: Moment) {
        self.shared.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Stops marking attempts.
    pub(crate) fn deny(&self) {
        self.denied.store(true, Ordering::Relaxed);
    }

    /// Notes that replies were recognized, and so were all replies before them.
    pub(crate) fn are_known(&self) {
        // Reads first: a write would take the cache line from every other thread.
        if self.alone.load(Ordering::Relaxed) {
            self.alone.store(false, Ordering::Relaxed);
        }
    }
}

fn is_marked(tries: u64) -> bool {
    tries <= ECHOES || tries.is_multiple_of(ECHO_EVERY)
}

/// Makes the command whose reply shows this mark.
#[inline]
pub(crate) fn echo(mark: &str) -> Cmd {
    let mut echo = Cmd::with_capacity(2, mark.len() + 4);
    echo.arg("ECHO").arg(mark);
    echo
}
