//! Links: connections that reconnect, and the pool of links to one server.
//!
//! A supervisor on the engine's runtime opens the connection of a link, and again whenever it is lost. It also drives
//! the connection, unless a task of a caller does (see [`io`](crate::connection::io)). Callers send from their own
//! tasks.
//!
//! Clients drop the connection when two commands in a row had no reply, when nothing arrived for a second after a
//! command had none, or when the node replies that it accepts no writes.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::back_off::BackOff;
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::StoredName;
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::select::until;
use distlock_core::store::{BackendKind, DrivenBy, Fault, LinkWatch, Outage, StoreEvents};
use distlock_core::timers::{Alarm, Alarms};
use redis::AsyncConnectionConfig;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::connection::connect::connect_driven;
use crate::connection::discover::{Address, Discover};
use crate::connection::handshake::{Greeting, greet, why_not};
use crate::connection::io::Driver;
use crate::connection::live::{ConnectionHandle, LiveConnection};
use crate::connection::previous::PreviousConnections;
use crate::connection::server_info::{ExpectedServer, ServerInfo};
use crate::connection::tls::TlsClient;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The number of commands that may wait to be written. Further callers wait in order.
const BUFFER: usize = 1024;

/// Number of bits for the connections of one link in their numbers, below the bits for the link.
const CONNECTIONS: u32 = 28;
const MOVED: &str = "another server has taken its place";

/// The settings of a link.
#[derive(Clone)]
pub(crate) struct LinkConfig {
    /// Finds the server.
    pub(crate) target: Arc<dyn Discover>,
    /// Makes the connection one with TLS.
    pub(crate) tls: Option<Arc<TlsClient>>,
    /// The kind of server that is expected.
    pub(crate) expects: ExpectedServer,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Whether a caller's runtime may drive the connection.
    pub(crate) by_callers: bool,
    /// Receives reports on the state of the link.
    pub(crate) events: Arc<dyn StoreEvents>,
}

/// A connection to one server, opened on first use and again whenever it is lost.
pub(crate) struct Link {
    config: LinkConfig,
    alarms: Arc<Alarms>,
    state: watch::Sender<LinkState>,
    /// Since when there is no connection; 0 while there is one, or before the first use.
    down_since: AtomicU64,
    /// Notified by the first use, which makes the link connect.
    wanted: Notify,
    /// The number of the first connection. All connections of a manager have different numbers.
    first_number: u64,
}

/// The state of a link.
enum LinkState {
    /// No caller has used the link yet.
    Unused,
    Up(Arc<LiveConnection>),
    /// There is no connection, for this reason.
    Down(Fault),
}

