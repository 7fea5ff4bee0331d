//! A link: a place for one connection, which is opened again whenever it is lost.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::back_off::BackOff;
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::store::{Fault, LinkWatch};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, CancelToken, Client};

use crate::commands::PREPARED;
use crate::connect::{Driving, OpenConnection, abandon, connect, race};
use crate::database::{ConnectionPermit, Database};
use crate::error::PostgresError;
use crate::schema;
use crate::session::{PostgresSession, SessionHealth};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause after the server or the role allowed no further connection. Each attempt costs the server a process,
/// and other links are usually connected.
const PAUSE_AT_LIMIT: Duration = Duration::from_secs(5);
/// An abandoned connection has this much time to end before the next one is opened.
const ABANDON_TIMEOUT: Duration = Duration::from_millis(500);
/// The routine of the server that sends a notice when it stops waiting for a standby. Its name is the same in any
/// language.
const STANDBY_ROUTINE: &str = "SyncRepWaitForLSN";

/// A link to one database. It is connected on first use.
pub(crate) struct PostgresLink {
    database: Arc<Database>,
    state: watch::Sender<PostgresLinkState>,
    used: Notify,
    down_since: Mutex<Option<Instant>>,
}

/// The state of a link.
#[derive(Clone)]
pub(crate) enum PostgresLinkState {
    Unused,
    Up(PostgresSession),
    Down(Fault),
}

impl PostgresLink {
    pub(crate) fn start(
        database: &Arc<Database>,
        handle: &Handle,
        watch: Box<dyn LinkWatch>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            database: database.clone(),
            state: watch::Sender::new(PostgresLinkState::Unused),
            used: Notify::new(),
            down_since: Mutex::new(None),
        });
        handle.spawn(supervise(link.clone(), watch));
        link
    }

    /// Starts to connect if the link is unused. Returns its state.
    pub(crate) fn use_link(&self) -> PostgresLinkState {
        let state = self.state.borrow().clone();
        if matches!(state, PostgresLinkState::Unused) {
            self.used.notify_one();
        }
        state
    }

    /// Returns the session if the link is up.
    pub(crate) fn session(&self) -> Option<PostgresSession> {
        match &*self.state.borrow() {
            PostgresLinkState::Up(session) => Some(session.clone()),
            PostgresLinkState::Down(_) | PostgresLinkState::Unused => None,
        }
    }

    /// Returns the session, or the failure of the first attempt to connect.
    pub(crate) async fn first_session(&self) -> Result<PostgresSession, PostgresError> {
        self.used.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, PostgresLinkState::Unused)).await;
        match state.as_deref() {
            Ok(PostgresLinkState::Up(session)) => Ok(session.clone()),
            Ok(PostgresLinkState::Down(fault)) => Err(fault.clone().into()),
            _ => Err(PostgresError::unreachable("the connection is not kept up any more")),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), PostgresLinkState::Up(_))
    }

    /// Resolves when the link is up. Does not start to connect.
    pub(crate) async fn until_up(&self) {
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| matches!(state, PostgresLinkState::Up(_)))
            .await;
    }

    /// Resolves when the link is not up, or not any more.
    pub(crate) async fn until_down(&self) {
        let _ = self
            .state
            .subscribe()
            .wait_for(|state| !matches!(state, PostgresLinkState::Up(_)))
            .await;
    }

    /// Returns since when the link is down, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            PostgresLinkState::Down(fault) => Some((since, fault.clone())),
            PostgresLinkState::Up(_) | PostgresLinkState::Unused => None,
        }
    }

    fn set_state(&self, state: PostgresLinkState) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.is_up(), matches!(state, PostgresLinkState::Up(_))) {
            (false, true) => drop(self.database.connected.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.database.connected.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        match &state {
            PostgresLinkState::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            PostgresLinkState::Up(_) | PostgresLinkState::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
        self.database.changes.send_replace(());
    }
}

/// Keeps the link connected from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<PostgresLink>, watch: Box<dyn LinkWatch>) {
    link.used.notified().await;
    let servers = link.database.url.servers();
    let connection = LinkConnection { link, servers, watch, silent: None, is_at_limit: false };
    keep_connected(connection, BackOff::new(FIRST_PAUSE, LONGEST_PAUSE)).await;
}

