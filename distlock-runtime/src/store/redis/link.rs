//! One connection that is always made again: a supervisor over a multiplexed connection.
//!
//! The connection's supervisor runs on the engine, and so does its driver unless it has moved to a
//! runtime that uses it much; callers send from where they are.
//! A connection is left when two commands in a row had no answer, when nothing came for a second
//! after one had none, or when the node says that it takes no writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, cmd};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::connection::{Connection, Live};
use super::driver::{Bytes, Driver};
use super::fault::not_connected;
use super::socket::{Mover, Socket};
use crate::clock::{Clock, Moment};
use crate::engine::schedule::{Alarm, Schedule};
use crate::error::BackendKind;
use crate::jitter::jittered;
use crate::race::until;
use crate::status::DrivenBy;
use crate::store::Fault;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// More earlier connections than this, where they cannot be closed, are not remembered.
const MOST_OPEN: usize = 8;
const KEEPALIVE: Duration = Duration::from_secs(1);
#[cfg(target_os = "linux")]
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
    /// Since when there was no connection; 0 while there is one, or nobody wanted one.
    down_since: AtomicU64,
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
            down_since: AtomicU64::new(0),
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
        let settled = |state: &State| match state {
            State::Unused => false,
            State::Up(_) => true,
            State::Down(fault) => !fault.passing,
        };
        Box::pin(self.outcome(limit, settled)).await
    }

    /// The connection, or why the first attempt to make one failed.
    pub(crate) async fn first(&self, limit: Moment) -> Result<Connection, Fault> {
        self.outcome(limit, |state| !matches!(state, State::Unused)).await
    }

    /// Whose runtime moves its bytes; `None` while there is no connection.
    pub(super) fn driven_by(&self) -> Option<DrivenBy> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.driven_by()),
            State::Unused | State::Down(_) => None,
        }
    }

    /// Since when it has had no connection.
    pub(super) fn down_since(&self) -> Option<Moment> {
        let since = self.down_since.load(Ordering::Relaxed);
        (since != 0).then(|| Moment::from_nanos(since))
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Why the last attempt to connect failed, or the connection was lost.
    pub(super) fn trouble(&self) -> Option<Fault> {
        match &*self.state.borrow() {
            State::Down(fault) => Some(fault.clone()),
            State::Up(_) | State::Unused => None,
        }
    }

    /// Resolves when there is a connection; it makes none.
    pub(super) async fn is_up(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Up(_))).await;
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

/// Keeps the link connected, for ever, from its first use on.
async fn supervise(link: Arc<Link>) {
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let mut past = Past::default();
    loop {
        let (fault, ended) = match establish(&link, &mut past).await {
            Ok((live, driver)) => {
                pause = FIRST_PAUSE;
                link.down_since.store(0, Ordering::Relaxed);
                link.state.send_replace(State::Up(live.clone()));
                until(driver.run(), live.gone_bad()).await;
                (lost("the connection was lost"), Some(driver))
            }
            Err(fault) => (fault, None),
        };
        let now = Clock::Boottime.now().as_nanos();
        // The first failure counts.
        let orders = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = link.down_since.compare_exchange(0, now, orders.0, orders.1);
        link.state.send_replace(State::Down(fault));
        // Only now: a call that comes before must wait for the next connection, and not be refused by
        // this one.
        if let Some(driver) = ended {
            driver.stop();
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Makes a connection and buries the one before it.
async fn establish(link: &Link, past: &mut Past) -> Result<(Arc<Live>, Arc<Driver>), Fault> {
    let LinkConfig { info, command_timeout, connect_timeout } = &link.config;
    let number = link.numbers.fetch_add(1, Ordering::Relaxed) + 1;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let connected = timeout(*connect_timeout, connect(info, config)).await;
    let connected = connected.map_err(|_| Fault::timed_out())?;
    let (connection, bytes, mover) =
        connected.map_err(|error| not_connected(&error, info.redis_settings().db()))?;
    let driver = Arc::new(Driver::new(bytes, mover));
    let greeting = timeout(*connect_timeout, greet(&connection, past, number));
    let buried_below = until(greeting, driver.run())
        .await
        .ok_or_else(|| lost("it was closed while it was made"))?
        .map_err(|_| Fault::timed_out())?;
    let (schedule, driven) = (link.schedule.clone(), driver.clone());
    let live = Live::new(connection, driven, number, buried_below, schedule, *command_timeout);
    Ok((Arc::new(live), driver))
}

fn lost(detail: &'static str) -> Fault {
    Fault::passing(BackendKind::Unreachable, detail)
}

/// Opens the socket (looking the name up again) and signs in.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: AsyncConnectionConfig,
) -> Result<(MultiplexedConnection, Bytes, Mover), RedisError> {
    match info.addr() {
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let (socket, mover) = Socket::unix(UnixStream::connect(path).await?);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), socket, config)
                    .await?;
            Ok((connection, Box::pin(driver), mover))
        }
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&keepalive)?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
            let (socket, mover) = Socket::tcp(stream);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(info.redis_settings(), socket, config)
                    .await?;
            Ok((connection, Box::pin(driver), mover))
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
