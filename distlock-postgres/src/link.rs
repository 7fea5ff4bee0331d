//! A connection that is made again when it is lost.

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::connect::connect;
use crate::fault::Fault;
use crate::live::Live;
use crate::schema;
use crate::select::{either, race};
use crate::shared::{Health, Shared};

/// Is told to which servers one connection is there, or why it is not; dropped when it is not wanted any more.
pub type Watch = Box<dyn FnMut(&str, Option<&Fault>) + Send>;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A connection, made on first use and again whenever it is lost.
pub(crate) struct Link {
    shared: Arc<Shared>,
    state: watch::Sender<State>,
    wanted: Notify,
    down_since: Mutex<Option<Instant>>,
}

enum State {
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

    /// The connection as soon as there is one, or why there is none where trying again cannot help.
    pub(crate) async fn live(&self) -> Result<Live, Fault> {
        if let State::Up(live) = &*self.state.borrow() {
            return Ok(live.clone());
        }
        self.outcome(|state| match state {
            State::Unused => false,
            State::Up(_) => true,
            State::Down(fault) => !fault.passing,
        })
        .await
    }

    /// The connection, or why the first attempt to make one failed.
    pub(crate) async fn first(&self) -> Result<Live, Fault> {
        self.outcome(|state| !matches!(state, State::Unused)).await
    }

    async fn outcome(&self, is_settled: impl Fn(&State) -> bool) -> Result<Live, Fault> {
        self.wanted.notify_one();
        let mut states = self.state.subscribe();
        let state = states.wait_for(is_settled).await;
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
        match &state {
            State::Down(_) => drop(since.get_or_insert_with(Instant::now)),
            State::Up(_) | State::Unused => *since = None,
        }
        drop(since);
        self.state.send_replace(state);
    }
}

/// Keeps the link connected from its first use on, until the runtime is dropped.
async fn supervise(link: Arc<Link>, mut watch: Watch) {
    link.wanted.notified().await;
    let mut pause = FIRST_PAUSE;
    let servers = link.shared.address.servers();
    loop {
        let (fault, ended) = match establish(&link.shared).await {
            Ok((live, mut ended)) => {
                pause = FIRST_PAUSE;
                let (health, own) = (live.health.clone(), live.clone());
                link.went(State::Up(live));
                watch(&servers, None);
                let serve = async {
                    own.prepare().await;
                    pending::<()>().await;
                };
                either(&mut ended, either(health.gone_bad(), serve)).await;
                (Fault::unreachable("the connection was lost"), Some(ended))
            }
            Err(fault) => (fault, None),
        };
        // Before the connection is dropped, and what waits for its answers fails: a call that fails with it
        // must find it down, and wait for the next one.
        let fault = fault.at(&servers);
        link.went(State::Down(fault.clone()));
        drop(ended);
        watch(&servers, Some(&fault));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// A connection with its greeting done, and what resolves when it has ended. Its socket is closed when
/// that is dropped.
async fn establish(
    shared: &Arc<Shared>,
) -> Result<(Live, impl Future<Output = ()> + Unpin + use<>), Fault> {
    let greet = async {
        let (client, mut connection) = connect(&shared.address).await?;
        // Why it has ended, its commands say. It may be asked again after that: it can end in the moment in
        // which the greeting is done.
        let mut ended = false;
        let mut connection = poll_fn(move |cx| {
            while !ended {
                ended = !matches!(ready!(connection.poll_message(cx)), Some(Ok(_)));
            }
            Poll::Ready(())
        });
        let live = {
            let greeting = greet(shared, client);
            match race(greeting, &mut connection).await {
                Some(live) => live?,
                None => return Err(Fault::unreachable("it was closed while it was made")),
            }
        };
        Ok((live, connection))
    };
    timeout(shared.connect_timeout, greet).await.unwrap_or_else(|_| Err(Fault::timed_out()))
}

/// Makes the schema if it is missing, and raises the sequence.
async fn greet(shared: &Arc<Shared>, client: Client) -> Result<Live, Fault> {
    schema::ensure(&client).await?;
    let number = shared.numbers.fetch_add(1, Ordering::Relaxed) + 1;
    let live = Live::new(client, number, Arc::new(Health::default()), shared.clone());
    live.raise().await?;
    Ok(live)
}