/// The connection of a link, which is opened again whenever it is lost.
struct LinkConnection {
    link: Arc<PostgresLink>,
    servers: String,
    watch: Box<dyn LinkWatch>,
    /// The last connection if it has fallen silent, until the link is down.
    silent: Option<EstablishedSession>,
    /// The server or the role has allowed no further connection.
    is_at_limit: bool,
}

impl Reconnect for LinkConnection {
    /// It is `None` once the connection has fallen silent.
    type Connected = Option<EstablishedSession>;

    async fn connect(&mut self) -> Result<Option<EstablishedSession>, Fault> {
        let database = &self.link.database;
        establish(database).await.map(Some).map_err(|error| {
            let others = database.connected.load(Ordering::Relaxed);
            self.is_at_limit = error.is_of_a_limit() && others > 0;
            error.at(&self.servers).into()
        })
    }

    async fn run(&mut self, connected: &mut Option<EstablishedSession>) -> Fault {
        if let Some(established) = connected {
            self.link.set_state(PostgresLinkState::Up(established.session.clone()));
            self.watch.up(&self.servers);
            let prepare = async {
                established.session.prepare(&PREPARED).await;
                pending::<()>().await;
            };
            let silence = self.link.database.longest_silence();
            let until_bad = established.session.health.until_bad(silence);
            let until_bad = async { race(until_bad, prepare).await };
            let is_silent = race(until_bad, &mut established.driving).await.flatten();
            if is_silent.unwrap_or(false) {
                self.silent = connected.take();
            }
        }
        PostgresError::unreachable("the connection was lost").at(&self.servers).into()
    }

    fn down(&mut self, fault: &Fault) {
        self.link.set_state(PostgresLinkState::Down(fault.clone()));
        self.watch.down(&self.servers, &fault.reason());
    }

    async fn wait(&mut self, pause: Duration) {
        let database = &self.link.database;
        if let Some(silent) = self.silent.take() {
            let EstablishedSession { session, driving, token, permit, host } = silent;
            drop(session);
            database.avoid_host(host);
            let _ = timeout(ABANDON_TIMEOUT, abandon(database, driving, token, permit)).await;
        }
        let is_at_limit = std::mem::take(&mut self.is_at_limit);
        tokio::time::sleep(if is_at_limit { PAUSE_AT_LIMIT } else { pause }).await;
    }
}

/// A new session, with what is needed to end its connection.
struct EstablishedSession {
    session: PostgresSession,
    driving: Driving,
    token: CancelToken,
    permit: ConnectionPermit,
    /// The index of its host in the URL.
    host: usize,
}

/// Connects, and brings the database to the state that commands need.
async fn establish(database: &Arc<Database>) -> Result<EstablishedSession, PostgresError> {
    let OpenConnection { client, driver, permit, host } = connect(database).await?;
    let token = client.cancel_token();
    let health = Arc::new(SessionHealth::default());
    let observed = health.clone();
    // The commands report why the connection has ended. The connection can end at the moment at which the
    // handshake is done, and is then polled again.
    let mut driving = driver.drive(move |message| {
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some(STANDBY_ROUTINE)
        {
            observed.standby_skipped();
        }
    });
    let handshake = timeout(database.connect_timeout, handshake(database, client, health));
    match race(handshake, &mut driving).await {
        Some(Ok(session)) => {
            Ok(EstablishedSession { session: session?, driving, token, permit, host })
        }
        Some(Err(_)) => {
            drop(abandon(database, driving, token, permit));
            Err(PostgresError::connect_timed_out())
        }
        None => Err(PostgresError::unreachable("it was closed while it was made")),
    }
}

/// Creates the schema if it is missing, and raises the sequence.
async fn handshake(
    database: &Arc<Database>,
    client: Client,
    health: Arc<SessionHealth>,
) -> Result<PostgresSession, PostgresError> {
    schema::ensure(&client).await?;
    let number = database.sessions.fetch_add(1, Ordering::Relaxed) + 1;
    let session = PostgresSession::new(client, number, health, database.clone());
    session.raise().await?;
    Ok(session)
}
