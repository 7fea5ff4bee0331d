//! A connection that is up. It sends commands with a time limit, checks that replies belong to their commands, and
//! detects that the connection must be dropped.
//!
//! [`LiveConnection`] is the connection. [`ConnectionHandle`] is one caller's handle of it.

use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::select::until;
use distlock_core::store::{BackendKind, DrivenBy, Fault};
use distlock_core::timers::{Alarm, Alarms};
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

/// Drop the connection after this long without a reply, once a command has timed out.
const SILENCE: Duration = Duration::from_secs(1);

/// One caller's handle of a connection that is up.
pub(crate) struct ConnectionHandle {
    handle: MultiplexedConnection,
    pub(crate) live: Arc<LiveConnection>,
    /// Whether the command was sent to another node of a cluster before, which did not run it.
    pub(crate) resent: bool,
    /// Whether the slot is being migrated to this node: each command asks the node to serve it already (`ASKING`).
    pub(crate) asking: bool,
    /// The refusal of a node of a cluster to run the last command.
    pub(crate) redirect: Option<Redirect>,
}

/// A connection that is up.
pub(crate) struct LiveConnection {
    connection: MultiplexedConnection,
    driver: Arc<Driver>,
    /// The number of the connection, which is never 0.
    pub(crate) number: u64,
    /// The numbers of earlier connections of this link that are closed at the server: commands that were sent on them
    /// will not run any more.
    pub(crate) closed: Range<u64>,
    /// The server's description of itself.
    pub(crate) server_info: ServerInfo,
    /// The address of the node; `None` without a cluster.
    pub(crate) node: Option<Addr>,
    /// The server's address, for errors.
    address: Arc<str>,
    /// The clock of the server.
    pub(crate) server_clock: ServerClock,
    /// Whether the fence counter was raised to the server's time on this connection.
    pub(crate) fence_raised: AtomicBool,
    /// Decides which attempts are marked.
    pub(crate) marks: Marks,
    /// The `WAIT` commands of this connection.
    pub(crate) waits: Arc<ReplicaWaits>,
    /// The scripts whose texts were sent on this connection, as bits.
    texts: AtomicU8,
    alarms: Arc<Alarms>,
    command_timeout: Duration,
    /// When a command first had no reply, with none replied to since; 0 if all is well.
    unanswered_since: AtomicU64,
    suspect: Notify,
    leave: Notify,
}

/// An error of the client library, kept for callers that need its code, or a fault.
pub(crate) enum RedisOr {
    Redis(RedisError),
    Fault(Fault),
}

/// The difference between the server's clock and this process's clock.
pub(crate) struct ServerClock {
    /// The server's clock minus our clock, in µs; `i64::MIN` while it is unknown.
    ahead: AtomicI64,
}

impl ConnectionHandle {
    pub(crate) fn to(live: &Arc<LiveConnection>) -> Self {
        let handle = live.connection.clone();
        Self { handle, live: live.clone(), resent: false, asking: false, redirect: None }
    }

    /// Sends one command. A reply that is an error is an `Err`.
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

    /// Sends commands in one write. Each has a reply of its own, which may be an error. `sent` was read before, from
    /// the clock of the leases.
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

