//! A connection that is up: sending over it within a time, and noticing that it has gone bad.

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use super::driver::Driver;
use super::fault::{fault, leaves_connection, unexpected};
use super::script::Script;
use crate::clock::{Clock, Moment};
use crate::engine::schedule::{Alarm, Schedule};
use crate::race::until;
use crate::status::DrivenBy;
use crate::store::Fault;

/// Silence after a command without an answer.
const SILENCE: Duration = Duration::from_secs(1);
/// How many tries in a millisecond each have something echoed with them; of more, one of so many.
const ECHOES: u64 = 12;
const ECHO_EVERY: u64 = 64;

/// A connection that is up, in one caller's hand.
pub(crate) struct Connection {
    handle: MultiplexedConnection,
    live: Arc<Live>,
}

impl Connection {
    pub(super) fn to(live: &Arc<Live>) -> Self {
        Self { handle: live.connection.clone(), live: live.clone() }
    }

    /// Sends one command. Answers of the server that are errors are faults.
    pub(crate) async fn command(&mut self, command: &Cmd, limit: Moment) -> Result<Value, RedisOr> {
        let Self { handle, live } = self;
        let call = pin!(async { handle.send_packed_command(command).await?.extract_error() });
        live.bounded(call, Clock::Boottime.now(), limit).await
    }

    /// Sends commands in one write; each has its own answer, which may be an error. `sent` is read
    /// before, from the clock that leases age on.
    pub(crate) async fn pipeline(
        &mut self,
        pipeline: &Pipeline,
        sent: Moment,
        limit: Moment,
    ) -> Result<Vec<Value>, Fault> {
        let Self { handle, live } = self;
        let call = pin!(handle.send_packed_commands(pipeline, 0, pipeline.len()));
        live.bounded(call, sent, limit).await.map_err(RedisOr::into_fault)
    }
}

impl Deref for Connection {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

/// A connection that is up.
pub(crate) struct Live {
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
    /// Never zero.
    pub(crate) number: u64,
    /// What was sent on connections of this link with lower numbers will never run any more.
    pub(crate) buried_below: u64,
    /// The fence counter was raised to the server's time on this connection.
    pub(crate) fence_raised: AtomicBool,
    /// Who signed in here may not use `ECHO`: answers are believed as they come.
    must_not_echo: AtomicBool,
    /// A millisecond, and in the low bits how many tries of the fast path were sent in it.
    tries: AtomicU64,
    /// The scripts whose texts were sent on this connection.
    texts: AtomicU8,
    schedule: Arc<Schedule>,
    command_timeout: Duration,
    /// When a command first had no answer, with none answered since; 0 if all is well.
    unanswered_since: AtomicU64,
    suspect: Notify,
    leave: Notify,
}

impl Live {
    pub(super) fn new(
        connection: MultiplexedConnection,
        driver: Arc<Driver>,
        number: u64,
        buried_below: u64,
        schedule: Arc<Schedule>,
        command_timeout: Duration,
    ) -> Self {
        Self {
            connection,
            driver,
            number,
            buried_below,
            fence_raised: AtomicBool::new(false),
            must_not_echo: AtomicBool::new(false),
            tries: AtomicU64::new(0),
            texts: AtomicU8::new(0),
            schedule,
            command_timeout,
            unanswered_since: AtomicU64::new(0),
            suspect: Notify::new(),
            leave: Notify::new(),
        }
    }

    /// Whether a try of the fast path that is sent now has something echoed with it, by which its
    /// answers can be told from another's. Not every one on a busy connection, where that cost 5 % of
    /// the rate: answers that are shifted stay so, and the next echo shows it.
    pub(super) fn echoes(&self, now: Moment) -> bool {
        const COUNT: u32 = 16;
        let millisecond = now.as_nanos() / 1_000_000;
        // Not in one step: a try that is not counted is one more echo.
        let before = self.tries.load(Ordering::Relaxed);
        let counted = (before >> COUNT == millisecond).then_some(before);
        let tries = counted.unwrap_or(millisecond << COUNT) + 1;
        self.tries.store(tries, Ordering::Relaxed);
        let tries = tries & ((1 << COUNT) - 1);
        (tries <= ECHOES || tries.is_multiple_of(ECHO_EVERY))
            && !self.must_not_echo.load(Ordering::Relaxed)
    }

