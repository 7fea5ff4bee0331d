//! Which tries of the fast path are marked, so that their answers are known to be their own (R3); `pairing` looks at
//! the answers.
//!
//! The answers to a try carry nothing of it. A proxy that loses one gives every later caller what
//! belongs to another, until something shows it: an `ECHO` behind the try, of the end of its token.
//!
//! Where answers are lost, a try is given those to commands that were sent behind it. So a try that finds
//! its connection idle does without an `ECHO`, and asks for one only if something was sent before its
//! answers came. Answers that come late or twice show in the counter, which otherwise is above all values
//! seen; and a mark was checked a moment before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distlock_core::clock::{Clock, Moment};
use distlock_core::per_thread::PerThread;
use distlock_core::store::Fault;
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::connection::connection::{Connection, Live};
use crate::connection::error::{fault, is_denied};
use crate::connection::io::Carry;

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
    pub(crate) fn next(&self, now: Moment, carrier: &dyn Carry) -> Marking {
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
            && let Some(before) = carrier.sent_while_idle()
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

#[inline]
pub(crate) fn echo(mark: &str) -> Cmd {
    let mut echo = Cmd::with_capacity(2, mark.len() + 4);
    echo.arg("ECHO").arg(mark);
    echo
}

/// The two answers of a try without the `ECHO` behind them, if that has this mark.
#[inline]
pub(crate) fn of_mark<'a>(
    (mark, sent): (&str, Moment),
    answers: &'a [Value],
    live: &Live,
) -> Result<&'a [Value], Fault> {
    let Some((echoed, both)) = answers.split_last() else {
        return Err(live.desynchronized());
    };
    is_echo(mark, echoed, both, live)?;
    live.marks.came_back(sent);
    Ok(both)
}

/// Sees to it that these are the answers to a try that was alone when it was sent.
pub(crate) async fn of_alone(
    before: u32,
    mark: &str,
    answers: &[Value],
    live: &mut Connection,
    answer_by: Moment,
) -> Result<(), Fault> {
    if live.was_overtaken(before) {
        Box::pin(ask_whose(mark, answers, live, answer_by)).await?;
    }
    live.marks.are_known();
    Ok(())
}

/// Something was sent behind: perhaps these answers are not its own. As many `ECHO`s are sent as it
/// has answers. If those were lost, the last of what was sent between gets all that it waits for, and
/// so notices as well.
async fn ask_whose(
    mark: &str,
    answers: &[Value],
    live: &mut Connection,
    answer_by: Moment,
) -> Result<(), Fault> {
    let mut pipeline = Pipeline::with_capacity(answers.len());
    for _ in answers {
        pipeline.add_command(echo(mark));
    }
    let now = Clock::Boottime.now();
    live.marks.was_shared(now);
    let said = live.said.take();
    let echoes = live.pipeline(&pipeline, now, answer_by).await?;
    live.said = said;
    echoes.iter().try_for_each(|echoed| is_echo(mark, echoed, answers, live))
}

#[inline]
fn is_echo(mark: &str, echoed: &Value, answers: &[Value], live: &Live) -> Result<(), Fault> {
    match (echoed, answers) {
        (Value::BulkString(echoed), _) if echoed == mark.as_bytes() => Ok(()),
        // The server refuses all of them: it is busy, or loads its data.
        (Value::ServerError(_), [.., Value::ServerError(_), _]) => Ok(()),
        (Value::ServerError(error), [.., Value::Int(_)]) => {
            let error = RedisError::from(error.clone());
            if !is_denied(&error) {
                return Err(fault(&error));
            }
            live.marks.deny();
            Ok(())
        }
        _ => Err(live.desynchronized()),
    }
}
