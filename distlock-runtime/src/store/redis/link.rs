//! A connection that reconnects: a supervisor over a multiplexed connection.
//!
//! The supervisor runs on the engine's runtime and ends with it. It drives the connection as well,
//! unless a caller's task does (see [`io`](super::io)); callers send from their own tasks.
//!
//! A connection is left when two commands in a row had no answer, when nothing arrived for a second
//! after one had none, or when the node says that it takes no writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionInfo};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::connect::connect_driven;
use super::connection::{Connection, Live};
use super::error::not_connected;
use super::io::Carry;
use super::previous::PreviousConnections;
use crate::clock::{Clock, Moment};
use crate::engine::alarm::{Alarm, Alarms};
use crate::error::BackendKind;
use crate::jitter::jittered;
use crate::observe::{LinkWatch, Observers};
use crate::select::until;
use crate::status::DrivenBy;
use crate::store::Fault;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Commands that may wait to be written: callers beyond it wait in order.
const BUFFER: usize = 1024;

/// How a link connects and how long it waits.
#[derive(Clone)]
pub(crate) struct LinkConfig {
    pub(crate) info: ConnectionInfo,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// Whether a caller's runtime may drive the connection.
    pub(crate) by_callers: bool,
    /// What its state is reported to.
    pub(crate) observers: Observers,
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
    /// Connections are numbered, over all links of a pool.
    numbers: Arc<AtomicU64>,
}

enum State {
    Unused,
    Up(Arc<Live>),
    Down(Fault),
}

impl Link {
    pub(crate) fn start(
        config: LinkConfig,
        handle: &Handle,
        alarms: &Arc<Alarms>,
        numbers: &Arc<AtomicU64>,
    ) -> Arc<Self> {
        let link = Arc::new(Self {
            config,
            alarms: alarms.clone(),
            state: watch::Sender::new(State::Unused),
            down_since: AtomicU64::new(0),
            wanted: Notify::new(),
            numbers: numbers.clone(),
        });
        handle.spawn(supervise(link.clone()));
        link
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
    pub(super) fn driven_by(&self) -> Option<DrivenBy> {
        match &*self.state.borrow() {
            State::Up(live) => Some(live.driven_by()),
            State::Unused | State::Down(_) => None,
        }
    }

    /// Since when it has had no connection.
    pub(super) fn down_since(&self) -> Option<Moment> {
        let since = self.down_since.load(Ordering::Relaxed);
        (since != 0).then(|| Moment::from_nanos(since))
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Why the last attempt to connect failed, or the connection was lost.
    pub(super) fn last_error(&self) -> Option<Fault> {
        match &*self.state.borrow() {
            State::Down(fault) => Some(fault.clone()),
            State::Up(_) | State::Unused => None,
        }
    }

    /// Resolves when there is a connection; it makes none.
    pub(super) async fn is_up(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| matches!(state, State::Up(_))).await;
    }

    /// Resolves when there is none.
    pub(super) async fn is_down(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| !matches!(state, State::Up(_))).await;
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
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let mut previous = PreviousConnections::default();
    let mut watch = LinkWatch::new(link.config.observers.clone());
    loop {
        let (fault, ended) = match establish(&link, &mut previous).await {
            Ok((live, carrier)) => {
                pause = FIRST_PAUSE;
                link.down_since.store(0, Ordering::Relaxed);
                link.state.send_replace(State::Up(live.clone()));
                watch.is(true);
                until(carrier.run(), live.gone_bad()).await;
                (lost("the connection was lost"), Some(carrier))
            }
            Err(fault) => (fault, None),
        };
        let now = Clock::Boottime.now().as_nanos();
        // Since the first of several failures.
        let orders = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = link.down_since.compare_exchange(0, now, orders.0, orders.1);
        link.state.send_replace(State::Down(fault));
        // After the state has changed: a call that fails with this connection must find it down, and
        // wait for the next one.
        if let Some(carrier) = ended {
            carrier.stop();
        }
        watch.is(false);
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Makes a connection and closes the ones before it.
async fn establish(
    link: &Link,
    previous: &mut PreviousConnections,
) -> Result<(Arc<Live>, Arc<dyn Carry>), Fault> {
    let LinkConfig { info, command_timeout, connect_timeout, by_callers, .. } = &link.config;
    let number = link.numbers.fetch_add(1, Ordering::Relaxed) + 1;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(BUFFER);
    let connected = timeout(*connect_timeout, connect_driven(info, config, *by_callers)).await;
    let connected = connected.map_err(|_| Fault::timed_out())?;
    let (connection, carrier) =
        connected.map_err(|error| not_connected(&error, info.redis_settings().db()))?;
    let closed = timeout(*connect_timeout, previous.close(&connection, number));
    let closed_below = until(closed, carrier.run())
        .await
        .ok_or_else(|| lost("it was closed while it was made"))?
        .map_err(|_| Fault::timed_out())?;
    let (alarms, own) = (link.alarms.clone(), carrier.clone());
    let live = Live::new(connection, own, number, closed_below, alarms, *command_timeout);
    Ok((Arc::new(live), carrier))
}

fn lost(detail: &'static str) -> Fault {
    Fault::passing(BackendKind::Unreachable, detail)
}
