//! One connection that is always made again: a supervisor over a multiplexed connection.
//!
//! The connection's driver and its supervisor run on the engine; callers send from where they are.
//! A connection is left when two commands in a row had no answer, when nothing came for a second
//! after one had none, or when the node says that it takes no writes.

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, Value, cmd,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::driver::{Bytes, Driver};
use super::fault::{fault, leaves_connection, unexpected};
use crate::clock::{Clock, Moment};
use crate::engine::schedule::{Alarm, Schedule};
use crate::error::BackendKind;
use crate::race::until;
use crate::store::Fault;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Silence after a command without an answer.
const SILENCE: Duration = Duration::from_secs(1);
/// More earlier connections than this, where they cannot be closed, are not remembered.
const MOST_OPEN: usize = 8;
const KEEPALIVE: Duration = Duration::from_secs(1);
const USER_TIMEOUT: Duration = Duration::from_secs(2);
/// Commands that may wait to be written: callers beyond it wait in order.
const BUFFER: usize = 1024;

/// How a link connects and how long it waits.
#[derive(Clone)]
pub(crate) struct LinkConfig {
    pub(crate) info: ConnectionInfo,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

/// A connection to one server, made on first use and again whenever it is lost.
pub(crate) struct Link {
    config: LinkConfig,
    schedule: Arc<Schedule>,
    state: watch::Sender<State>,
    /// Somebody wants to use it.
    wanted: Notify,
    /// Connections are numbered, over all links of a pool.
    numbers: Arc<AtomicU64>,
}

enum State {
    Unused,
    Up(Arc<Live>),
    Down(Fault),
}

impl Link {
    pub(crate) fn start(
        config: LinkConfig,
        handle: &Handle,
        schedule: &Arc<Schedule>,
        numbers: &Arc<AtomicU64>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            config,
            schedule: schedule.clone(),
            state: watch::Sender::new(State::Unused),
            wanted: Notify::new(),
            numbers: numbers.clone(),
        });
        handle.spawn(supervise(link.clone()));
        link
    }

    /// The connection, as soon as there is one. Fails at `limit`, and at once where trying again
    /// cannot help.
    pub(crate) async fn live(&self, limit: Moment) -> Result<Connection, Fault> {
        if let State::Up(live) = &*self.state.borrow() {
            return Ok(Connection::to(live));
        }
        self.outcome(limit, |state| match state {
            State::Unused => false,
            State::Up(_) => true,
            State::Down(fault) => !fault.passing,
        })
        .await
    }

    /// The connection, or why the first attempt to make one failed.
    pub(crate) async fn first(&self, limit: Moment) -> Result<Connection, Fault> {
        self.outcome(limit, |state| !matches!(state, State::Unused)).await
    }

    async fn outcome(
        &self,
        limit: Moment,
        settled: impl Fn(&State) -> bool,
    ) -> Result<Connection, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let alarm = Alarm::at(&self.schedule, Clock::Boottime, limit);
        let _ =
            until(async { states.wait_for(|state| settled(state)).await.map(|_| ()) }, alarm).await;
        match &*self.state.borrow() {
            State::Up(live) => Ok(Connection::to(live)),
            State::Down(fault) => Err(fault.clone()),
            State::Unused => Err(Fault::timed_out()),
        }
    }
}

/// A connection that is up, in one caller's hand.
pub(crate) struct Connection {
    handle: MultiplexedConnection,
    live: Arc<Live>,
}

