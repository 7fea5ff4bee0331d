//! What all connections of a table share, and the state of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use crate::error::Fault;
use crate::fence::Fence;
use crate::select::race;
use crate::url::Address;

/// After a command without an answer in time, the connection has this long for any answer, or longer while the
/// server may wait for a lock of its own.
const SILENCE: Duration = Duration::from_secs(1);
/// A command waits no longer than this for a lock of the server.
const LONGEST_LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What all connections of a table share.
pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) connect_timeout: Duration,
    pub(crate) fence: Fence,
    /// Connections are numbered as they are made.
    pub(crate) numbers: AtomicU64,
    /// Messages come through: no pooler gives each transaction another connection.
    pub(crate) direct: watch::Sender<bool>,
    /// A connection was opened or lost.
    pub(crate) changes: watch::Sender<()>,
    /// The number of connections for commands that are up.
    pub(crate) up: AtomicUsize,
    /// The host of the last good connection.
    pub(crate) preferred: AtomicUsize,
    /// The number of connections when all are up.
    pub(crate) wanted: usize,
    /// One permit for each connection that may be open at the server.
    pub(crate) budget: Arc<Semaphore>,
    /// How long a command may wait for a lock of the server.
    pub(crate) lock_timeout: Duration,
    pub(crate) handle: Handle,
}

impl Shared {
    pub(crate) fn new(
        address: Address,
        connect_timeout: Duration,
        command_timeout: Duration,
        lanes: usize,
        handle: &Handle,
    ) -> Self {
        let preferred = AtomicUsize::new(address.first_host());
        // The server answers before its caller stops waiting.
        let lock_timeout = (command_timeout * 3 / 4).min(LONGEST_LOCK_TIMEOUT);
        Self {
            address,
            connect_timeout,
            fence: Fence::new(),
            numbers: AtomicU64::new(0),
            direct: watch::Sender::new(false),
            changes: watch::Sender::new(()),
            up: AtomicUsize::new(0),
            preferred,
            // One connection for renewals, and one that listens.
            wanted: lanes + 2,
            // Less than twice all of them, because the one for renewals is often not open.
            budget: Arc::new(Semaphore::new(2 * (lanes + 1))),
            lock_timeout,
            handle: handle.clone(),
        }
    }

    /// Waits for a permit to open one more connection. Abandoned connections return theirs when they have ended.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let permit = self.budget.clone().acquire_owned();
        match timeout(self.connect_timeout, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Fault::unreachable(
                "the server has not ended connections that were left because it did not answer",
            )),
        }
    }

    /// How long a connection that owes an answer may be silent.
    pub(crate) fn silence(&self) -> Duration {
        SILENCE.max(self.lock_timeout + SILENCE / 2)
    }

    /// This host did not answer, so the next attempt begins with another one. Several connections to it may fall
    /// silent together: only the first of them changes the order.
    pub(crate) fn host_is_silent(&self, host: usize) {
        let next =
            |preferred: usize| (preferred == host).then(|| (host + 1) % self.address.hosts.len());
        let _ = self.preferred.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

/// The state of one connection, as its commands see it.
#[derive(Default)]
pub(crate) struct Health {
    /// The number of commands without an answer in time since the last answer.
    silent: AtomicU64,
    answers: AtomicU64,
    /// How often the server has stopped waiting for a standby.
    unconfirmed: AtomicU64,
    suspected: Notify,
    bad: Notify,
}

impl Health {
    /// An answer has come.
    pub(crate) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::AcqRel);
        self.silent.store(0, Ordering::Release);
    }

    /// An answer has not come in time.
    pub(crate) fn missed(&self) {
        self.silent.fetch_add(1, Ordering::AcqRel);
        self.suspected.notify_one();
    }

    pub(crate) fn is_bad(&self) {
        self.bad.notify_one();
    }

    /// The server has committed without the standby that it should have waited for.
    pub(crate) fn not_confirmed(&self) {
        self.unconfirmed.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes when a standby did not confirm a commit.
    pub(crate) fn unconfirmed(&self) -> u64 {
        self.unconfirmed.load(Ordering::Acquire)
    }

    /// Resolves when the connection must be dropped. Returns whether the reason is silence.
    pub(crate) async fn gone_bad(&self, silence: Duration) -> bool {
        let is_silent = async {
            loop {
                self.suspected.notified().await;
                let before = self.answers.load(Ordering::Acquire);
                tokio::time::sleep(silence).await;
                let none = self.answers.load(Ordering::Acquire) == before;
                if none && self.silent.load(Ordering::Acquire) > 0 {
                    return;
                }
            }
        };
        race(is_silent, self.bad.notified()).await.is_some()
    }
}
