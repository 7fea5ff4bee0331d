//! Sessions that are created again after they have expired.
//!
//! The servers carry out the requests of one session in the order in which they were sent, whatever connections
//! they took, and none after the session has expired. A release relies on this: it comes after every command of
//! its token that may still run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use distlock_core::back_off::BackOff;
use distlock_core::reconnect::{Reconnect, keep_connected};
use distlock_core::store::{BackendKind, Fault, LinkWatch, Listener, Notification, StoreEvents};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::address::ZooKeeperAddress;
use crate::client::SessionClient;
use crate::connection::{ConnectionState, SessionConfig};
use crate::wire::{NodeStat, ZooKeeperError};

/// The first and the longest pause between two attempts to create a session.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Drop a connection after this long without an answer. Short sessions allow less.
const SILENCE: Duration = Duration::from_secs(4);
/// Allow at least this much, because a busy machine may need that long for an answer.
const SHORTEST_SILENCE: Duration = Duration::from_millis(150);

/// The settings that all sessions of an ensemble share, and the receivers of their events.
pub(crate) struct EnsembleConfig {
    pub(crate) address: ZooKeeperAddress,
    pub(crate) connect_timeout: Duration,
    /// The node that contains all locks.
    pub(crate) root: String,
    /// Receives notifications, once it is set.
    pub(crate) listener: OnceLock<Listener>,
    /// Receives the state of each session.
    pub(crate) events: Arc<dyn StoreEvents>,
}

impl EnsembleConfig {
    /// Sends a notification to the listener, if there is one yet.
    pub(crate) fn tell(&self, notification: Notification<'_>) {
        if let Some(listener) = self.listener.get() {
            listener(notification);
        }
    }
}

/// A connected session. A clone is the same session.
#[derive(Clone)]
pub(crate) struct LiveSession {
    pub(crate) client: SessionClient,
    /// The number that ephemeral nodes name as their owner.
    pub(crate) id: i64,
    /// The timeout that the server has granted. The session expires after this long without a word of the client.
    pub(crate) timeout: Duration,
    /// Added to the number of a transaction to make a fencing token.
    base: i64,
}

impl LiveSession {
    /// Returns the fencing token of a transaction. It is above the tokens of all earlier transactions. If the
    /// servers lost their data, the root was created later, so new tokens are above the old ones as well.
    pub(crate) fn fence(&self, zxid: i64) -> u64 {
        u64::try_from(self.base.saturating_add(zxid)).unwrap_or(0)
    }

    /// Returns the fencing token of a command that has changed nodes.
    pub(crate) fn fence_of(&self, stats: &[NodeStat]) -> Result<u64, Fault> {
        let stat = stats
            .last()
            .ok_or_else(|| Fault::passing(BackendKind::Other, "an unexpected answer"))?;
        Ok(self.fence(stat.mzxid))
    }
}

/// A session that is created on first use, and again whenever it has expired.
pub(crate) struct ManagedSession {
    config: Arc<EnsembleConfig>,
    /// The timeout to ask the servers for.
    pub(crate) asked: Duration,
    state: watch::Sender<SessionState>,
    wanted: Notify,
    down_since: Mutex<Option<Instant>>,
}

/// The state of a [`ManagedSession`].
enum SessionState {
    /// The session was not used yet, or its first attempt is under way.
    Unused,
    Up(LiveSession),
    Down(Fault),
}

impl ManagedSession {
    /// Starts the task that creates the session on first use.
    pub(crate) fn start(
        config: &Arc<EnsembleConfig>,
        asked: Duration,
        handle: &Handle,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            config: config.clone(),
            asked,
            state: watch::Sender::new(SessionState::Unused),
            wanted: Notify::new(),
            down_since: Mutex::new(None),
        });
        let (watch, servers) = (config.events.watch_link(), config.address.servers());
        let supervisor = SessionSupervisor { session: session.clone(), watch, servers };
        handle.spawn(async move {
            supervisor.session.wanted.notified().await;
            keep_connected(supervisor, BackOff::new(FIRST_PAUSE, LONGEST_PAUSE)).await;
        });
        session
    }

    /// Returns the session as soon as it is connected. Fails only where another attempt cannot help.
    pub(crate) async fn live(&self) -> Result<LiveSession, Fault> {
        if let SessionState::Up(live) = &*self.state.borrow() {
            return Ok(live.clone());
        }
        self.outcome(|state| match state {
            SessionState::Unused => false,
            SessionState::Up(_) => true,
            SessionState::Down(fault) => !fault.passing,
        })
        .await
    }

    /// Returns the session, or the reason why the first attempt to create it failed.
    pub(crate) async fn first(&self) -> Result<LiveSession, Fault> {
        self.outcome(|state| !matches!(state, SessionState::Unused)).await
    }

    /// Asks for the session to be created.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits for a state that satisfies `is_settled`.
    async fn outcome(
        &self,
        is_settled: impl Fn(&SessionState) -> bool,
    ) -> Result<LiveSession, Fault> {
        self.want();
        let mut states = self.state.subscribe();
        let state = states.wait_for(is_settled).await;
        match state.as_deref() {
            Ok(SessionState::Up(live)) => Ok(live.clone()),
            Ok(SessionState::Down(fault)) => Err(fault.clone()),
            _ => {
                let words = "the session is not kept up any more";
                Err(Fault::passing(BackendKind::Unreachable, words))
            }
        }
    }

    /// Waits for a connected session other than the session `than`, without asking for one. Returns `None` if no
    /// task creates sessions any more.
    pub(crate) async fn next(&self, than: i64) -> Option<LiveSession> {
        let is_other =
            |state: &SessionState| matches!(state, SessionState::Up(live) if live.id != than);
        let mut states = self.state.subscribe();
        match &*states.wait_for(is_other).await.ok()? {
            SessionState::Up(live) => Some(live.clone()),
            SessionState::Unused | SessionState::Down(_) => None,
        }
    }

    /// Returns whether the session is connected.
    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), SessionState::Up(_))
    }

    /// Returns since when the session is not connected, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            SessionState::Down(fault) => Some((since, fault.clone())),
            SessionState::Up(_) | SessionState::Unused => None,
        }
    }

    /// Enters a state.
    fn enter(&self, state: SessionState) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match &state {
            SessionState::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            SessionState::Up(_) | SessionState::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
    }
}

