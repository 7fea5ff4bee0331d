//! A connection that is made again when it is lost.

use std::future::{Future, pending};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, CancelToken, Client};

use crate::connect::{Made, connect};
use crate::database::{Health, Shared};
use crate::error::Fault;
use crate::left::{Permit, leave};
use crate::schema;
use crate::select::race;
use crate::session::Live;

/// Called with the servers of one connection, and with the failure if it is down. Dropped once the connection
/// is no longer needed.
pub type Watch = Box<dyn FnMut(&str, Option<&Fault>) + Send>;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pause after the server or the role had no room. Each attempt costs the server a process, and other
/// connections are usually up.
const LIMITED_PAUSE: Duration = Duration::from_secs(5);
/// An abandoned connection has this long to end before the next one is opened.
const LEFT: Duration = Duration::from_millis(500);
/// The server's routine whose notice says, in any language, that it has stopped waiting for a standby.
const STANDBY: &str = "SyncRepWaitForLSN";

/// A connection, made on first use and again whenever it is lost.
pub(crate) struct Link {
    shared: Arc<Shared>,
    state: watch::Sender<State>,
    wanted: Notify,
    down_since: Mutex<Option<Instant>>,
}

#[derive(Clone)]
pub(crate) enum State {
    Unused,
    Up(Live),
    Down(Fault),
}

impl Link {
    pub(crate) fn start(shared: &Arc<Shared>, handle: &Handle, watch: Watch) -> Arc<Self> {
        let link = Arc::new(Self {
            shared: shared.clone(),
            state: watch::Sender::new(State::Unused),
            wanted: Notify::new(),
            down_since: Mutex::new(None),
        });
        handle.spawn(supervise(link.clone(), watch));
        link
    }

    /// Starts the connection if it is unused. Returns its state.
    pub(crate) fn want(&self) -> State {
        let state = self.state.borrow().clone();
        if matches!(state, State::Unused) {
            self.wanted.notify_one();
        }
        state
    }

    /// Returns the connection if it is up.
    pub(crate) fn up(&self) -> Option<Live> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.clone()),
            State::Down(_) | State::Unused => None,
        }
    }

    /// Returns the connection, or the reason why the first attempt failed.
    pub(crate) async fn first(&self) -> Result<Live, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| !matches!(state, State::Unused)).await;
        match state.as_deref() {
            Ok(State::Up(live)) => Ok(live.clone()),
            Ok(State::Down(fault)) => Err(fault.clone()),
            _ => Err(Fault::unreachable("the connection is not kept up any more")),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Resolves when there is a connection; it makes none.
    pub(crate) async fn until_up(&self) {
        let _ = self.state.subscribe().wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Resolves when there is none, or not any more.
    pub(crate) async fn until_down(&self) {
        let _ = self.state.subscribe().wait_for(|state| !matches!(state, State::Up(_))).await;
    }

    /// Since when there is no connection, and why.
    pub(crate) fn outage(&self) -> Option<(Instant, Fault)> {
        let since = (*self.down_since.lock().unwrap_or_else(PoisonError::into_inner))?;
        match &*self.state.borrow() {
            State::Down(fault) => Some((since, fault.clone())),
            State::Up(_) | State::Unused => None,
        }
    }

    fn went(&self, state: State) {
        let mut since = self.down_since.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.up().is_some(), matches!(state, State::Up(_))) {
            (false, true) => drop(self.shared.up.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.shared.up.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        match &state {
            State::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            State::Up(_) | State::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
        self.shared.changes.send_replace(());
    }
}

/// Keeps the link connected from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<Link>, mut watch: Watch) {
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let servers = link.shared.address.servers();
    loop {
        match establish(&link.shared).await {
            Ok(Established { live, mut ended, token, permit, host }) => {
                pause = FIRST_PAUSE;
                let (health, own) = (live.health.clone(), live.clone());
                link.went(State::Up(live));
                watch(&servers, None);
                let serve = async {
                    own.prepare().await;
                    pending::<()>().await;
                };
                let silence = link.shared.silence();
                let gone_bad = async { race(health.gone_bad(silence), serve).await };
                let is_silent = race(gone_bad, &mut ended).await.flatten().unwrap_or(false);
                drop(own);
                // Mark the link as down before the connection is dropped and the calls on it fail. A call that
                // fails with it must find it down, and wait for the next connection.
                let fault = Fault::unreachable("the connection was lost").at(&servers);
                link.went(State::Down(fault.clone()));
                watch(&servers, Some(&fault));
                match is_silent {
                    false => drop((ended, permit)),
                    true => {
                        link.shared.host_is_silent(host);
                        let left = leave(&link.shared, ended, token, permit);
                        let _ = timeout(LEFT, left).await;
                    }
                }
            }
            Err(fault) => {
                if fault.is_of_a_limit() && link.shared.up.load(Ordering::Relaxed) > 0 {
                    pause = LIMITED_PAUSE;
                }
                let fault = fault.at(&servers);
                link.went(State::Down(fault.clone()));
                watch(&servers, Some(&fault));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A connection with its greeting done.
struct Established<F> {
    live: Live,
    /// Resolves when the connection has ended. Dropping this closes the socket.
    ended: F,
    token: CancelToken,
    permit: Permit,
    /// Which host of the address it leads to.
    host: usize,
}

async fn establish(
    shared: &Arc<Shared>,
) -> Result<Established<impl Future<Output = ()> + Unpin + Send + use<>>, Fault> {
    let Made { client, connection, permit, host } = connect(shared).await?;
    let token = client.cancel_token();
    let health = Arc::new(Health::default());
    let watched = health.clone();
    // The commands report why it has ended. It may be polled again after that, because it can end at the moment
    // at which the greeting is done.
    let mut ended = connection.drive(move |message| {
        if let AsyncMessage::Notice(notice) = message
            && notice.routine() == Some(STANDBY)
        {
            watched.not_confirmed();
        }
    });
    let greeting = timeout(shared.connect_timeout, greet(shared, client, health));
    match race(greeting, &mut ended).await {
        Some(Ok(live)) => Ok(Established { live: live?, ended, token, permit, host }),
        Some(Err(_)) => {
            drop(leave(shared, ended, token, permit));
            Err(Fault::timed_out())
        }
        None => Err(Fault::unreachable("it was closed while it was made")),
    }
}

/// Makes the schema if it is missing, and raises the sequence.
async fn greet(shared: &Arc<Shared>, client: Client, health: Arc<Health>) -> Result<Live, Fault> {
    schema::ensure(&client).await?;
    let number = shared.numbers.fetch_add(1, Ordering::Relaxed) + 1;
    let live = Live::new(client, number, health, shared.clone());
    live.raise().await?;
    Ok(live)
}
