//! The connections to one database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::store::record::{KEPT, RecordKeeper};
use distlock_core::store::{Fault, Listener, LockName, ProcessInfo, StoreEvents};

use crate::database::{Database, FenceSequence};
use crate::error::PostgresError;
use crate::link::{PostgresLink, PostgresLinkState};
use crate::listener::NotifyListener;
use crate::session::PostgresSession;

/// The interval at which the rows of dead processes are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// The connections to one database. Each is opened on first use.
pub(crate) struct PostgresPool {
    database: Arc<Database>,
    /// The links for commands.
    links: Vec<Arc<PostgresLink>>,
    /// The link for renewals.
    renewals: Arc<PostgresLink>,
    listener: Arc<NotifyListener>,
}

impl PostgresPool {
    /// Starts a pool with this number of links for commands.
    pub(crate) fn start(database: Database, links: usize, events: &Arc<dyn StoreEvents>) -> Self {
        let database = Arc::new(database);
        let handle = &database.handle;
        let link = || PostgresLink::start(&database, handle, events.watch_link());
        let links: Vec<_> = (0..links).map(|_| link()).collect();
        let renewals = link();
        handle.spawn(sweep(links[0].clone()));
        let listener = NotifyListener::new(database.clone(), links[0].clone(), events.clone());
        Self { links, renewals, listener: Arc::new(listener), database }
    }

    /// Returns the index of the link for the commands of a lock.
    pub(crate) fn link_of(&self, lock: &LockName) -> usize {
        lock.stored().part(self.links.len())
    }

    /// Returns the session for the commands of a lock. Waits for a connection, and fails if none can be opened and
    /// another attempt cannot succeed.
    pub(crate) async fn session_for(
        &self,
        lock: &LockName,
    ) -> Result<PostgresSession, PostgresError> {
        self.session_of(&self.links[self.link_of(lock)]).await
    }

    /// Does the same for commands of no lock.
    pub(crate) async fn session(&self) -> Result<PostgresSession, PostgresError> {
        self.session_of(&self.links[0]).await
    }

    /// Does the same for renewals.
    pub(crate) async fn session_for_renewals(&self) -> Result<PostgresSession, PostgresError> {
        self.session_of(&self.renewals).await
    }

    /// Returns the session of a link, or the session of any other link that is up.
    async fn session_of(&self, link: &PostgresLink) -> Result<PostgresSession, PostgresError> {
        let mut changes = self.database.changes.subscribe();
        loop {
            changes.mark_unchanged();
            match link.use_link() {
                PostgresLinkState::Up(session) => return Ok(session),
                PostgresLinkState::Unused => {}
                PostgresLinkState::Down(fault) => {
                    if let Some(session) = self.links.iter().find_map(|link| link.session()) {
                        return Ok(session);
                    }
                    if !fault.passing {
                        return Err(fault.into());
                    }
                }
            }
            if changes.changed().await.is_err() {
                return Err(PostgresError::unreachable("the connection is not kept up any more"));
            }
        }
    }

    /// Connects the first link. Fails if the first attempt has failed.
    pub(crate) async fn first_session(&self) -> Result<PostgresSession, PostgresError> {
        self.links[0].first_session().await
    }

    /// Opens the connection that listens for this process, once the first link is up.
    pub(crate) fn start_listener(&self, process: &str, listener: Listener) {
        self.listener.start(process, listener, &self.database.handle);
    }

    /// Returns whether the URL allows the process to listen.
    pub(crate) fn may_listen(&self) -> bool {
        self.database.url.listens
    }

    /// Returns whether messages arrive when they are needed.
    pub(crate) fn can_listen(&self) -> bool {
        self.listener.is_able()
    }

    /// Listens until [`stop_listening`](Self::stop_listening). Returns whether the connection listens. Each session
    /// that listens costs the server time for every message.
    pub(crate) async fn listen(&self) -> bool {
        self.listener.listen().await
    }

    /// Stops listening, because nobody waits for a message.
    pub(crate) fn stop_listening(&self) {
        self.listener.stop_listening();
    }

    /// Returns whether a link for commands is up.
    pub(crate) fn is_connected(&self) -> bool {
        self.links.iter().any(|link| link.is_up())
    }

    /// Returns since when no link for commands is up, and why. Returns `None` if one is up, or if none was used.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        if self.is_connected() {
            return None;
        }
        self.links.iter().filter_map(|link| link.outage()).min_by_key(|(since, _)| *since)
    }

    /// Returns the known state of the sequence of fencing tokens.
    pub(crate) fn fences(&self) -> &FenceSequence {
        &self.database.fences
    }
}

impl RecordKeeper for PostgresPool {
    async fn is_up(&self) {
        self.links[0].until_up().await;
    }

    async fn is_down(&self) {
        self.links[0].until_down().await;
    }

    async fn write(&self, prefix: &str, info: &ProcessInfo) {
        if let Ok(session) = self.session().await {
            let _ = session.store_record(prefix, info, KEPT).await;
        }
    }
}

async fn sweep(link: Arc<PostgresLink>) {
    // The first sweep is at once, because a new process may replace one that died.
    let mut unless_within = Duration::ZERO;
    loop {
        link.until_up().await;
        if let Some(session) = link.session() {
            let _ = session.sweep(unless_within).await;
            unless_within = SWEEP;
        }
        tokio::time::sleep(SWEEP).await;
    }
}
