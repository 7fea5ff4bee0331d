//! The marks on tries of the fast path, by which their answers are known to be their own (R3). `reply_check` checks the
//! answers.
//!
//! The answers to a try carry nothing of it. A proxy that loses one gives every later caller what
//! belongs to another, until something shows it: an `ECHO` behind the try, of the end of its token.
//!
//! Where answers are lost, a try is given those to commands that were sent behind it. So a try that finds
//! its connection idle does without an `ECHO`, and asks for one only if something was sent before its
//! answers came. Answers that come late or twice show in the counter, which otherwise is above all values
//! seen; and a mark was checked a moment before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock_core::clock::Moment;
use distlock_core::per_thread::PerThread;

use redis::Cmd;

use crate::connection::io::Driver;

/// So many tries of a thread in a millisecond carry an `ECHO` each; of more, one in so many.
const ECHOES: u64 = 4;
const ECHO_EVERY: u64 = 64;
/// For so many ns after a mark was checked, tries on an idle connection go without.
const CHECKED: u64 = 1_000_000;
/// For so many ns after a try was not alone, others are not taken to be: asking later is a round trip more.
const SHARED: u64 = 100_000_000;

/// How the answers to a try are told apart from others'.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marking {
    /// By an `ECHO` behind it.
    Echo,
    /// If nothing is sent before they come; so many commands were sent before it.
    Alone { before: u32 },
    /// By the `ECHO` of another: answers that are shifted stay shifted until one shows it.
    ByOthers,
}

/// What a connection knows of the marks on it.
#[derive(Default)]
pub(crate) struct Marks {
    /// The user that signed in may not use `ECHO`: answers are taken as they come.
    denied: AtomicBool,
    /// A millisecond, and in the low 16 bits how many tries were sent in it, by thread.
    tries: PerThread<AtomicU64>,
    /// When the last try was sent whose mark came back.
    checked: AtomicU64,
    /// When something was last sent behind a try that had been alone.
    shared: AtomicU64,
    /// A try that was alone has no answers yet that are known to be its own: whatever is sent behind it
    /// carries an `ECHO`.
    alone: AtomicBool,
}

impl Marks {
    /// For a try that is sent now. Not an `ECHO` for every one on a busy connection, where that cost 5 %
    /// of the rate.
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

    /// The same for a vote: whether it has an `ECHO`. It draws from no counter, which would show answers that
    /// come twice, and so it never does without one because it is alone.
    pub(crate) fn next_of_votes(&self, now: Moment) -> bool {
        !self.denied.load(Ordering::Relaxed) && is_marked(self.count(now))
    }

    /// Which try of its millisecond it is.
    fn count(&self, now: Moment) -> u64 {
        const COUNT: u32 = 16;
        let millisecond = now.as_nanos() / 1_000_000;
        // Load and store, not one atomic step: a try that goes uncounted is one more echo.
        let (_, own) = self.tries.own();
        let before = own.load(Ordering::Relaxed);
        let counted = (before >> COUNT == millisecond).then_some(before);
        let tries = counted.unwrap_or(millisecond << COUNT) + 1;
        own.store(tries, Ordering::Relaxed);
        tries & ((1 << COUNT) - 1)
    }

    /// The mark of a try that was sent then came back.
    pub(crate) fn came_back(&self, sent: Moment) {
        self.checked.store(sent.as_nanos(), Ordering::Relaxed);
        self.are_known();
    }

    /// Something was sent behind a try that had been alone.
    pub(crate) fn was_shared(&self, now: Moment) {
        self.shared.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// From now on no try is marked.
    pub(crate) fn deny(&self) {
        self.denied.store(true, Ordering::Relaxed);
    }

    /// Answers came whose they are is known, and with them those in front.
    pub(crate) fn are_known(&self) {
        // Read first: a write would take the cache line from every other thread.
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
