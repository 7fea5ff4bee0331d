//! A connection that is up: sends commands with a time limit, and notices when it has gone bad.

use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::alarm::{Alarm, Alarms};
use distlock_core::clock::{Clock, Moment};
use distlock_core::select::until;
use distlock_core::store::DrivenBy;
use distlock_core::store::{BackendKind, Fault};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::Notify;

use crate::addr::Addr;
use crate::connection::error::{
    fault, is_denied, is_missing_script, leaves_connection, unexpected,
};
use crate::connection::io::{Driver, send_over};
use crate::connection::replicas::ReplicaWaits;
use crate::connection::reply_check::{Marking, Marks, echo};
use crate::connection::server_info::ServerInfo;
use crate::redirect::Redirect;
use crate::script::{Arg, Script};

/// A connection is left after so long without any answer, once a command has timed out.
const SILENCE: Duration = Duration::from_secs(1);

/// One caller's handle of a connection that is up.
pub(crate) struct Connection {
    handle: MultiplexedConnection,
    pub(crate) live: Arc<LiveConnection>,
    /// What is sent was sent to another node of a cluster before, which did not carry it out.
    pub(crate) resent: bool,
    /// The slot has not come to this node yet: each command asks it to serve ahead of that.
    pub(crate) asking: bool,
    /// What a node of a cluster has said instead of an answer.
    pub(crate) redirect: Option<Redirect>,
}

impl Connection {
    pub(crate) fn to(live: &Arc<LiveConnection>) -> Self {
        let handle = live.connection.clone();
        Self { handle, live: live.clone(), resent: false, asking: false, redirect: None }
    }

    /// Sends one command. An answer that is an error is an `Err`.
    pub(crate) async fn command(
        &mut self,
        command: &Cmd,
        answer_by: Moment,
    ) -> Result<Value, RedisOr> {
        if self.asking {
            return Box::pin(self.command_asking(command, answer_by)).await;
        }
        let Self { handle, live, .. } = self;
        let call = pin!(async { handle.send_packed_command(command).await?.extract_error() });
        let answer = live.bounded(call, Clock::Boottime.now(), answer_by).await;
        if let (Some(node), Err(RedisOr::Redis(error))) = (&self.live.node, &answer) {
            self.redirect = Redirect::of(error, node);
        }
        answer
    }

