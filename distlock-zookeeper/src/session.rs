//! Sessions that are created again after they have expired.
//!
//! The servers carry out the requests of one session in the order in which they were sent, whatever connections
//! they took, and none after the session has expired. A release relies on this: it comes after every command of
//! its token that may still run.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::client::SessionClient;
use crate::connection::{ConnectionState, SessionConfig};
use crate::fault::Fault;
use crate::wire::{NodeStat, ZooKeeperError};

/// The first and the longest pause between two attempts to create a session.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Drop a connection after this long without an answer. Short sessions allow less.
const SILENCE: Duration = Duration::from_secs(4);
/// Allow at least this much, because a busy machine may need that long for an answer.
const SHORTEST_SILENCE: Duration = Duration::from_millis(150);

/// A callback with the servers of one session, and with the failure while the session is not connected. It is
/// dropped when the session is no longer needed.
pub type Watch = Box<dyn FnMut(&str, Option<&Fault>) + Send>;

/// A callback for the moment when watches and places in queues may have been lost.
pub(crate) type Interrupted = Arc<dyn Fn() + Send + Sync>;

/// The settings that all sessions of an ensemble share.
pub(crate) struct EnsembleConfig {
    pub(crate) address: Address,
    pub(crate) connect_timeout: Duration,
    /// The node that contains all locks.
    pub(crate) root: String,
    pub(crate) interrupted: Interrupted,
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
        let stat = stats.last().ok_or_else(|| Fault::other("an unexpected answer"))?;
        Ok(self.fence(stat.mzxid))
    }
}

/// A session that is created on first use, and again whenever it has expired.
pub(crate) struct ManagedSession {
    shared: Arc<EnsembleConfig>,
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
        shared: &Arc<EnsembleConfig>,
        asked: Duration,
        handle: &Handle,
        watch: Watch,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            shared: shared.clone(),
            asked,
            state: watch::Sender::new(SessionState::Unused),
            wanted: Notify::new(),
            down_since: Mutex::new(None),
        });
        handle.spawn(supervise(session.clone(), watch));
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
            _ => Err(Fault::unreachable("the session is not kept up any more")),
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

/// Keeps the session alive from its first use on, until the runtime is dropped.
async fn supervise(session: Arc<ManagedSession>, mut watch: Watch) {
    session.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let servers = session.shared.address.servers();
    loop {
        let fault = match establish(&session).await {
            Ok(live) => {
                pause = FIRST_PAUSE;
                until_over(&session, live, &mut watch).await
            }
            Err(fault) => fault,
        };
        let fault = fault.at(&servers);
        session.enter(SessionState::Down(fault.clone()));
        watch(&servers, Some(&fault));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reports a session's connections until the session has ended, and returns the reason.
async fn until_over(session: &ManagedSession, live: LiveSession, watch: &mut Watch) -> Fault {
    let mut states = live.client.states();
    let servers = session.shared.address.servers();
    loop {
        let state = *states.borrow_and_update();
        match state {
            ConnectionState::Connected => {
                session.enter(SessionState::Up(live.clone()));
                watch(&servers, None);
                (session.shared.interrupted)();
            }
            ConnectionState::Disconnected => {
                let fault = Fault::from(ZooKeeperError::ConnectionLoss).at(&servers);
                session.enter(SessionState::Down(fault.clone()));
                watch(&servers, Some(&fault));
            }
            ConnectionState::Over(error) => return error.into(),
        }
        if states.changed().await.is_err() {
            return Fault::from(ZooKeeperError::ConnectionLoss);
        }
    }
}

/// Creates a session and makes sure that the root exists.
async fn establish(session: &ManagedSession) -> Result<LiveSession, Fault> {
    let why = Arc::new(Mutex::new(String::new()));
    let made = async {
        let ManagedSession { shared, asked, .. } = session;
        let silence = (*asked * 2 / 5).clamp(SHORTEST_SILENCE, SILENCE);
        let Address { servers, digest, .. } = shared.address.clone();
        let handshake_timeout = shared.connect_timeout;
        let why = why.clone();
        let config =
            SessionConfig { servers, digest, timeout: *asked, silence, handshake_timeout, why };
        let client = SessionClient::connect(config).await?;
        let base = base(shared, &client).await?;
        let (id, timeout) = (client.id(), client.timeout());
        Ok::<_, ZooKeeperError>(LiveSession { client, id, timeout, base })
    };
    let made = timeout(session.shared.connect_timeout, made).await;
    let made = made.map_or_else(|_| Err(Fault::timed_out()), |made| made.map_err(Fault::from));
    made.map_err(|fault| match &*why.lock().unwrap_or_else(PoisonError::into_inner) {
        why if !fault.passing || why.is_empty() => fault,
        why => Fault { words: why.clone(), ..fault },
    })
}

/// Creates the root if it is missing, and returns the base of fencing tokens. The base depends on the creation
/// time of the root, which is later if the servers lost their data.
async fn base(shared: &EnsembleConfig, client: &SessionClient) -> Result<i64, ZooKeeperError> {
    let stat = match client.exists(&shared.root).await? {
        Some(stat) => stat,
        None => {
            client.make_path(&shared.root).await?;
            client.sync(&shared.root).await?;
            client.exists(&shared.root).await?.ok_or(ZooKeeperError::NoNode)?
        }
    };
    // Counted in µs, because an ensemble has fewer than a million transactions in a second, and an election
    // advances the number of transactions by as much as an hour of µs.
    Ok(stat.ctime.saturating_mul(1000).saturating_sub(stat.czxid))
}

/// Resolves when the first of two futures does.
pub(crate) async fn either(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let is_ready = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