impl Link {
    /// Starts a link. `number` is unique among the links of the manager.
    pub(crate) fn start(
        config: LinkConfig,
        handle: &Handle,
        alarms: &Arc<Alarms>,
        number: u64,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            config,
            alarms: alarms.clone(),
            state: watch::Sender::new(LinkState::Unused),
            down_since: AtomicU64::new(0),
            wanted: Notify::new(),
            first_number: (number << CONNECTIONS) + 1,
        });
        handle.spawn(supervise(link.clone()));
        link
    }

    /// Returns the connection, if there is one now.
    #[inline]
    pub(crate) fn up(&self) -> Option<ConnectionHandle> {
        match &*self.state.borrow() {
            LinkState::Up(live) => Some(ConnectionHandle::to(live)),
            LinkState::Unused | LinkState::Down(_) => None,
        }
    }

    /// Waits for a connection. Fails at `answer_by`, or at once if retrying cannot help.
    pub(crate) async fn connection(&self, answer_by: Moment) -> Result<ConnectionHandle, Fault> {
        if let LinkState::Up(live) = &*self.state.borrow() {
            return Ok(ConnectionHandle::to(live));
        }
        let settled = |state: &LinkState| match state {
            LinkState::Unused => false,
            LinkState::Up(_) => true,
            LinkState::Down(fault) => !fault.passing,
        };
        Box::pin(self.outcome(answer_by, settled)).await
    }

    /// Waits for the first attempt to connect, and returns its result.
    pub(crate) async fn first(&self, answer_by: Moment) -> Result<ConnectionHandle, Fault> {
        self.outcome(answer_by, |state| !matches!(state, LinkState::Unused)).await
    }

    /// Returns whose runtime moves the bytes; `None` while there is no connection.
    pub(crate) fn driven_by(&self) -> Option<DrivenBy> {
        match &*self.state.borrow() {
            LinkState::Up(live) => Some(live.driven_by()),
            LinkState::Unused | LinkState::Down(_) => None,
        }
    }

    /// Returns since when there is no connection.
    pub(crate) fn down_since(&self) -> Option<Moment> {
        let since = self.down_since.load(Ordering::Relaxed);
        (since != 0).then(|| Moment::from_nanos(since))
    }

    /// Returns the outage, if there was a connection or an attempt to make one, and there is none now.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let since = self.down_since()?;
        match &*self.state.borrow() {
            LinkState::Down(fault) => Some(Outage { since, fault: fault.clone() }),
            LinkState::Up(_) | LinkState::Unused => None,
        }
    }

    /// Returns the description of the server that it is connected to.
    pub(crate) fn server_info(&self) -> Option<ServerInfo> {
        match &*self.state.borrow() {
            LinkState::Up(live) => Some(live.server_info.clone()),
            LinkState::Unused | LinkState::Down(_) => None,
        }
    }

    /// Returns the number of the connection; `None` while there is none.
    pub(crate) fn number(&self) -> Option<u64> {
        match &*self.state.borrow() {
            LinkState::Up(live) => Some(live.number),
            LinkState::Unused | LinkState::Down(_) => None,
        }
    }

    /// Returns the server's time in µs, as far as replies on this connection tell; else 0.
    pub(crate) fn server_time(&self) -> u64 {
        match &*self.state.borrow() {
            LinkState::Up(live) => live.server_clock.time_after(Duration::ZERO),
            LinkState::Unused | LinkState::Down(_) => 0,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Up(_))
    }

    /// Returns why the last attempt to connect failed, or why the connection was lost.
    pub(crate) fn last_error(&self) -> Option<Fault> {
        match &*self.state.borrow() {
            LinkState::Down(fault) => Some(fault.clone()),
            LinkState::Up(_) | LinkState::Unused => None,
        }
    }

    /// Resolves when there is a connection. It does not open one.
    pub(crate) async fn is_up(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, LinkState::Up(_))).await;
    }

    /// Resolves when there is no connection.
    pub(crate) async fn is_down(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| !matches!(state, LinkState::Up(_))).await;
    }

    fn went_up(&self, live: Arc<LiveConnection>) {
        self.down_since.store(0, Ordering::Relaxed);
        self.state.send_replace(LinkState::Up(live));
    }

    fn went_down(&self, fault: Fault) {
        let now = Clock::Boottime.now().as_nanos();
        // Keeps the time of the first of several failures.
        let orders = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.down_since.compare_exchange(0, now, orders.0, orders.1);
        self.state.send_replace(LinkState::Down(fault));
    }

    async fn outcome(
        &self,
        answer_by: Moment,
        settled: impl Fn(&LinkState) -> bool,
    ) -> Result<ConnectionHandle, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        let _ =
            until(async { states.wait_for(|state| settled(state)).await.map(|_| ()) }, alarm).await;
        match &*self.state.borrow() {
            LinkState::Up(live) => Ok(ConnectionHandle::to(live)),
            LinkState::Down(fault) => Err(fault.clone()),
            LinkState::Unused => Err(Fault::timed_out()),
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

/// Opens the connections of a link, one after the other.
struct LinkClient {
    link: Arc<Link>,
    number: u64,
    previous: PreviousConnections,
    watch: Box<dyn LinkWatch>,
    /// The address of the latest server.
    address: Option<Address>,
    /// Held while a connection is missing.
    search: Option<Box<dyn Send>>,
}

/// A connection that is up, and its driver.
struct DrivenConnection {
    live: Arc<LiveConnection>,
    driver: Arc<Driver>,
}

impl Drop for DrivenConnection {
    fn drop(&mut self) {
        self.driver.stop();
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
    type Connected = DrivenConnection;

    async fn connect(&mut self) -> Result<DrivenConnection, Fault> {
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
            Ok((live, driver)) => Ok(DrivenConnection { live, driver }),
            Err(fault) => Err(self.at_node(fault)),
        }
    }

    async fn run(&mut self, connected: &mut DrivenConnection) -> Fault {
        self.search = None;
        let DrivenConnection { live, driver } = connected;
        self.link.went_up(live.clone());
        self.watch.up(&self.node());
        let moved = moved(&self.link, self.address.as_ref());
        until(driver.run(), until(live.gone_bad(), moved)).await;
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

/// Resolves when another server has replaced the one at this address.
async fn moved(link: &Link, address: Option<&Address>) {
    match address {
        Some(address) => link.config.target.moved_from(address).await,
        None => pending().await,
    }
}

/// Opens a connection and closes the earlier ones.
async fn establish(
    link: &Link,
    address: &Address,
    number: u64,
    previous: &mut PreviousConnections,
) -> Result<(Arc<LiveConnection>, Arc<Driver>), Fault> {
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
    let (connection, driver) = match connected {
        Ok(connected) => connected,
        Err(error) => return Err(why_not(&error, info, tls.as_deref(), expects.mode).await),
    };
    let greeted = async {
        let Greeting { server_info, peer } = greet(&connection, expects).await?;
        Ok((server_info, previous.close(&connection, peer, number, *server).await))
    };
    let greeted = until(timeout(*connect_timeout, greeted), driver.run());
    let (server_info, closed) = greeted
        .await
        .ok_or_else(|| lost("it was closed while it was made"))?
        .map_err(|_| Fault::timed_out())??;
    let (alarms, own) = (link.alarms.clone(), driver.clone());
    let at = (target.node(), address.node().into());
    let live = LiveConnection::new(
        connection,
        own,
        number,
        closed,
        (server_info, at),
        alarms,
        *command_timeout,
    );
    Ok((Arc::new(live), driver))
}

fn lost(detail: &'static str) -> Fault {
    Fault::passing(BackendKind::Unreachable, detail)
}

/// The links to one server: some for commands, and one for renewals, which acquires must not delay.
pub(crate) struct LinkPool {
    commands: Vec<Arc<Link>>,
    renewals: Arc<Link>,
}

impl LinkPool {
    /// Starts the links to one server. `links` counts the links of the manager.
    pub(crate) fn start(
        config: &LinkConfig,
        connections: usize,
        links: &AtomicU64,
        handle: &Handle,
        alarms: &Arc<Alarms>,
    ) -> Self {
        let start =
            |config| Link::start(config, handle, alarms, links.fetch_add(1, Ordering::Relaxed));
        // Only the engine sends renewals.
        let renewals = LinkConfig { by_callers: false, ..config.clone() };
        Self {
            commands: (0..connections).map(|_| start(config.clone())).collect(),
            renewals: start(renewals),
        }
    }

    /// Returns the link for commands that may create or free this lock.
    #[inline]
    pub(crate) fn commands(&self, lock: &StoredName) -> &Arc<Link> {
        &self.commands[self.lane(lock)]
    }

    /// Returns the index of that link.
    #[inline]
    pub(crate) fn lane(&self, lock: &StoredName) -> usize {
        lock.part(self.commands.len())
    }

    /// Returns the link for renewals. A renewal only extends an existing lease, so the order of renewals does not
    /// matter.
    pub(crate) fn renewals(&self) -> &Arc<Link> {
        &self.renewals
    }

    /// Whether a link for commands is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.commands.iter().any(|link| link.is_connected())
    }

    /// Returns the outage, if no link for commands is connected.
    #[inline]
    pub(crate) fn outage(&self) -> Option<Outage> {
        // Nearly every call finds no outage.
        match self.commands.iter().all(|link| link.down_since().is_none()) {
            true => None,
            false => self.outage_of_all(),
        }
    }

    fn outage_of_all(&self) -> Option<Outage> {
        let since = self.commands.iter().filter_map(|link| link.down_since()).min()?;
        if self.is_connected() {
            return None;
        }
        let fault = self.commands.iter().find_map(|link| link.last_error())?;
        Some(Outage { since, fault })
    }

    /// Returns all links for commands.
    pub(crate) fn all(&self) -> &[Arc<Link>] {
        &self.commands
    }

    /// Returns a link for commands that are not about a lock.
    pub(crate) fn any(&self) -> &Arc<Link> {
        &self.commands[0]
    }
}
