//! The store: core's traits over the commands of this crate.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment, unix_time};
use distlock_core::name::LockName;
use distlock_core::process_info::{ProcessInfo, record_name};
use distlock_core::select::until;
use distlock_core::store::admin::{StoreAdmin, Walked};
use distlock_core::store::{
    Answer, Attempt, DrivenBy, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Listener,
    Op, OpOn, Outage, Owner, ProcessDirectory, Records, Renewal, Renewed, Store, StoreEvents,
    StoreStatus, WakeUps,
};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;

use crate::address::ZooKeeperAddress;
use crate::ensemble::Ensemble;
use crate::session::EnsembleConfig;
use crate::{acquire, exchange, inspect, release, renew};

/// The node below the chroot that contains all locks.
const ROOT: &str = "/distlock";

/// The settings of a store.
pub struct ZooKeeperConfig {
    /// The servers.
    pub address: ZooKeeperAddress,
    /// The time that a renewal has for its answer.
    pub command_timeout: Duration,
    /// The time for creating a session.
    pub connect_timeout: Duration,
    /// The usual length of a lease. Its session is created together with that of waiters.
    pub ttl: Duration,
    /// The prefix of all names in the store.
    pub prefix: String,
    /// Receives the state of each session.
    pub events: Arc<dyn StoreEvents>,
}

/// Locks in one ensemble.
///
/// The rules are those of Redis, with three differences. Each waiter acquires the lock itself, so a release names no
/// next owner and reserves nothing. A waiter watches the node before its own instead of receiving messages. All
/// commands of a token go over one session, in order, so its release always comes after them (R9).
pub struct ZooKeeperStore {
    ensemble: Arc<Ensemble>,
    /// The addresses of the servers, for errors.
    servers: String,
    prefix: String,
    ttl: Duration,
    command_timeout: Duration,
    alarms: Arc<Alarms>,
}

impl ZooKeeperStore {
    /// Starts the store on a runtime with timers and I/O. Sessions are created on first use.
    pub fn start(config: ZooKeeperConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let ZooKeeperConfig { address, command_timeout, connect_timeout, ttl, prefix, events } =
            config;
        let (servers, root) = (address.servers(), format!("{}{ROOT}", address.chroot));
        let listener = OnceLock::new();
        let config = EnsembleConfig { address, connect_timeout, root, listener, events };
        let ensemble = Ensemble::start(config, handle);
        handle.spawn(release::release_expired(ensemble.clone()));
        Self { ensemble, servers, prefix, ttl, command_timeout, alarms: alarms.clone() }
    }

    /// Runs a command that has to be answered by this moment.
    async fn by<T>(
        &self,
        answer_by: Moment,
        command: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        match until(command, alarm).await {
            Some(done) => done,
            None => Err(self.no_answer()),
        }
    }

    /// Returns why there was no answer in time.
    fn no_answer(&self) -> Fault {
        let silent = || Fault::timed_out().at(&self.servers);
        self.outage().map_or_else(silent, |outage| outage.fault)
    }

    /// Waits for the first sessions, or for the reason why the first attempt to create one failed.
    async fn first_sessions(&self) -> Result<(), Fault> {
        let leases = self.ensemble.session_for(self.ttl)?;
        // Ask for both sessions before waiting for one.
        leases.want();
        self.ensemble.waiting.first().await?;
        leases.first().await.map(|_| ())
    }

    async fn renew_all(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let sent = Clock::Boottime.now();
        for Renewal { owner, ttl, .. } in renewals {
            owner.stored_until(sent.after(*ttl));
        }
        let answers = async { Ok(renew::renew(&self.ensemble, renewals).await) };
        let answers = self.by(sent.after(self.command_timeout), answers).await?;
        Ok(Renewed { sent, answers })
    }

    /// Makes a round trip to the servers.
    async fn round_trip(&self) -> Result<(), Fault> {
        let live = self.ensemble.waiting.live().await?;
        Ok(live.client.sync(&self.ensemble.config.root).await?)
    }
}

impl Store for ZooKeeperStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.by(answer_by, self.first_sessions()).await })
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        self.ensemble.waiting.is_up()
    }

    fn outage(&self) -> Option<Outage> {
        let (since, fault) = self.ensemble.outage()?;
        let now = Clock::Boottime.now();
        let lasts = Moment::from_nanos(0).after(since.elapsed());
        let since = Moment::from_nanos(now.as_nanos().saturating_sub(lasts.as_nanos()));
        Some(Outage { since, fault })
    }

    fn listen(&self, _process: &str, listener: Listener) {
        let _ = self.ensemble.config.listener.set(listener);
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(
            async move { self.by(answer_by, acquire::try_acquire(&self.ensemble, &attempt)).await },
        )
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { self.by(answer_by, acquire::enter(&self.ensemble, &entry)).await })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(
            async move { self.by(answer_by, release::release(&self.ensemble, &owner, keep)).await },
        )
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(
            async move { self.by(answer_by, exchange::exchange(&self.ensemble, &exchange)).await },
        )
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.renew_all(&renewals).await })
    }

    fn status(&self) -> StoreStatus {
        let connected = self.ensemble.waiting.is_up();
        StoreStatus {
            connected,
            wake_ups: if connected { WakeUps::Notified } else { WakeUps::Polling },
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let sent = Clock::Boottime.now();
            self.by(answer_by, self.round_trip()).await?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            self.by(answer_by, inspect::inspect(&self.ensemble, lock.stored())).await
        })
    }
}

impl ProcessDirectory for ZooKeeperStore {
    /// Stores a record that exists for as long as the session of this process.
    fn introduce(&self, info: &ProcessInfo) {
        if let Ok(node) = self.ensemble.directory(&record_name(&self.prefix, info.id())) {
            self.ensemble.record.keep(node, info.record(unix_time()), &self.ensemble.handle);
        }
    }

    fn take_leave(self: Arc<Self>, _process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.by(answer_by, self.ensemble.record.remove()).await })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(
            async move { self.by(answer_by, inspect::processes(&self.ensemble, &prefix)).await },
        )
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move {
            self.by(answer_by, inspect::records(&self.ensemble, &prefix, &processes)).await
        })
    }

    /// Does nothing, because the owner watches its node.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}
}

impl StoreAdmin for ZooKeeperStore {
    /// Returns all names at once, because ZooKeeper has no cursor over the children of a node.
    fn walk(self: Arc<Self>, prefix: String, _cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let names = self.by(answer_by, inspect::locks(&self.ensemble, &prefix)).await?;
            Ok(Walked { names, ..Walked::default() })
        })
    }
}

impl fmt::Debug for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
