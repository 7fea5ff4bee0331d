//! The commands of the store.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::acquire::{self, Ask, Reply};
use crate::address::Address;
use crate::ensemble::{Ensemble, Listener, Message, tell};
use crate::fault::Fault;
use crate::inspect::{self, Held};
use crate::release::{self, Freed};
use crate::renew::{self, Renewal, Renewed, Swap};
use crate::session::{EnsembleConfig, Watch};

/// The node below the chroot that contains all locks.
const ROOT: &str = "/distlock";

/// The settings of a store.
pub struct Settings {
    /// The servers.
    pub address: Address,
    /// The time for creating a session.
    pub connect_timeout: Duration,
    /// The usual length of a lease. Its session is created together with the first one.
    pub ttl: Duration,
}

/// The locks of one ensemble.
pub struct ZooKeeperStore {
    ensemble: Arc<Ensemble>,
    ttl: Duration,
}

impl ZooKeeperStore {
    /// Starts the store on a runtime with timers. Calls `watch` once for each session.
    pub fn start(
        settings: Settings,
        handle: &Handle,
        watch: impl Fn() -> Watch + Send + Sync + 'static,
    ) -> Self {
        let Settings { address, connect_timeout, ttl } = settings;
        let listener: Arc<OnceLock<Listener>> = Arc::default();
        let told = listener.clone();
        let interrupted = Arc::new(move || tell(&told, Message::Interrupted));
        let root = format!("{}{ROOT}", address.chroot);
        let config = EnsembleConfig { address, connect_timeout, root, interrupted };
        let ensemble = Ensemble::start(config, listener, handle, watch);
        handle.spawn(release::release_expired(ensemble.clone()));
        Self { ensemble, ttl }
    }

    /// Resolves with the first session, or with the reason why the first attempt to create it failed.
    ///
    /// # Errors
    ///
    /// Says why there is no session.
    pub async fn first(&self) -> Result<(), Fault> {
        let leases = self.ensemble.session_for(self.ttl)?;
        // Ask for both sessions before waiting for one.
        leases.want();
        self.ensemble.waiting.first().await?;
        leases.first().await.map(|_| ())
    }

    /// Resolves when there is a session for leases of this length.
    ///
    /// # Errors
    ///
    /// Fails where another attempt cannot help, because the servers do not allow such sessions.
    pub async fn ready(&self, ttl: Duration) -> Result<(), Fault> {
        let session = self.ensemble.session_for(ttl)?;
        self.ensemble.live(&session, ttl).await.map(|_| ())
    }

    /// Registers the listener for messages.
    pub fn listen(&self, on: impl Fn(Message<'_>) + Send + Sync + 'static) {
        self.ensemble.listen(Box::new(on));
    }

    /// Returns whether the session of waiters is connected.
    pub fn is_connected(&self) -> bool {
        self.ensemble.waiting.is_up()
    }

    /// Returns since when a session is not connected, and why. `None` if every session that was used is connected.
    pub fn outage(&self) -> Option<(Instant, Fault)> {
        self.ensemble.outage()
    }

    /// Makes a round trip to the servers.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn ping(&self) -> Result<(), Fault> {
        let live = self.ensemble.waiting.live().await?;
        Ok(live.client.sync(&self.ensemble.config.root).await?)
    }

    /// Acquires a lock that is free, or else makes the token wait. Idempotent.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked. The token may then hold the lock, or wait for it.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Reply, Fault> {
        acquire::acquire(&self.ensemble, ask).await
    }

    /// Extends leases, and returns for each whether the token still holds the lock.
    pub async fn renew(&self, leases: &[Renewal<'_>]) -> Vec<Result<Option<Renewed>, Fault>> {
        renew::renew(&self.ensemble, leases).await
    }

    /// Gives a lock from a token that holds it exclusively to one that shares it. Idempotent.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked. Either token may then hold the lock.
    pub async fn exchange(&self, swap: &Swap<'_>) -> Result<Reply, Fault> {
        renew::exchange(&self.ensemble, swap).await
    }

    /// Releases a lock, or keeps it for the time `keep`, and removes the token from the queue. Idempotent. Once this is
    /// answered, no command that was sent for the token can still take effect.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn release(
        &self,
        name: &str,
        token: &str,
        keep: Option<Duration>,
    ) -> Result<Freed, Fault> {
        release::release(&self.ensemble, name, token, keep).await
    }

    /// Returns the holders and waiters of a lock.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn inspect(&self, name: &str) -> Result<Held, Fault> {
        inspect::inspect(&self.ensemble, name).await
    }

    /// Returns the names of all locks that are in use, or were a short time ago.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn names(&self) -> Result<Vec<String>, Fault> {
        inspect::names(&self.ensemble).await
    }

    /// Stores a text under a name for as long as this process has a session.
    pub fn introduce(&self, name: &str, text: String) {
        if let Ok(node) = self.ensemble.directory(name) {
            self.ensemble.record.keep(node, text, &self.ensemble.handle);
        }
    }

    /// Removes the text of [`introduce`](Self::introduce).
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn take_leave(&self) -> Result<(), Fault> {
        Ok(self.ensemble.record.remove().await?)
    }

    /// Returns the texts that processes have stored under these names.
    ///
    /// # Errors
    ///
    /// Fails if the servers cannot be asked.
    pub async fn records(&self, names: &[String]) -> Result<HashMap<String, String>, Fault> {
        inspect::records(&self.ensemble, names).await
    }
}
