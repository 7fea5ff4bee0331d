//! Locks in ZooKeeper: owner tokens over the nodes of the crate `distlock-zookeeper`.
//!
//! The rules are those of Redis. What differs: each waiter lets itself in, so a release names no next owner
//! and reserves nothing; a waiter watches the one in front of it instead of being sent messages; and all
//! that is sent for a token goes over one session, in order, so that its release is always behind it (R9).
//!
//! - `acquire`: the commands that may give a lock
//! - here: all others, and notifications

mod acquire;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use distlock_zookeeper::{Address, Ensemble, Kind, Message as Heard};
use tokio::runtime::Handle;

use super::admin::{Console, Walked};
use super::contention::Contention;
use super::owner::Owner;
use super::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Listener,
    Message, Notification, Op, OpOn, Outage, Owned, ProcessInfo, Records, Renewal, Renewed, Store,
};
use crate::clock::{Clock, Moment};
use crate::engine::alarm::{Alarm, Alarms};
use crate::error::BackendKind;
use crate::name::{LockName, StoredName};
use crate::observe::Observers;
use crate::select::until;
use crate::store::StoreEvents;
use crate::store::status::{DrivenBy, StoreStatus, WakeUps};
use distlock_core::process_info::record_name;
use distlock_core::wall_clock::unix_time;

/// How to reach a ZooKeeper.
pub(crate) struct ZooKeeperConfig {
    pub(crate) address: Address,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) ttl: Duration,
    /// What all names in the store begin with.
    pub(crate) prefix: String,
    pub(crate) observers: Observers,
}

/// Locks in one ensemble.
pub(crate) struct ZooKeeperStore {
    ensemble: Ensemble,
    /// The servers' addresses, for errors.
    servers: String,
    prefix: String,
    contention: Contention,
    command_timeout: Duration,
    alarms: Arc<Alarms>,
}

impl ZooKeeperStore {
    pub(crate) fn start(config: ZooKeeperConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let ZooKeeperConfig { address, command_timeout, connect_timeout, ttl, prefix, observers } =
            config;
        let servers = address.servers();
        let settings = distlock_zookeeper::Settings { address, connect_timeout, ttl };
        let ensemble = Ensemble::start(settings, handle, move || {
            let mut watch = observers.watch_link();
            Box::new(move |node: &str, why: Option<&distlock_zookeeper::Fault>| match why {
                None => watch.up(node),
                Some(why) => watch.down(node, why),
            })
        });
        let contention = Contention::none();
        Self { ensemble, servers, prefix, contention, command_timeout, alarms: alarms.clone() }
    }

    /// What is done by then.
    async fn by<T>(
        &self,
        answer_by: Moment,
        work: impl Future<Output = Result<T, distlock_zookeeper::Fault>>,
    ) -> Result<T, Fault> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        match until(work, alarm).await {
            Some(done) => done.map_err(|fault| fault_of(&fault)),
            None => Err(self.no_answer()),
        }
    }

    /// Returns why there was no answer in time.
    fn no_answer(&self) -> Fault {
        let silent = || Fault::timed_out().at(&self.servers);
        self.outage().map_or_else(silent, |outage| outage.fault)
    }

    async fn free(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let release = self.ensemble.release(owner.lock.stored(), &owner.token, keep);
        let freed = self.by(answer_by, release).await?;
        let (was_ours, awaited) = (freed.was_held, freed.awaited);
        Ok(Freed { was_ours, settled: true, next: Vec::new(), awaited })
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let sent = Clock::Boottime.now();
        let answer_by = sent.after(self.command_timeout);
        let leases = renewals.iter().map(|Renewal { owner, ttl, draw, .. }| {
            owner.stored_until(sent.after(*ttl));
            distlock_zookeeper::Renewal { token: &owner.token, ttl: *ttl, draw: *draw }
        });
        let leases: Vec<_> = leases.collect();
        let answers = async { Ok(self.ensemble.renew(&leases).await) };
        let answers = self.by(answer_by, answers).await?;
        let owned = |answer: Result<_, distlock_zookeeper::Fault>| match answer {
            Ok(None) => Ok(Owned::No),
            Ok(Some(distlock_zookeeper::Renewed { contended, fence })) => {
                Ok(Owned::Yes { contended, fence })
            }
            Err(fault) => Err(fault_of(&fault)),
        };
        Ok(Renewed { sent, answers: answers.into_iter().map(owned).collect() })
    }

    /// The processes that say of themselves which they are.
    async fn processes(&self, prefix: &str, answer_by: Moment) -> Result<Vec<String>, Fault> {
        let names = self.by(answer_by, self.ensemble.names()).await?;
        let beginning = record_name(prefix, "");
        let ids = names.iter().filter_map(|name| name.strip_prefix(&beginning));
        Ok(ids.map(str::to_owned).collect())
    }

    async fn records_of(
        &self,
        prefix: &str,
        processes: &[String],
        answer_by: Moment,
    ) -> Result<Records, Fault> {
        let names: Vec<_> = processes.iter().map(|process| record_name(prefix, process)).collect();
        let mut records = self.by(answer_by, self.ensemble.records(&names)).await?;
        let texts = names.iter().map(|name| records.remove(name)).collect();
        Ok(Records { time: unix_time(), texts })
    }

    async fn look(&self, lock: &LockName, answer_by: Moment) -> Result<Option<Held>, Fault> {
        let held = self.by(answer_by, self.ensemble.inspect(lock.stored())).await?;
        let holder = |(token, remaining)| Holder { token, remaining: Some(remaining) };
        let holders: Vec<_> = held.holders.into_iter().map(holder).collect();
        Ok((!holders.is_empty()).then_some(Held { holders, queue: held.waiters }))
    }
}

