//! A connection that reconnects: a supervisor over a multiplexed connection.
//!
//! The supervisor runs on the engine's runtime and ends with it. It drives the connection as well,
//! unless a caller's task does (see [`io`](crate::connection::io)); callers send from their own tasks.
//!
//! A connection is left when two commands in a row had no answer, when nothing arrived for a second
//! after one had none, or when the node says that it takes no writes.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::alarm::{Alarm, Alarms};
use distlock_core::clock::{Clock, Moment};
use distlock_core::reconnect::{BackOff, Reconnect, keep_connected};
use distlock_core::select::until;
use distlock_core::store::DrivenBy;
use distlock_core::store::{BackendKind, Fault, LinkWatch, StoreEvents};
use redis::AsyncConnectionConfig;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::connection::connect::connect_driven;
use crate::connection::connection::{Connection, Live};
use crate::connection::discover::{Address, Discover};
use crate::connection::handshake::{Greeting, greet, why_not};
use crate::connection::io::Carry;
use crate::connection::previous::PreviousConnections;
use crate::connection::server_info::{Able, Expects};
use crate::connection::tls::TlsClient;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Commands that may wait to be written: callers beyond it wait in order.
const BUFFER: usize = 1024;

/// Bits for the connections of one link in their numbers, below those for the link's.
const CONNECTIONS: u32 = 28;
const MOVED: &str = "another server has taken its place";

/// How a link connects and how long it waits.
#[derive(Clone)]
pub(crate) struct LinkConfig {
    /// Where the server is.
    pub(crate) target: Arc<dyn Discover>,
    /// What makes it a connection with TLS.
    pub(crate) tls: Option<Arc<TlsClient>>,
    /// What kind of server is to be there.
    pub(crate) expects: Expects,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Whether a caller's runtime may drive the connection.
    pub(crate) by_callers: bool,
    /// What its state is reported to.
    pub(crate) events: Arc<dyn StoreEvents>,
}

/// A connection to one server, made on first use and again whenever it is lost.
pub(crate) struct Link {
    config: LinkConfig,
    alarms: Arc<Alarms>,
    state: watch::Sender<State>,
    /// Since when there was no connection; 0 while there is one, or before its first use.
    down_since: AtomicU64,
    /// It is to be connected: rung by its first use.
    wanted: Notify,
    /// The number of its first connection. No two connections of a manager have the same number.
    first_number: u64,
}

enum State {
    Unused,
    Up(Arc<Live>),
    Down(Fault),
}

impl Link {
    /// `number` is its own, of all links of the manager.
    pub(crate) fn start(
        config: LinkConfig,
        handle: &Handle,
        alarms: &Arc<Alarms>,
        number: u64,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            config,
            alarms: alarms.clone(),
            state: watch::Sender::new(State::Unused),
            down_since: AtomicU64::new(0),
            wanted: Notify::new(),
            first_number: (number << CONNECTIONS) + 1,
        });
        handle.spawn(supervise(link.clone()));
        link
    }

    /// The connection, if there is one now.
    #[inline]
    pub(crate) fn up(&self) -> Option<Connection> {
        match &*self.state.borrow() {
            State::Up(live) => Some(Connection::to(live)),
            State::Unused | State::Down(_) => None,
        }
    }

    /// The connection, as soon as there is one. Fails at `answer_by`, and at once where trying again
    /// cannot help.
    pub(crate) async fn live(&self, answer_by: Moment) -> Result<Connection, Fault> {
        if let State::Up(live) = &*self.state.borrow() {
            return Ok(Connection::to(live));
        }
        let settled = |state: &State| match state {
            State::Unused => false,
            State::Up(_) => true,
            State::Down(fault) => !fault.passing,
        };
        Box::pin(self.outcome(answer_by, settled)).await
    }

    /// The connection, or why the first attempt to make one failed.
    pub(crate) async fn first(&self, answer_by: Moment) -> Result<Connection, Fault> {
        self.outcome(answer_by, |state| !matches!(state, State::Unused)).await
    }

    /// Whose runtime moves its bytes; `None` while there is no connection.
    pub(crate) fn driven_by(&self) -> Option<DrivenBy> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.driven_by()),
            State::Unused | State::Down(_) => None,
        }
    }

    /// Since when it has had no connection.
    pub(crate) fn down_since(&self) -> Option<Moment> {
        let since = self.down_since.load(Ordering::Relaxed);
        (since != 0).then(|| Moment::from_nanos(since))
    }

    /// What the server is that it is connected to.
    pub(crate) fn able(&self) -> Option<Able> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.able.clone()),
            State::Unused | State::Down(_) => None,
        }
    }

    /// The number of the connection; `None` while there is none.
    pub(crate) fn number(&self) -> Option<u64> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.number),
            State::Unused | State::Down(_) => None,
        }
    }

    /// The server's time in µs, as far as its answers on this connection tell; else 0.
    pub(crate) fn server_time(&self) -> u64 {
        match &*self.state.borrow() {
            State::Up(live) => live.server_clock.time_after(Duration::ZERO),
            State::Unused | State::Down(_) => 0,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Why the last attempt to connect failed, or the connection was lost.
    pub(crate) fn last_error(&self) -> Option<Fault> {
        match &*self.state.borrow() {
            State::Down(fault) => Some(fault.clone()),
            State::Up(_) | State::Unused => None,
        }
    }

    /// Resolves when there is a connection; it makes none.
    pub(crate) async fn is_up(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Resolves when there is none.
    pub(crate) async fn is_down(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| !matches!(state, State::Up(_))).await;
    }

    fn went_up(&self, live: Arc<Live>) {
        self.down_since.store(0, Ordering::Relaxed);
        self.state.send_replace(State::Up(live));
    }

    fn went_down(&self, fault: Fault) {
        let now = Clock::Boottime.now().as_nanos();
        // Since the first of several failures.
        let orders = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.down_since.compare_exchange(0, now, orders.0, orders.1);
        self.state.send_replace(State::Down(fault));
    }

    async fn outcome(
        &self,
        answer_by: Moment,
        settled: impl Fn(&State) -> bool,
    ) -> Result<Connection, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        let _ =
            until(async { states.wait_for(|state| settled(state)).await.map(|_| ()) }, alarm).await;
        match &*self.state.borrow() {
            State::Up(live) => Ok(Connection::to(live)),
            State::Down(fault) => Err(fault.clone()),
            State::Unused => Err(Fault::timed_out()),
        }
    }
}

