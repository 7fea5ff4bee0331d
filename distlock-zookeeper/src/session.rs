//! A session that is made again when it is lost.
//!
//! All that is sent in one session is carried out in the order in which it was sent, whatever connections it
//! took; and nothing of it after it has expired. That is what a release relies on: it is behind every command
//! of its token that may still run.

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
use crate::wire::ZooKeeperError;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A server that has not answered for so long is left, or for less in a short session.
const SILENCE: Duration = Duration::from_secs(4);
/// That is less than a busy machine may take for an answer.
const SHORTEST_SILENCE: Duration = Duration::from_millis(150);

/// Called with the servers of one session, and with the failure if it is down. Dropped once the session is no
/// longer needed.
pub type Watch = Box<dyn FnMut(&str, Option<&Fault>) + Send>;

/// What is called when watches and places may have been lost.
pub(crate) type Interrupted = Arc<dyn Fn() + Send + Sync>;

/// What all sessions of an ensemble share.
pub(crate) struct EnsembleConfig {
    pub(crate) address: Address,
    pub(crate) connect_timeout: Duration,
    /// Where all locks are.
    pub(crate) root: String,
    pub(crate) interrupted: Interrupted,
}

/// A session that is connected. A clone is the same one.
#[derive(Clone)]
pub(crate) struct LiveSession {
    pub(crate) client: SessionClient,
    /// As nodes name their owner.
    pub(crate) id: i64,
    /// What the server grants: without a word of the client it expires after that.
    pub(crate) timeout: Duration,
    /// What is added to a number of a transaction to make a fencing token.
    base: i64,
}

impl LiveSession {
    /// The fencing token of a transaction: above those of all before it, also of those of data that was lost, as
    /// the root was made later then.
    pub(crate) fn fence(&self, zxid: i64) -> u64 {
        u64::try_from(self.base.saturating_add(zxid)).unwrap_or(0)
    }
}

/// A session, made on first use and again whenever it has expired.
pub(crate) struct ManagedSession {
    shared: Arc<EnsembleConfig>,
    /// How long it is to outlive its client.
    pub(crate) asked: Duration,
    state: watch::Sender<SessionState>,
    wanted: Notify,
    down_since: Mutex<Option<Instant>>,
}

enum SessionState {
    Unused,
    Up(LiveSession),
    Down(Fault),
}

impl ManagedSession {
    pub(crate) fn start(
        shared: &Arc<EnsembleConfig>,
        asked: Duration,
        handle: &Handle,
        watch: Watch,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            shared: shared.clone(),
            asked,
            state: watch::Sender::new(SessionState::Unused),
            wanted: Notify::new(),
            down_since: Mutex::new(None),
        });
        handle.spawn(supervise(link.clone(), watch));
        link
    }

    /// The session as soon as it is connected, or why it is not where trying again cannot help.
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

    /// The session, or why the first attempt to make it failed.
    pub(crate) async fn first(&self) -> Result<LiveSession, Fault> {
        self.outcome(|state| !matches!(state, SessionState::Unused)).await
    }

    /// Has it made.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

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

    /// A session that is connected and another one than this; does not make one. `None` if none is kept up any more.
    pub(crate) async fn next(&self, than: i64) -> Option<LiveSession> {
        let is_other =
            |state: &SessionState| matches!(state, SessionState::Up(live) if live.id != than);
        let mut states = self.state.subscribe();
        match &*states.wait_for(is_other).await.ok()? {
            SessionState::Up(live) => Some(live.clone()),
            SessionState::Unused | SessionState::Down(_) => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), SessionState::Up(_))
    }

    /// Since when it is not connected, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            SessionState::Down(fault) => Some((since, fault.clone())),
            SessionState::Up(_) | SessionState::Unused => None,
        }
    }

    fn went(&self, state: SessionState) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match &state {
            SessionState::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            SessionState::Up(_) | SessionState::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
    }
}

/// Keeps the session from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<ManagedSession>, mut watch: Watch) {
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let servers = link.shared.address.servers();
    loop {
        let fault = match establish(&link).await {
            Ok(live) => {
                pause = FIRST_PAUSE;
                until_over(&link, live, &mut watch).await
            }
            Err(fault) => fault,
        };
        let fault = fault.at(&servers);
        link.went(SessionState::Down(fault.clone()));
        watch(&servers, Some(&fault));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Follows a session's connections until it is over, and says why it is.
async fn until_over(link: &ManagedSession, live: LiveSession, watch: &mut Watch) -> Fault {
    let mut states = live.client.states();
    let servers = link.shared.address.servers();
    loop {
        let state = *states.borrow_and_update();
        match state {
            ConnectionState::Connected => {
                link.went(SessionState::Up(live.clone()));
                watch(&servers, None);
                (link.shared.interrupted)();
            }
            ConnectionState::Disconnected => {
                let fault = Fault::of(ZooKeeperError::ConnectionLoss).at(&servers);
                link.went(SessionState::Down(fault.clone()));
                watch(&servers, Some(&fault));
            }
            ConnectionState::Over(error) => return Fault::of(error),
        }
        if states.changed().await.is_err() {
            return Fault::of(ZooKeeperError::ConnectionLoss);
        }
    }
}

/// A new session with its root there.
async fn establish(link: &ManagedSession) -> Result<LiveSession, Fault> {
    let why = Arc::new(Mutex::new(String::new()));
    let made = async {
        let ManagedSession { shared, asked, .. } = link;
        let silence = (*asked * 2 / 5).clamp(SHORTEST_SILENCE, SILENCE);
        let Address { servers, digest, .. } = shared.address.clone();
        let handshake_timeout = shared.connect_timeout;
        let why = why.clone();
        let config =
            SessionConfig { servers, digest, timeout: *asked, silence, handshake_timeout, why };
        let client = SessionClient::connect(config).await?;
        let base = base(shared, &client).await?;
        let (id, timeout) = (client.id(), client.timeout());
        Ok(LiveSession { client, id, timeout, base })
    };
    let made = timeout(link.shared.connect_timeout, made).await;
    let made = made.map_or_else(|_| Err(Fault::timed_out()), |made| made.map_err(Fault::of));
    made.map_err(|fault| match &*why.lock().unwrap_or_else(PoisonError::into_inner) {
        why if !fault.passing || why.is_empty() => fault,
        why => Fault { words: why.clone(), ..fault },
    })
}

/// Makes the root where it is missing. Its age distinguishes data that was lost from what is there now.
async fn base(shared: &EnsembleConfig, client: &SessionClient) -> Result<i64, ZooKeeperError> {
    let stat = match client.exists(&shared.root).await? {
        Some(stat) => stat,
        None => {
            client.make_path(&shared.root).await?;
            client.sync(&shared.root).await?;
            client.exists(&shared.root).await?.ok_or(ZooKeeperError::NoNode)?
        }
    };
    // In µs: an ensemble has fewer transactions in a second, and an election counts as many as an hour has.
    Ok(stat.ctime.saturating_mul(1000).saturating_sub(stat.czxid))
}

/// Resolves with the first of two.
pub(crate) async fn either(one: impl Future, other: impl Future) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let is_ready = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