    /// Runs a script unless `given_up` returns `true` before its text is sent. The text is sent later than the hash,
    /// when later commands may have been sent already.
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

impl LiveConnection {
    pub(crate) fn new(
        connection: MultiplexedConnection,
        driver: Arc<Driver>,
        number: u64,
        closed: Range<u64>,
        (server_info, (node, address)): (ServerInfo, (Option<Addr>, Arc<str>)),
        alarms: Arc<Alarms>,
        command_timeout: Duration,
    ) -> Self {
        Self {
            connection,
            driver,
            number,
            closed,
            server_info,
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

    /// Decides how to recognize the replies to an attempt of the fast path that is sent now.
    pub(crate) fn marking(&self, now: Moment) -> Marking {
        self.marks.next(now, &self.driver)
    }

    /// Whether a further command was sent, besides one known command, since `sent_before` commands had been sent.
    pub(crate) fn was_overtaken(&self, sent_before: u32) -> bool {
        self.driver.sent() != sent_before.wrapping_add(1)
    }

    /// Whether to send the script as text now. Afterwards its hash is enough on this connection.
    pub(crate) fn needs_text(&self, script: &Script) -> bool {
        // Reads first: a write would take the cache line from every other thread.
        let bit = script.bit;
        self.texts.load(Ordering::Relaxed) & bit != bit
            && self.texts.fetch_or(bit, Ordering::Relaxed) & bit != bit
    }

    /// Waits for a future until `answer_by`; `None` if the time is over first.
    pub(crate) async fn within<T>(
        &self,
        future: impl Future<Output = T>,
        answer_by: Moment,
    ) -> Option<T> {
        until(future, Alarm::at(&self.alarms, Clock::Boottime, answer_by)).await
    }

    /// Runs `call` until the limit or the command timeout.
    ///
    /// Takes a pinned future: every layer that takes a future by value adds twice its size to the future around it, and
    /// these are moved to the heap for every lock.
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
                // Reads first: a write would take the cache line from every other thread.
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
                // A call that was cut short by its caller's limit says little about the connection. But most limits are
                // a command timeout as well, counted from a moment before.
                if answer_by.since(sent) >= self.command_timeout / 4 * 3 {
                    self.missed(sent);
                }
                Err(RedisOr::Fault(Fault::timed_out().at(&self.address)))
            }
        }
    }

    /// Drops the connection if the node cannot serve locks any more: `READONLY`, `NOAUTH` …
    pub(crate) fn check_error(&self, error: &RedisError) {
        if leaves_connection(error) {
            self.leave.notify_one();
        }
    }

    /// Drops the connection if this reply of a pipeline is such an error.
    pub(crate) fn check_answer(&self, answer: &Value) {
        if let Value::ServerError(error) = answer {
            self.check_error(&RedisError::from(error.clone()));
        }
    }

    /// Drops the connection after a reply that no server gives to this command: later replies cannot be trusted either.
    /// Returns the fault.
    pub(crate) fn unexpected_answer(&self) -> Fault {
        self.leave.notify_one();
        unexpected()
    }

    /// Drops the connection after a reply that belongs to another command. Returns a passing fault, because a retry on
    /// the next connection may succeed.
    pub(crate) fn desynchronized(&self) -> Fault {
        self.leave.notify_one();
        Fault::passing(BackendKind::Other, "an answer that belongs to another command")
    }

    /// Returns whose runtime moves the bytes.
    pub(crate) fn driven_by(&self) -> DrivenBy {
        self.driver.driven_by()
    }

    /// Notes a command without a reply. The second one in a row drops the connection. Commands that were sent together
    /// count as one.
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

    /// Resolves when the connection should be dropped.
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

impl RedisOr {
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Self::Redis(error) => fault(&error),
            Self::Fault(fault) => fault,
        }
    }
}

/// Reads an integer reply.
pub(crate) fn integer(value: &Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::ServerError(error) => Err(fault(&RedisError::from(error.clone()))),
        _ => Err(unexpected()),
    }
}

/// Returns the numbers in a reply of up to seven parts.
pub(crate) fn ints(answer: &[Value]) -> [Option<i64>; 7] {
    std::array::from_fn(|at| match answer.get(at) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    })
}

impl ServerClock {
    pub(crate) fn unknown() -> Self {
        Self { ahead: AtomicI64::new(i64::MIN) }
    }

    /// Notes the server's time, in µs since the epoch, that has just arrived.
    pub(crate) fn set(&self, micros: i64) {
        let own = i64::try_from(micros_of(Clock::Boottime.now())).unwrap_or(i64::MAX);
        self.ahead.store(micros.saturating_sub(own), Ordering::Release);
    }

    /// Returns the server's time in µs, `after` from now; 0 if it is unknown.
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