/// Keeps the link connected from its first use on, until the engine's runtime is dropped.
async fn supervise(link: Arc<Link>) {
    let LinkConfig { target, events, .. } = &link.config;
    if until(link.wanted.notified(), target.until_gone()).await.is_none() {
        return;
    }
    let back_off = BackOff::new(FIRST_PAUSE, target.longest_pause());
    let client = LinkClient {
        number: link.first_number,
        previous: PreviousConnections::none(link.first_number),
        watch: events.watch_link(),
        address: None,
        search: None,
        link: link.clone(),
    };
    keep_connected(client, back_off).await;
}

/// Makes the connections of a link, one after the other.
struct LinkClient {
    link: Arc<Link>,
    number: u64,
    previous: PreviousConnections,
    watch: Box<dyn LinkWatch>,
    /// Where the latest server was found.
    address: Option<Address>,
    /// Held while a connection is missing.
    search: Option<Box<dyn Send>>,
}

/// A connection that is up, and what moves its bytes.
struct Carried {
    live: Arc<Live>,
    carrier: Arc<dyn Carry>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.carrier.stop();
    }
}

impl LinkClient {
    fn node(&self) -> String {
        self.address.as_ref().map_or_else(String::new, Address::node)
    }

    fn at_node(&self, fault: Fault) -> Fault {
        match &self.address {
            Some(address) => fault.at(&address.node()),
            None => fault,
        }
    }
}

impl Reconnect for LinkClient {
    type Connected = Carried;

    async fn connect(&mut self) -> Result<Carried, Fault> {
        let number = self.number;
        self.number += 1;
        self.address = None;
        let link = self.link.clone();
        self.search = link.config.target.search();
        let address = link.config.target.find().await?;
        let made = until(
            establish(&link, &address, number, &mut self.previous),
            link.config.target.moved_from(&address),
        );
        let made = made.await.unwrap_or_else(|| Err(lost(MOVED)));
        self.address = Some(address);
        match made {
            Ok((live, carrier)) => Ok(Carried { live, carrier }),
            Err(fault) => Err(self.at_node(fault)),
        }
    }

    async fn run(&mut self, connected: &mut Carried) -> Fault {
        self.search = None;
        let Carried { live, carrier } = connected;
        self.link.went_up(live.clone());
        self.watch.up(&self.node());
        let moved = moved(&self.link, self.address.as_ref());
        until(carrier.run(), until(live.gone_bad(), moved)).await;
        self.at_node(lost("the connection was lost"))
    }

    fn down(&mut self, fault: &Fault) {
        self.link.went_down(fault.clone());
        self.watch.down(&self.node(), fault);
    }

    async fn wait(&mut self, pause: Duration) {
        until(tokio::time::sleep(pause), moved(&self.link, self.address.as_ref())).await;
    }

    fn is_over(&self) -> bool {
        self.link.config.target.is_gone()
    }
}

/// Resolves when another server has taken the place of the one at this address.
async fn moved(link: &Link, address: Option<&Address>) {
    match address {
        Some(address) => link.config.target.moved_from(address).await,
        None => pending().await,
    }
}

/// Makes a connection and closes the ones before it.
async fn establish(
    link: &Link,
    address: &Address,
    number: u64,
    previous: &mut PreviousConnections,
) -> Result<(Arc<Live>, Arc<dyn Carry>), Fault> {
    let LinkConfig { target, tls, command_timeout, connect_timeout, by_callers, .. } = &link.config;
    let Address { info, server } = address;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let connect = connect_driven(info, tls.as_deref(), config, *by_callers);
    let connected = timeout(*connect_timeout, connect).await;
    let connected = connected.map_err(|_| Fault::timed_out())?;
    let expects = link.config.expects;
    let (connection, carrier) = match connected {
        Ok(connected) => connected,
        Err(error) => return Err(why_not(&error, info, tls.as_deref(), expects.mode).await),
    };
    let greeted = async {
        let Greeting { able, peer } = greet(&connection, expects).await?;
        Ok((able, previous.close(&connection, peer, number, *server).await))
    };
    let greeted = until(timeout(*connect_timeout, greeted), carrier.run());
    let (able, closed) = greeted
        .await
        .ok_or_else(|| lost("it was closed while it was made"))?
        .map_err(|_| Fault::timed_out())??;
    let (alarms, own) = (link.alarms.clone(), carrier.clone());
    let at = (target.node(), address.node().into());
    let live = Live::new(connection, own, number, closed, (able, at), alarms, *command_timeout);
    Ok((Arc::new(live), carrier))
}

fn lost(detail: &'static str) -> Fault {
    Fault::passing(BackendKind::Unreachable, detail)
}
