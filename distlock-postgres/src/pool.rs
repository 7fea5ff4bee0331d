//! The table: its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::database::Shared;
use crate::error::Fault;
use crate::fence::Fence;
use crate::link::{Link, State, Watch};
use crate::listener::{Listener, Message};
use crate::session::Live;
use crate::url::Address;

/// How often what dead processes have left is removed.
const SWEEP: Duration = Duration::from_secs(60);

/// How a table is used.
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// How long it may take to make a connection.
    pub connect_timeout: Duration,
    /// How long the callers of a command wait for its answer.
    pub command_timeout: Duration,
    /// How many connections there are for commands.
    pub lanes: usize,
}

/// The connections to one database. They are made on first use.
pub struct Table {
    shared: Arc<Shared>,
    lanes: Vec<Arc<Link>>,
    renewals: Arc<Link>,
    listener: Arc<Listener>,
    handle: Handle,
}

impl Table {
    /// Starts it on a runtime with I/O and timers. `watch` is called for each connection.
    pub fn start(settings: Settings, handle: &Handle, watch: impl Fn() -> Watch) -> Self {
        let Settings { address, connect_timeout, command_timeout, lanes } = settings;
        let lanes = lanes.max(1);
        let shared = Shared::new(address, connect_timeout, command_timeout, lanes, handle);
        let shared = Arc::new(shared);
        let link = || Link::start(&shared, handle, watch());
        let lanes: Vec<_> = (0..lanes).map(|_| link()).collect();
        let renewals = link();
        handle.spawn(sweep(lanes[0].clone()));
        let listener = Arc::new(Listener::new(shared.clone(), lanes[0].clone()));
        Self { shared, lanes, renewals, listener, handle: handle.clone() }
    }

    /// How many connections for commands there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// One of the connections for commands, as soon as it is there; an error where trying again cannot
    /// help.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn lane(&self, number: usize) -> Result<Live, Fault> {
        self.live(&self.lanes[number]).await
    }

    /// Returns the connection of a link, or any other connection that is up.
    async fn live(&self, own: &Link) -> Result<Live, Fault> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.mark_unchanged();
            match own.want() {
                State::Up(live) => return Ok(live),
                State::Unused => {}
                State::Down(fault) => {
                    if let Some(live) = self.lanes.iter().find_map(|lane| lane.up()) {
                        return Ok(live);
                    }
                    if !fault.passing {
                        return Err(fault);
                    }
                }
            }
            if changes.changed().await.is_err() {
                return Err(Fault::unreachable("the connection is not kept up any more"));
            }
        }
    }

    /// The connection for renewals.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn renewals(&self) -> Result<Live, Fault> {
        self.live(&self.renewals).await
    }

    /// Resolves when the first connection for commands is there; it makes none.
    pub async fn until_up(&self) {
        self.lanes[0].until_up().await;
    }

    /// Resolves when it is not there any more.
    pub async fn until_down(&self) {
        self.lanes[0].until_down().await;
    }

    /// The first connection, or why the first attempt to make it failed.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn first(&self) -> Result<Live, Fault> {
        self.lanes[0].first().await
    }

    /// Opens the connection that listens for this process, once the first connection is up.
    pub fn listen(&self, process: &str, on: impl Fn(Message<'_>) + Send + Sync + 'static) {
        self.listener.start(process, Box::new(on), &self.handle);
    }

    /// Whether the URL allows it to listen.
    pub fn may_listen(&self) -> bool {
        self.shared.address.listens
    }

    /// Whether messages arrive when they are wanted.
    pub fn is_listening(&self) -> bool {
        self.listener.is_able()
    }

    /// Listens until [`need_not_hear`](Self::need_not_hear). Returns whether the connection listens. Each
    /// session that listens costs the server time for every message.
    pub async fn hear(&self) -> bool {
        self.listener.hear().await
    }

    /// Stops listening, because nobody waits for a message.
    pub fn need_not_hear(&self) {
        self.listener.need_not_hear();
    }

    /// Whether a connection for commands is there.
    pub fn is_connected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_up())
    }

    /// Since when no connection for commands is up, and why; `None` if one is up, or if none was ever used.
    pub fn outage(&self) -> Option<(Instant, Fault)> {
        if self.is_connected() {
            return None;
        }
        self.lanes.iter().filter_map(|lane| lane.outage()).min_by_key(|(since, _)| *since)
    }

    /// What is known of the sequence of fencing tokens.
    pub fn fence(&self) -> &Fence {
        &self.shared.fence
    }
}

async fn sweep(lane: Arc<Link>) {
    // A new process may replace one that died.
    let mut unless_within = Duration::ZERO;
    loop {
        lane.until_up().await;
        if let Some(live) = lane.up() {
            let _ = live.sweep(unless_within).await;
            unless_within = SWEEP;
        }
        tokio::time::sleep(SWEEP).await;
    }
}
