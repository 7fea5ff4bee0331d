//! The connections to one database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::database::{Database, FenceSequence};
use crate::error::PostgresError;
use crate::link::{LinkObserver, LinkState, PostgresLink};
use crate::listener::{ListenEvent, NotifyListener};
use crate::session::PostgresSession;
use crate::url::PostgresUrl;

/// The interval at which the rows of dead processes are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// The settings of a pool.
pub struct PoolSettings {
    /// The URL of the database.
    pub address: PostgresUrl,
    /// The longest time that connecting takes.
    pub connect_timeout: Duration,
    /// The longest time that the callers of a command wait for its answer.
    pub command_timeout: Duration,
    /// The number of links for commands.
    pub lanes: usize,
}

/// The connections to one database. Each is opened on first use.
pub struct PostgresPool {
    database: Arc<Database>,
    /// The links for commands.
    lanes: Vec<Arc<PostgresLink>>,
    /// The link for renewals.
    renewals: Arc<PostgresLink>,
    listener: Arc<NotifyListener>,
    handle: Handle,
}

impl PostgresPool {
    /// Starts a pool on a runtime with I/O and timers. Calls `observer` for each link.
    pub fn start(
        settings: PoolSettings,
        handle: &Handle,
        observer: impl Fn() -> LinkObserver,
    ) -> Self {
        let PoolSettings { address, connect_timeout, command_timeout, lanes } = settings;
        let lanes = lanes.max(1);
        let database = Database::new(address, connect_timeout, command_timeout, lanes, handle);
        let database = Arc::new(database);
        let link = || PostgresLink::start(&database, handle, observer());
        let lanes: Vec<_> = (0..lanes).map(|_| link()).collect();
        let renewals = link();
        handle.spawn(sweep(lanes[0].clone()));
        let listener = Arc::new(NotifyListener::new(database.clone(), lanes[0].clone()));
        Self { database, lanes, renewals, listener, handle: handle.clone() }
    }

    /// Returns the number of links for commands.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns a session for commands, by the number of its link. Waits for a connection.
    ///
    /// # Errors
    ///
    /// No connection can be opened, and another attempt cannot succeed.
    pub async fn lane(&self, number: usize) -> Result<PostgresSession, PostgresError> {
        self.session(&self.lanes[number]).await
    }

    /// Returns the session of a link, or the session of any other link that is up.
    async fn session(&self, own: &PostgresLink) -> Result<PostgresSession, PostgresError> {
        let mut changes = self.database.changes.subscribe();
        loop {
            changes.mark_unchanged();
            match own.use_link() {
                LinkState::Up(session) => return Ok(session),
                LinkState::Unused => {}
                LinkState::Down(error) => {
                    if let Some(session) = self.lanes.iter().find_map(|lane| lane.session()) {
                        return Ok(session);
                    }
                    if !error.passing {
                        return Err(error);
                    }
                }
            }
            if changes.changed().await.is_err() {
                return Err(PostgresError::unreachable("the connection is not kept up any more"));
            }
        }
    }

    /// Returns the session for renewals. Waits for a connection.
    ///
    /// # Errors
    ///
    /// No connection can be opened, and another attempt cannot succeed.
    pub async fn renewals(&self) -> Result<PostgresSession, PostgresError> {
        self.session(&self.renewals).await
    }

    /// Resolves when the first link is up. Does not start to connect.
    pub async fn until_up(&self) {
        self.lanes[0].until_up().await;
    }

    /// Resolves when the first link is not up any more.
    pub async fn until_down(&self) {
        self.lanes[0].until_down().await;
    }

    /// Returns the session of the first link.
    ///
    /// # Errors
    ///
    /// The first attempt to connect has failed.
    pub async fn first(&self) -> Result<PostgresSession, PostgresError> {
        self.lanes[0].first_session().await
    }

    /// Opens the connection that listens for this process, once the first link is up.
    pub fn listen(&self, process: &str, on: impl Fn(ListenEvent<'_>) + Send + Sync + 'static) {
        self.listener.start(process, Box::new(on), &self.handle);
    }

    /// Returns whether the URL allows the process to listen.
    pub fn may_listen(&self) -> bool {
        self.database.url.listens
    }

    /// Returns whether messages arrive when they are needed.
    pub fn is_listening(&self) -> bool {
        self.listener.is_able()
    }

    /// Listens until [`need_not_hear`](Self::need_not_hear). Returns whether the connection listens. Each
    /// session that listens costs the server time for every message.
    pub async fn hear(&self) -> bool {
        self.listener.listen().await
    }

    /// Stops listening, because nobody waits for a message.
    pub fn need_not_hear(&self) {
        self.listener.stop_listening();
    }

    /// Returns whether a link for commands is up.
    pub fn is_connected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_up())
    }

    /// Returns since when no link for commands is up, and why. Returns `None` if one is up, or if none was used.
    pub fn outage(&self) -> Option<(Instant, PostgresError)> {
        if self.is_connected() {
            return None;
        }
        self.lanes.iter().filter_map(|lane| lane.outage()).min_by_key(|(since, _)| *since)
    }

    /// Returns the known state of the sequence of fencing tokens.
    pub fn fence(&self) -> &FenceSequence {
        &self.database.fences
    }
}

async fn sweep(lane: Arc<PostgresLink>) {
    // The first sweep is at once, because a new process may replace one that died.
    let mut unless_within = Duration::ZERO;
    loop {
        lane.until_up().await;
        if let Some(session) = lane.session() {
            let _ = session.sweep(unless_within).await;
            unless_within = SWEEP;
        }
        tokio::time::sleep(SWEEP).await;
    }
}
