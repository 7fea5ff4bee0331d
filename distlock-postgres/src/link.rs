//! A link: a place for one connection, which is opened again whenever it is lost.

use std::future::{Future, pending};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, CancelToken, Client};

use crate::commands::PREPARED;
use crate::connect::{OpenConnection, abandon, connect, race};
use crate::database::{ConnectionPermit, Database};
use crate::error::PostgresError;
use crate::schema;
use crate::session::{PostgresSession, SessionHealth};

/// An observer of one link. It is called with the servers, and with the failure if the link is down. It is dropped
/// once the link is no longer needed.
pub type LinkObserver = Box<dyn FnMut(&str, Option<&PostgresError>) + Send>;

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
    state: watch::Sender<LinkState>,
    used: Notify,
    down_since: Mutex<Option<Instant>>,
}

/// The state of a link.
#[derive(Clone)]
pub(crate) enum LinkState {
    Unused,
    Up(PostgresSession),
    Down(PostgresError),
}

impl PostgresLink {
    pub(crate) fn start(
        database: &Arc<Database>,
        handle: &Handle,
        observer: LinkObserver,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            database: database.clone(),
            state: watch::Sender::new(LinkState::Unused),
            used: Notify::new(),
            down_since: Mutex::new(None),
        });
        handle.spawn(supervise(link.clone(), observer));
        link
    }

    /// Starts to connect if the link is unused. Returns its state.
    pub(crate) fn use_link(&self) -> LinkState {
        let state = self.state.borrow().clone();
        if matches!(state, LinkState::Unused) {
            self.used.notify_one();
        }
        state
    }

    /// Returns the session if the link is up.
    pub(crate) fn session(&self) -> Option<PostgresSession> {
        match &*self.state.borrow() {
            LinkState::Up(session) => Some(session.clone()),
            LinkState::Down(_) | LinkState::Unused => None,
        }
    }

    /// Returns the session, or the failure of the first attempt to connect.
    pub(crate) async fn first_session(&self) -> Result<PostgresSession, PostgresError> {
        self.used.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, LinkState::Unused)).await;
        match state.as_deref() {
            Ok(LinkState::Up(session)) => Ok(session.clone()),
            Ok(LinkState::Down(error)) => Err(error.clone()),
            _ => Err(PostgresError::unreachable("the connection is not kept up any more")),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Up(_))
    }

    /// Resolves when the link is up. Does not start to connect.
    pub(crate) async fn until_up(&self) {
        let _ = self.state.subscribe().wait_for(|state| matches!(state, LinkState::Up(_))).await;
    }

    /// Resolves when the link is not up, or not any more.
    pub(crate) async fn until_down(&self) {
        let _ = self.state.subscribe().wait_for(|state| !matches!(state, LinkState::Up(_))).await;
    }

    /// Returns since when the link is down, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, PostgresError)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            LinkState::Down(error) => Some((since, error.clone())),
            LinkState::Up(_) | LinkState::Unused => None,
        }
    }

    fn set_state(&self, state: LinkState) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.is_up(), matches!(state, LinkState::Up(_))) {
            (false, true) => drop(self.database.connected.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.database.connected.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        match &state {
            LinkState::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            LinkState::Up(_) | LinkState::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
        self.database.changes.send_replace(());
    }
}

/// Keeps the link connected from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<PostgresLink>, mut observer: LinkObserver) {
    link.used.notified().await;
    let mut pause = FIRST_PAUSE;
    let servers = link.database.url.servers();
    loop {
        match establish(&link.database).await {
            Ok(established) => {
                pause = FIRST_PAUSE;
                serve(&link, &servers, established, &mut observer).await;
            }
            Err(error) => {
                if error.is_of_a_limit() && link.database.connected.load(Ordering::Relaxed) > 0 {
                    pause = PAUSE_AT_LIMIT;
                }
                let error = error.at(&servers);
                link.set_state(LinkState::Down(error.clone()));
                observer(&servers, Some(&error));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Offers the session to callers until its connection ends or must be dropped.
async fn serve<F: Future<Output = ()> + Unpin + Send + 'static>(
    link: &PostgresLink,
    servers: &str,
    established: EstablishedSession<F>,
    observer: &mut LinkObserver,
) {
    let EstablishedSession { session, mut ended, token, permit, host } = established;
    let (health, own) = (session.health.clone(), session.clone());
    link.set_state(LinkState::Up(session));
    observer(servers, None);
    let prepare = async {
        own.prepare(&PREPARED).await;
        pending::<()>().await;
    };
    let silence = link.database.longest_silence();
    let until_bad = async { race(health.until_bad(silence), prepare).await };
    let is_silent = race(until_bad, &mut ended).await.flatten().unwrap_or(false);
    drop(own);
    // Mark the link as down before the connection is dropped and its commands fail. A caller whose command fails
    // must find the link down, and wait for the next connection.
    let error = PostgresError::unreachable("the connection was lost").at(servers);
    link.set_state(LinkState::Down(error.clone()));
    observer(servers, Some(&error));
    match is_silent {
        false => drop((ended, permit)),
        true => {
            link.database.avoid_host(host);
            let _ = timeout(ABANDON_TIMEOUT, abandon(&link.database, ended, token, permit)).await;
        }
    }
}

/// A new session, with what is needed to end its connection.
struct EstablishedSession<F> {
    session: PostgresSession,
    /// Resolves when the connection has ended. Dropping it closes the socket.
    ended: F,
    token: CancelToken,
    permit: ConnectionPermit,
    /// The index of its host in the URL.
    host: usize,
}

/// Connects, and brings the database to the state that commands need.
async fn establish(
    database: &Arc<Database>,
) -> Result<EstablishedSession<impl Future<Output = ()> + Unpin + Send + use<>>, PostgresError> {
    let OpenConnection { client, driver, permit, host } = connect(database).await?;
    let token = client.cancel_token();
    let health = Arc::new(SessionHealth::default());
    let observed = health.clone();
    // The commands report why the connection has ended. The connection can end at the moment at which the
    // handshake is done, and is then polled again.
    let mut ended = driver.drive(move |message| {
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some(STANDBY_ROUTINE)
        {
            observed.standby_skipped();
        }
    });
    let handshake = timeout(database.connect_timeout, handshake(database, client, health));
    match race(handshake, &mut ended).await {
        Some(Ok(session)) => {
            Ok(EstablishedSession { session: session?, ended, token, permit, host })
        }
        Some(Err(_)) => {
            drop(abandon(database, ended, token, permit));
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