/// The task that keeps one session alive.
struct SessionSupervisor {
    session: Arc<ManagedSession>,
    watch: Box<dyn LinkWatch>,
    /// The addresses of the servers, for errors and for the log.
    servers: String,
}

impl SessionSupervisor {
    /// Reports that the session is not connected.
    fn report_down(&mut self, fault: &Fault) {
        self.session.enter(SessionState::Down(fault.clone()));
        self.watch.down(&self.servers, &fault.reason());
    }
}

impl Reconnect for SessionSupervisor {
    type Connected = LiveSession;

    async fn connect(&mut self) -> Result<LiveSession, Fault> {
        establish(&self.session).await.map_err(|fault| fault.at(&self.servers))
    }

    /// Reports the session's connections until the session has ended.
    async fn run(&mut self, live: &mut LiveSession) -> Fault {
        let mut states = live.client.states();
        loop {
            let state = *states.borrow_and_update();
            match state {
                ConnectionState::Connected => {
                    self.session.enter(SessionState::Up(live.clone()));
                    self.watch.up(&self.servers);
                    self.session.config.tell(Notification::Interrupted);
                }
                ConnectionState::Disconnected => {
                    let fault = Fault::from(ZooKeeperError::ConnectionLoss);
                    self.report_down(&fault.at(&self.servers));
                }
                ConnectionState::Over(error) => return Fault::from(error).at(&self.servers),
            }
            if states.changed().await.is_err() {
                return Fault::from(ZooKeeperError::ConnectionLoss).at(&self.servers);
            }
        }
    }

    fn down(&mut self, fault: &Fault) {
        self.report_down(fault);
    }

    async fn wait(&mut self, pause: Duration) {
        sleep(pause).await;
    }
}

/// Creates a session and makes sure that the root exists.
async fn establish(session: &ManagedSession) -> Result<LiveSession, Fault> {
    let ManagedSession { config, asked, .. } = session;
    let why = Arc::new(Mutex::new(String::new()));
    let ZooKeeperAddress { servers, digest, .. } = config.address.clone();
    let of_session = SessionConfig {
        servers,
        digest,
        timeout: *asked,
        silence: (*asked * 2 / 5).clamp(SHORTEST_SILENCE, SILENCE),
        handshake_timeout: config.connect_timeout,
        why: why.clone(),
    };
    let made = async {
        let client = SessionClient::connect(of_session).await?;
        let base = base(config, &client).await?;
        let (id, timeout) = (client.id(), client.timeout());
        Ok(LiveSession { client, id, timeout, base })
    };
    let too_late = |_| Err(Fault::passing(BackendKind::TimedOut, "no connection in time"));
    let made = timeout(config.connect_timeout, made).await.unwrap_or_else(too_late);
    made.map_err(|fault| match &*why.lock().unwrap_or_else(PoisonError::into_inner) {
        why if !fault.passing || why.is_empty() => fault,
        why => Fault::passing(fault.kind, why.clone()),
    })
}

/// Creates the root if it is missing, and returns the base of fencing tokens. The base depends on the creation
/// time of the root, which is later if the servers lost their data.
async fn base(config: &EnsembleConfig, client: &SessionClient) -> Result<i64, ZooKeeperError> {
    let stat = match client.exists(&config.root).await? {
        Some(stat) => stat,
        None => {
            client.make_path(&config.root).await?;
            client.sync(&config.root).await?;
            client.exists(&config.root).await?.ok_or(ZooKeeperError::NoNode)?
        }
    };
    // Counted in µs, because an ensemble has fewer than a million transactions in a second, and an election
    // advances the number of transactions by as much as an hour of µs.
    Ok(stat.ctime.saturating_mul(1000).saturating_sub(stat.czxid))
}