impl Connection {
    fn to(live: &Arc<Live>) -> Self {
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
    schedule: Arc<Schedule>,
    command_timeout: Duration,
    /// When a command first had no answer, with none answered since; 0 if all is well.
    unanswered_since: AtomicU64,
    suspect: Notify,
    leave: Notify,
}

impl Live {
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
                if limit.since(sent) >= self.command_timeout * 3 / 4 {
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
    async fn gone_bad(&self) {
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

/// Keeps the link connected, for ever, from its first use on.
async fn supervise(link: Arc<Link>) {
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let mut past = Past::default();
    loop {
        let number = link.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let attempt = tokio::time::timeout(link.config.connect_timeout, connect(&link.config.info));
        match attempt.await {
            Ok(Ok((connection, driver))) => {
                let driver = Arc::new(Driver::new(driver));
                let greeting = greet(&connection, &mut past, number);
                let greeting = tokio::time::timeout(link.config.connect_timeout, greeting);
                match until(greeting, driver.run()).await {
                    Some(Ok(buried_below)) => {
                        pause = FIRST_PAUSE;
                        let live = Arc::new(Live {
                            connection,
                            driver: driver.clone(),
                            number,
                            buried_below,
                            fence_raised: AtomicBool::new(false),
                            schedule: link.schedule.clone(),
                            command_timeout: link.config.command_timeout,
                            unanswered_since: AtomicU64::new(0),
                            suspect: Notify::new(),
                            leave: Notify::new(),
                        });
                        link.state.send_replace(State::Up(live.clone()));
                        until(driver.run(), live.gone_bad()).await;
                        driver.stop();
                        link.state.send_replace(State::Down(lost("the connection was lost")));
                    }
                    Some(Err(_)) => {
                        link.state.send_replace(State::Down(Fault::timed_out()));
                    }
                    None => {
                        link.state.send_replace(State::Down(lost("closed while it was made")));
                    }
                }
            }
            Ok(Err(error)) => {
                link.state.send_replace(State::Down(fault(&error)));
            }
            Err(_) => {
                link.state.send_replace(State::Down(Fault::timed_out()));
            }
        }
        tokio::time::sleep(crate::jitter::jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn lost(detail: &'static str) -> Fault {
    Fault::passing(BackendKind::Unreachable, detail)
}

/// Opens the socket (looking the name up again) and signs in.
async fn connect(info: &ConnectionInfo) -> Result<(MultiplexedConnection, Bytes), RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    match info.addr() {
        ConnectionAddr::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), stream, config)
                    .await?;
            Ok((connection, Box::pin(driver)))
        }
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&keepalive)?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), stream, config)
                    .await?;
            Ok((connection, Box::pin(driver)))
        }
        _ => Err(RedisError::from((
            redis::ErrorKind::InvalidClientConfig,
            "this kind of address is not supported",
        ))),
    }
}

/// Closes this link's earlier connections at the server, where an ACL allows it: what was sent on
/// them and not read yet can then never run. Returns the number below which that is certain.
async fn greet(connection: &MultiplexedConnection, past: &mut Past, number: u64) -> u64 {
    let mut connection = connection.clone();
    let own = peer(&mut connection).await;
    let mut open = Vec::new();
    for peer in &past.open {
        // The number alone may be another client's: a server that was started again counts anew.
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&peer.id).arg("ADDR").arg(&peer.addr);
        // Where one cannot be closed the next one cannot either.
        if !open.is_empty() || kill.query_async::<i64>(&mut connection).await.is_err() {
            open.push(peer.clone());
        }
    }
    let forgotten = open.len().saturating_sub(MOST_OPEN);
    open.drain(..forgotten);
    let unnamed = past.unnamed || own.is_none() || forgotten > 0;
    let all_closed = open.is_empty() && !past.unnamed;
    let buried_below = if all_closed { number } else { past.buried_below };
    open.extend(own);
    // Not before here: whoever gives up on the greeting must find everything as it was.
    *past = Past { open, unnamed, buried_below };
    buried_below
}

/// As the server sees this connection, if it tells.
async fn peer(connection: &mut MultiplexedConnection) -> Option<Peer> {
    let info: String = cmd("CLIENT").arg("INFO").query_async(connection).await.ok()?;
    let field = |name| info.split_whitespace().find_map(|field| field.strip_prefix(name));
    Some(Peer { id: field("id=")?.to_owned(), addr: field("addr=")?.to_owned() })
}

/// Earlier connections of a link.
#[derive(Default)]
struct Past {
    /// Those that are not known to be closed at the server.
    open: Vec<Peer>,
    /// There are more, and nobody knows what the server calls them.
    unnamed: bool,
    buried_below: u64,
}

/// What a server calls a connection.
#[derive(Clone)]
struct Peer {
    id: String,
    addr: String,
}

/// Reads an integer answer.
pub(crate) fn integer(value: &Value) -> Result<i64, Fault> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::ServerError(error) => Err(fault(&RedisError::from(error.clone()))),
        _ => Err(unexpected()),
    }
}