impl Console for ZooKeeperStore {
    /// All at once: the nodes of one are its children, which are only to be had together.
    fn walk(self: Arc<Self>, prefix: String, _cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let mut names = self.by(answer_by, self.ensemble.names()).await?;
            let is_lock = |name: &str| {
                name.strip_prefix(&*prefix).is_some_and(|rest| rest.starts_with("lock:"))
            };
            names.retain(|name| is_lock(name));
            Ok(Walked { names, ..Walked::default() })
        })
    }
}

impl Store for ZooKeeperStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.by(answer_by, self.ensemble.first()).await })
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        self.ensemble.is_connected()
    }

    fn outage(&self) -> Option<Outage> {
        let (since, fault) = self.ensemble.outage()?;
        let now = Clock::Boottime.now();
        let lasts = Moment::from_nanos(0).after(since.elapsed());
        let since = Moment::from_nanos(now.as_nanos().saturating_sub(lasts.as_nanos()));
        Some(Outage { since, fault: fault_of(&fault) })
    }

    fn listen(&self, _process: &str, listener: Listener) {
        self.ensemble.listen(move |heard| hear(heard, &listener));
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move { acquire::try_acquire(self, &attempt, answer_by).await })
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { acquire::enter(&self, &entry, answer_by).await })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { self.free(&owner, keep, answer_by).await })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { acquire::exchange(&self, &exchange, answer_by).await })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    /// Its record is there for as long as its session.
    fn introduce(&self, itself: &ProcessInfo) {
        self.ensemble
            .introduce(&record_name(&self.prefix, itself.id()), itself.record(unix_time()));
    }

    fn take_leave(self: Arc<Self>, _process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.by(answer_by, self.ensemble.take_leave()).await })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move { self.processes(&prefix, answer_by).await })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move { self.records_of(&prefix, &processes, answer_by).await })
    }

    /// Its owner watches its node.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}

    fn status(&self) -> StoreStatus {
        let connected = self.ensemble.is_connected();
        StoreStatus {
            connected,
            wake_ups: if connected { WakeUps::Notified } else { WakeUps::Polling },
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let sent = Clock::Boottime.now();
            self.by(answer_by, self.ensemble.ping()).await?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { self.look(&lock, answer_by).await })
    }
}

fn hear(heard: Heard<'_>, listener: &Listener) {
    let name = |name: &str| StoredName::new(name.to_owned());
    match heard {
        Heard::Room(lock, token) => {
            listener(Notification::Reserved(Message { stored: &name(lock), token }));
        }
        Heard::Behind(lock, token) => {
            listener(Notification::WaiterBehind(Message { stored: &name(lock), token }));
        }
        Heard::Taken(lock, token) => {
            listener(Notification::TakenAway(Message { stored: &name(lock), token }));
        }
        Heard::Interrupted => listener(Notification::Interrupted),
    }
}

fn fault_of(fault: &distlock_zookeeper::Fault) -> Fault {
    let kind = match fault.kind {
        Kind::Unreachable => BackendKind::Unreachable,
        Kind::TimedOut => BackendKind::TimedOut,
        Kind::Refused => BackendKind::Refused,
        Kind::Unsupported | Kind::Other => BackendKind::Other,
    };
    let words = fault.words.clone();
    if fault.passing { Fault::passing(kind, words) } else { Fault::lasting(kind, words) }
}

impl fmt::Debug for ZooKeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