    async fn command_asking(&mut self, command: &Cmd, answer_by: Moment) -> Result<Value, RedisOr> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command.clone());
        let sent = Clock::Boottime.now();
        let answers = self.pipeline(&pipeline, sent, answer_by).await;
        let answer = answers.map_err(RedisOr::Fault)?.pop().unwrap_or(Value::Nil);
        let answer = answer.extract_error().map_err(RedisOr::Redis);
        if let Err(RedisOr::Redis(error)) = &answer {
            self.live.check_error(error);
        }
        answer
    }

    /// Sends commands in one write; each has its own answer, which may be an error. `sent` was read
    /// before, from the clock of the leases.
    pub(crate) async fn pipeline(
        &mut self,
        pipeline: &Pipeline,
        sent: Moment,
        answer_by: Moment,
    ) -> Result<Vec<Value>, Fault> {
        if self.asking {
            return Box::pin(self.pipeline_asking(pipeline, sent, answer_by)).await;
        }
        let Self { handle, live, .. } = self;
        let call = pin!(handle.send_packed_commands(pipeline, 0, pipeline.len()));
        let answers = live.bounded(call, sent, answer_by).await.map_err(RedisOr::into_fault)?;
        if let Some(node) = &self.live.node {
            self.redirect = Redirect::of_answers(&answers, node);
        }
        Ok(answers)
    }

    async fn pipeline_asking(
        &mut self,
        pipeline: &Pipeline,
        sent: Moment,
        answer_by: Moment,
    ) -> Result<Vec<Value>, Fault> {
        let mut asking = Pipeline::with_capacity(2 * pipeline.len());
        for command in pipeline.cmd_iter() {
            asking.cmd("ASKING").add_command(command.clone());
        }
        let Self { handle, live, .. } = self;
        let call = pin!(handle.send_packed_commands(&asking, 0, asking.len()));
        let answers = live.bounded(call, sent, answer_by).await.map_err(RedisOr::into_fault)?;
        let answers: Vec<_> = answers.into_iter().skip(1).step_by(2).collect();
        if let Some(node) = &self.live.node {
            self.redirect = Redirect::of_answers(&answers, node);
        }
        Ok(answers)
    }

    /// Checks the replies to an attempt that was alone when it was sent, after `before` other commands.
    pub(crate) async fn check_alone(
        &mut self,
        before: u32,
        mark: &str,
        replies: &[Value],
        answer_by: Moment,
    ) -> Result<(), Fault> {
        if self.live.was_overtaken(before) {
            Box::pin(self.check_with_echoes(mark, replies, answer_by)).await?;
        }
        self.live.marks.are_known();
        Ok(())
    }

    /// Sends one `ECHO` for each reply, because another command was sent since, and these replies may be its own.
    ///
    /// If the replies to the `ECHO`s were lost, the last command that was sent in between receives all replies that it
    /// waits for, and detects the loss as well.
    async fn check_with_echoes(
        &mut self,
        mark: &str,
        replies: &[Value],
        answer_by: Moment,
    ) -> Result<(), Fault> {
        let mut pipeline = Pipeline::with_capacity(replies.len());
        for _ in replies {
            pipeline.add_command(echo(mark));
        }
        let now = Clock::Boottime.now();
        self.live.marks.was_shared(now);
        let redirect = self.redirect.take();
        let echoes = self.pipeline(&pipeline, now, answer_by).await?;
        self.redirect = redirect;
        echoes.iter().try_for_each(|echoed| self.live.check_echo(mark, echoed, replies))
    }

    /// Runs a script.
    pub(crate) async fn run(
        &mut self,
        script: &Script,
        keys: &[Arg<'_>],
        args: &[Arg<'_>],
        answer_by: Moment,
    ) -> Result<Value, Fault> {
        let answer = self.run_unless(|| false, script, keys, args, answer_by).await;
        answer.map_err(RedisOr::into_fault)
    }

    /// The same for a script that must not be sent any more once `given_up` says so: its text goes
    /// out later than its hash, when what comes behind it may have been sent already.
    pub(crate) async fn run_unless(
        &mut self,
        given_up: impl Fn() -> bool,
        script: &Script,
        keys: &[Arg<'_>],
        args: &[Arg<'_>],
        answer_by: Moment,
    ) -> Result<Value, RedisOr> {
        let command = match self.live.needs_text(script) {
            true => script.by_text(keys, args),
            false => script.by_hash(keys, args),
        };
        let mut answer = self.command(&command, answer_by).await;
        match answer {
            Err(RedisOr::Redis(error)) if is_missing_script(&error) && given_up() => {
                return Err(RedisOr::Fault(Fault::given_up()));
            }
            Err(RedisOr::Redis(error)) if is_missing_script(&error) => {
                let again = script.by_text(keys, args);
                answer = Box::pin(self.command(&again, answer_by)).await;
            }
            _ => {}
        }
        answer
    }
}

/// A connection that is up.
pub(crate) struct LiveConnection {
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
    /// Never zero.
    pub(crate) number: u64,
    /// Earlier connections of this link that are closed at the server: nothing that was sent on them will
    /// run any more.
    pub(crate) closed: Range<u64>,
    /// What the server is.
    pub(crate) able: ServerInfo,
    /// Which node of a cluster is behind it; `None` where there is no cluster.
    pub(crate) node: Option<Addr>,
    /// The server's address, for errors.
    address: Arc<str>,
    /// The clock of the server behind it.
    pub(crate) server_clock: ServerClock,
    /// The fence counter was raised to the server's time on this connection.
    pub(crate) fence_raised: AtomicBool,
    /// Whose answers are known.
    pub(crate) marks: Marks,
    /// What replicas are asked to confirm.
    pub(crate) waits: Arc<ReplicaWaits>,
    /// The scripts whose texts were sent on this connection.
    texts: AtomicU8,
    alarms: Arc<Alarms>,
    command_timeout: Duration,
    /// When a command first had no answer, with none answered since; 0 if all is well.
    unanswered_since: AtomicU64,
    suspect: Notify,
    leave: Notify,
}

impl LiveConnection {
    pub(crate) fn new(
        connection: MultiplexedConnection,
        driver: Arc<Driver>,
        number: u64,
        closed: Range<u64>,
        (able, (node, address)): (ServerInfo, (Option<Addr>, Arc<str>)),
        alarms: Arc<Alarms>,
        command_timeout: Duration,
    ) -> Self {
        Self {
            connection,
            driver,
            number,
            closed,
            able,
            node,
            address,
            server_clock: ServerClock::unknown(),
            fence_raised: AtomicBool::new(false),
            marks: Marks::default(),
            waits: Arc::default(),
            texts: AtomicU8::new(0),
            alarms,
            command_timeout,
            unanswered_since: AtomicU64::new(0),
            suspect: Notify::new(),
            leave: Notify::new(),
        }
    }

    /// Returns the replies to an attempt without the `ECHO` after them, if that has the mark of this attempt.
    #[inline]
    pub(crate) fn replies_of<'a>(
        &self,
        (mark, sent): (&str, Moment),
        replies: &'a [Value],
    ) -> Result<&'a [Value], Fault> {
        let Some((echoed, own)) = replies.split_last() else {
            return Err(self.desynchronized());
        };
        self.check_echo(mark, echoed, own)?;
        self.marks.came_back(sent);
        Ok(own)
    }

    /// Checks that an `ECHO` after these replies has the mark of their attempt.
    #[inline]
    fn check_echo(&self, mark: &str, echoed: &Value, replies: &[Value]) -> Result<(), Fault> {
        match (echoed, replies) {
            (Value::BulkString(echoed), _) if echoed == mark.as_bytes() => Ok(()),
            // The server refuses all of them: it is busy, or loads its data.
            (Value::ServerError(_), [.., Value::ServerError(_), _]) => Ok(()),
            (Value::ServerError(error), [.., Value::Int(_)]) => {
                let error = RedisError::from(error.clone());
                if !is_denied(&error) {
                    return Err(fault(&error));
                }
                self.marks.deny();
                Ok(())
            }
            _ => Err(self.desynchronized()),
        }
    }

    /// How the answers of a try of the fast path that is sent now are told apart from others'.
    pub(crate) fn marking(&self, now: Moment) -> Marking {
        self.marks.next(now, &self.driver)
    }

    /// Whether another command was sent since so many were, and one that was known of.
    pub(crate) fn was_overtaken(&self, sent_before: u32) -> bool {
        self.driver.sent() != sent_before.wrapping_add(1)
    }

    /// Whether the script is to be sent as text now. From then on its hash will do on this connection.
    pub(crate) fn needs_text(&self, script: &Script) -> bool {
        // Read first: a write would take the cache line from every other thread.
        let bit = script.bit;
        self.texts.load(Ordering::Relaxed) & bit != bit
            && self.texts.fetch_or(bit, Ordering::Relaxed) & bit != bit
    }

    /// What comes of it until then.
    pub(crate) async fn within<T>(
        &self,
        future: impl Future<Output = T>,
        answer_by: Moment,
    ) -> Option<T> {
        until(future, Alarm::at(&self.alarms, Clock::Boottime, answer_by)).await
    }

    /// Runs `call` until the limit or the command timeout.
    ///
    /// Takes it pinned: every layer that takes a future by value makes the one around it bigger by
    /// twice its size, and these are moved to the heap for every lock.
    async fn bounded<T>(
        &self,
        call: Pin<&mut impl Future<Output = Result<T, RedisError>>>,
        sent: Moment,
        answer_by: Moment,
    ) -> Result<T, RedisOr> {
        let timeout = sent.after(self.command_timeout);
        let limit = answer_by.min(timeout);
        let alarm = pin!(Alarm::at(&self.alarms, Clock::Boottime, limit));
        let sending = pin!(send_over(&self.driver, call));
        match until(sending, alarm).await {
            Some(Ok(answer)) => {
                // Read first: a write would take the cache line from every other thread.
                if self.unanswered_since.load(Ordering::Relaxed) != 0 {
                    self.unanswered_since.store(0, Ordering::Relaxed);
                }
                Ok(answer)
            }
            Some(Err(error)) => {
                self.check_error(&error);
                Err(RedisOr::Redis(error))
            }
            None => {
                // A call that its caller's limit has cut short says little about the connection; but
                // most limits are a command timeout as well, counted from a moment before.
                if answer_by.since(sent) >= self.command_timeout / 4 * 3 {
                    self.missed(sent);
                }
                Err(RedisOr::Fault(Fault::timed_out().at(&self.address)))
            }
        }
    }

    /// Leaves the connection if the node cannot serve locks any more: `READONLY`, `NOAUTH` …
    pub(crate) fn check_error(&self, error: &RedisError) {
        if leaves_connection(error) {
            self.leave.notify_one();
        }
    }

    /// The same for one answer of a pipeline.
    pub(crate) fn check_answer(&self, answer: &Value) {
        if let Value::ServerError(error) = answer {
            self.check_error(&RedisError::from(error.clone()));
        }
    }

    /// An answer that no server gives to what was asked. Leaves the connection: nothing that follows
    /// on it can be trusted.
    pub(crate) fn unexpected_answer(&self) -> Fault {
        self.leave.notify_one();
        unexpected()
    }

    /// The same for an answer that belongs to another command: asked again on the next connection,
    /// it may be the right one.
    pub(crate) fn desynchronized(&self) -> Fault {
        self.leave.notify_one();
        Fault::passing(BackendKind::Other, "an answer that belongs to another command")
    }

    /// Whose runtime moves its bytes.
    pub(crate) fn driven_by(&self) -> DrivenBy {
        self.driver.driven_by()
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
    pub(crate) async fn gone_bad(&self) {
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

/// An error of the client, kept as it is for callers that need its code, or one of ours.
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

/// The numbers in an answer of up to seven parts.
pub(crate) fn ints(answer: &[Value]) -> [Option<i64>; 7] {
    std::array::from_fn(|at| match answer.get(at) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    })
}

/// How far the server's clock is ahead of ours.
pub(crate) struct ServerClock {
    /// In µs; `i64::MIN` while it is not known.
    ahead: AtomicI64,
}

impl ServerClock {
    pub(crate) fn unknown() -> Self {
        Self { ahead: AtomicI64::new(i64::MIN) }
    }

    /// The server has just said that it is so many µs past the epoch.
    pub(crate) fn set(&self, micros: i64) {
        let own = i64::try_from(micros_of(Clock::Boottime.now())).unwrap_or(i64::MAX);
        self.ahead.store(micros.saturating_sub(own), Ordering::Release);
    }

    /// The server's time, in µs, when `after` will have passed from now; 0 if it is not known.
    pub(crate) fn time_after(&self, after: Duration) -> u64 {
        match self.ahead.load(Ordering::Acquire) {
            i64::MIN => 0,
            ahead => micros_of(Clock::Boottime.now().after(after)).saturating_add_signed(ahead),
        }
    }
}

fn micros_of(moment: Moment) -> u64 {
    moment.as_nanos() / 1000
}