    pub(super) fn must_not_echo(&self) {
        self.must_not_echo.store(true, Ordering::Relaxed);
    }

    /// Whether the text of a script is to be sent here now, so that its hash will do from now on.
    pub(super) fn needs_text(&self, script: &Script) -> bool {
        // Looked at first: a write would take the line from every other thread.
        let bit = script.bit;
        self.texts.load(Ordering::Relaxed) & bit != bit
            && self.texts.fetch_or(bit, Ordering::Relaxed) & bit != bit
    }

    /// Takes the call pinned: every layer that takes a future by value makes the one around it
    /// bigger by twice its size, and these are moved to the heap for every lock.
    async fn bounded<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, RedisError>>>,
        sent: Moment,
        limit: Moment,
    ) -> Result<T, RedisOr> {
        let patience = sent.after(self.command_timeout);
        let alarm = Alarm::at(&self.schedule, Clock::Boottime, limit.min(patience));
        match until(self.driver.carry(call), alarm).await {
            Some(Ok(answer)) => {
                // Looked at first: a write would take the line from every other thread.
                if self.unanswered_since.load(Ordering::Relaxed) != 0 {
                    self.unanswered_since.store(0, Ordering::Relaxed);
                }
                Ok(answer)
            }
            Some(Err(error)) => {
                self.heed(&error);
                Err(RedisOr::Redis(error))
            }
            None => {
                // Cut short by its caller's limit it says little; but most limits are a command's
                // timeout as well, counted from a moment before.
                if limit.since(sent) >= self.command_timeout / 4 * 3 {
                    self.missed(sent);
                }
                Err(RedisOr::Fault(Fault::timed_out()))
            }
        }
    }

    /// Leaves the node if that is what its answer calls for.
    pub(crate) fn heed(&self, error: &RedisError) {
        if leaves_connection(error) {
            self.leave.notify_one();
        }
    }

    /// Whose runtime moves its bytes.
    pub(super) fn driven_by(&self) -> DrivenBy {
        if self.driver.residence().is_taken() { DrivenBy::Callers } else { DrivenBy::Manager }
    }

    /// Leaves it for good: what comes over it cannot be trusted.
    pub(crate) fn abandon(&self) {
        self.leave.notify_one();
    }

    /// A command had no answer. The second one in a row is enough; those sent together are one.
    fn missed(&self, sent: Moment) {
        let now = Clock::Boottime.now().as_nanos();
        let first =
            self.unanswered_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        match first {
            Ok(_) => self.suspect.notify_one(),
            Err(since) if sent.as_nanos() >= since => self.leave.notify_one(),
            Err(_) => {}
        }
    }

    /// Resolves when the connection should be left.
    pub(super) async fn gone_bad(&self) {
        let silent = async {
            loop {
                self.suspect.notified().await;
                tokio::time::sleep(SILENCE).await;
                if self.unanswered_since.load(Ordering::Relaxed) != 0 {
                    return;
                }
            }
        };
        until(silent, self.leave.notified()).await;
    }
}

/// An error of the client, kept as it is for those who look at its code, or one of ours.
pub(crate) enum RedisOr {
    Redis(RedisError),
    Fault(Fault),
}

impl RedisOr {
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Redis(error) => fault(&error),
            Self::Fault(fault) => fault,
        }
    }
}

/// Reads an integer answer.
pub(crate) fn integer(value: &Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::ServerError(error) => Err(fault(&RedisError::from(error.clone()))),
        _ => Err(unexpected()),
    }
}
