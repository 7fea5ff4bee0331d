//! The table: its connections.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::address::Address;
use crate::fault::Fault;
use crate::fence::Fence;
use crate::link::{Link, Watch};
use crate::listener::{Listener, Message};
use crate::live::Live;
use crate::shared::Shared;

/// How often what dead processes have left is removed.
const SWEEP: Duration = Duration::from_secs(60);

/// How a table is used.
pub struct Settings {
    /// Where it is.
    pub address: Address,
    /// How long it may take to make a connection.
    pub connect_timeout: Duration,
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
        let Settings { address, connect_timeout, lanes } = settings;
        let numbers = AtomicU64::new(0);
        let (fence, direct) = (Fence::new(), watch::Sender::new(false));
        let shared = Arc::new(Shared { address, connect_timeout, fence, numbers, direct });
        let link = || Link::start(&shared, handle, watch());
        let lanes: Vec<_> = (0..lanes.max(1)).map(|_| link()).collect();
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
        self.lanes[number].live().await
    }

    /// The connection for renewals.
    ///
    /// # Errors
    ///
    /// Why there is no connection.
    pub async fn renewals(&self) -> Result<Live, Fault> {
        self.renewals.live().await
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

    /// Listens for the process of that name from the first connection on.
    pub fn listen(&self, process: &str, on: impl Fn(Message<'_>) + Send + Sync + 'static) {
        self.listener.start(process, Box::new(on), &self.handle);
    }

    /// Whether it listens at present.
    pub fn is_listening(&self) -> bool {
        self.listener.is_listening()
    }

    /// Whether a connection for commands is there.
    pub fn is_connected(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_up())
    }

    /// Since when a connection for commands is missing, and why; `None` where none is that was ever used.
    pub fn outage(&self) -> Option<(Instant, Fault)> {
        self.lanes.iter().filter_map(|lane| lane.outage()).min_by_key(|(since, _)| *since)
    }

    /// What is known of the sequence of fencing tokens.
    pub fn fence(&self) -> &Fence {
        &self.shared.fence
    }
}

async fn sweep(lane: Arc<Link>) {
    loop {
        lane.until_up().await;
        if let Ok(live) = lane.live().await {
            let _ = live.sweep().await;
        }
        tokio::time::sleep(SWEEP).await;
    }
}
