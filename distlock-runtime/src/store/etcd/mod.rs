//! Locks in etcd: owner tokens over the queues of the crate `distlock-etcd`.
//!
//! Each token has one key, and the order of a lock's keys says which one holds it. So nothing is reserved: a
//! release deletes a key, and the waiter behind it is notified and sees by its next command that it has the
//! lock. A process that died leaves keys whose leases end. The answer to a command is all that makes a
//! process the owner, as everywhere.
//!
//! - `acquire`: the commands that may give a lock; `record`: which processes there are
//! - here: all others, and notifications

mod acquire;
mod record;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use distlock_etcd::{Address, Kind, Live, Message as Seen, Queues, Under};
use tokio::runtime::Handle;

use super::admin::{Console, Walked};
use super::contention::Contention;
use super::owner::Owner;
use super::record::Record;
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

/// What takes longer may be overtaken: its future may be one that is not polled any more.
const OVERTAKEN: Duration = Duration::from_millis(250);

/// How to reach an etcd.
pub(crate) struct EtcdConfig {
    pub(crate) address: Address,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    /// The key of the base of fencing tokens, where a lock has none of its own.
    pub(crate) fence: String,
    /// What all names in the store begin with.
    pub(crate) prefix: String,
    pub(crate) observers: Observers,
}

/// Locks in one etcd.
pub(crate) struct EtcdStore {
    queues: Arc<Queues>,
    /// The members' addresses, for errors.
    servers: String,
    /// Notified of what is seen.
    listener: Arc<std::sync::OnceLock<Listener>>,
    fence: String,
    record: Arc<Record>,
    contention: Contention,
    command_timeout: Duration,
    alarms: Arc<Alarms>,
    handle: Handle,
}

impl EtcdStore {
    pub(crate) fn start(config: EtcdConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let EtcdConfig { address, command_timeout, connect_timeout, fence, prefix, observers } =
            config;
        let listener = Arc::new(std::sync::OnceLock::new());
        let servers = address.servers();
        let settings = distlock_etcd::Settings { address, connect_timeout };
        let mut watch = observers.watch_link();
        let heard = listener.clone();
        let on = move |seen: Seen<'_>| hand_on(seen, &heard);
        let watch = Box::new(move |node: &str, why: Option<&distlock_etcd::Fault>| match why {
            None => watch.up(node),
            Some(why) => watch.down(node, why),
        });
        let queues = Queues::start(settings, handle, watch, on);
        let (record, alarms, handle) =
            (Arc::new(Record::new(prefix)), alarms.clone(), handle.clone());
        let contention = Contention::none();
        Self {
            queues,
            servers,
            listener,
            fence,
            record,
            contention,
            command_timeout,
            alarms,
            handle,
        }
    }

    /// What is done by then; the connection that it was asked on owes an answer otherwise.
    async fn by<T>(
        &self,
        answer_by: Moment,
        live: Option<&Live>,
        work: impl Future<Output = Result<T, distlock_etcd::Fault>>,
    ) -> Result<T, Fault> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        if let Some(done) = until(work, alarm).await {
            return done.map_err(fault_of);
        }
        let silent = || Fault::timed_out().at(&self.servers);
        match live {
            Some(live) => {
                live.missed();
                Err(silent())
            }
            // There was no connection to send the question over.
            None => Err(self.outage().map_or_else(silent, |outage| outage.fault)),
        }
    }

    async fn live(&self, answer_by: Moment) -> Result<Live, Fault> {
        self.record.used(Clock::Boottime.now());
        self.by(answer_by, None, self.queues.live()).await
    }

    /// Resolves when commands have ended that were asked for before this one, and that it must not overtake.
    async fn after_others(&self, under: &mut Under<'_>) {
        let limit = Clock::Boottime.now().after(OVERTAKEN);
        until(under.turn(), Alarm::at(&self.alarms, Clock::Boottime, limit)).await;
    }

    /// The key of the base of a lock's fencing tokens.
    fn fence<'a>(&'a self, lock: &'a LockName) -> &'a str {
        lock.fence().map_or(&self.fence, |fence| fence)
    }

    async fn free(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let (name, token) = (owner.lock.stored(), &*owner.token);
        let mut under = self.queues.frees(name);
        self.after_others(&mut under).await;
        let live = self.live(answer_by).await?;
        let now = Clock::Boottime.now();
        if let Some(lasts) = self.queues.lasts(token) {
            owner.stored_until(now.after(lasts));
        }
        if keep.is_some() {
            // Its lease is not shorter. When it is due the key is deleted by the next release.
            let kept =
                self.by(answer_by, Some(&live), self.queues.keep(&live, name, token)).await?;
            return Ok(Freed { was_ours: kept, settled: true, next: Vec::new(), awaited: kept });
        }
        let release = self.queues.release(&live, name, token, owner.in_doubt());
        let freed = self.by(answer_by, Some(&live), release).await?;
        let distlock_etcd::Freed { was_there, settled } = freed;
        Ok(Freed { was_ours: was_there, settled, next: Vec::new(), awaited: false })
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let answer_by = Clock::Boottime.now().after(self.command_timeout);
        let live = self.live(answer_by).await?;
        let sent = Clock::Boottime.now();
        let leases = renewals.iter().map(|Renewal { owner, ttl, draw, .. }| {
            let lasts = self.queues.lasts(&owner.token).unwrap_or_default();
            owner.stored_until(sent.after(lasts.max(*ttl)));
            distlock_etcd::Renewal {
                name: owner.lock.stored(),
                fence: self.fence(&owner.lock),
                token: &owner.token,
                draw: *draw,
            }
        });
        let leases: Vec<_> = leases.collect();
        let answers = self.by(answer_by, Some(&live), self.queues.renew(&live, &leases)).await?;
        let owned = |answer: Option<distlock_etcd::Renewed>| match answer {
            Some(one) => Owned::Yes { contended: one.contended, fence: one.fence },
            None => Owned::No,
        };
        Ok(Renewed { sent, answers: answers.into_iter().map(|one| Ok(owned(one))).collect() })
    }

    async fn look(&self, lock: &LockName, answer_by: Moment) -> Result<Option<Held>, Fault> {
        let live = self.live(answer_by).await?;
        let held = self.queues.inspect(&live, lock.stored());
        let held = self.by(answer_by, Some(&live), held).await?;
        let holder = |(token, remaining)| Holder { token, remaining: Some(remaining) };
        let holders: Vec<_> = held.holders.into_iter().map(holder).collect();
        Ok((!holders.is_empty()).then_some(Held { holders, queue: held.waiters }))
    }
}

impl Console for EtcdStore {
    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let live = self.live(answer_by).await?;
            let beginning = format!("{prefix}lock:");
            let names = self.queues.names(&live, &beginning, &cursor);
            let (names, next) = self.by(answer_by, Some(&live), names).await?;
            Ok(Walked { names, next, missed: None })
        })
    }
}

impl Store for EtcdStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.by(answer_by, None, self.queues.first()).await.map(|_| ()) })
    }

    /// A watch is asked for with each place in the queue, over the same connection.
    fn is_notified(&self, _lock: &LockName) -> bool {
        true
    }

    fn hears_answers(&self, _lock: &LockName) -> bool {
        false
    }

    fn outage(&self) -> Option<Outage> {
        let (since, fault) = self.queues.outage()?;
        let now = Clock::Boottime.now();
        let lasts = Moment::from_nanos(0).after(since.elapsed());
        let since = Moment::from_nanos(now.as_nanos().saturating_sub(lasts.as_nanos()));
        Some(Outage { since, fault: fault_of(fault) })
    }

    fn listen(&self, _process: &str, listener: Listener) {
        let _ = self.listener.set(listener);
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

    fn introduce(&self, itself: &ProcessInfo) {
        let keeper = Arc::new(record::RecordKeeper(self.queues.clone()));
        self.handle.spawn(self.record.start(itself, &keeper));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.record.end();
            let left = record::remove(&self.queues, &self.record.prefix, &process);
            self.by(answer_by, None, left).await
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let all = record::all(&self.queues, &prefix);
            Ok(self.by(answer_by, None, all).await?.into_keys().collect())
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move {
            let some = record::some(&self.queues, &prefix, &processes);
            self.by(answer_by, None, some).await
        })
    }

    /// Its process watches its key.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}

    fn status(&self) -> StoreStatus {
        StoreStatus {
            connected: self.queues.is_connected(),
            wake_ups: WakeUps::Notified,
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let live = self.live(answer_by).await?;
            let sent = Clock::Boottime.now();
            self.by(answer_by, Some(&live), self.queues.ping(&live, &self.fence)).await?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { self.look(&lock, answer_by).await })
    }
}

fn hand_on(seen: Seen<'_>, listener: &std::sync::OnceLock<Listener>) {
    let Some(listener) = listener.get() else { return };
    let of = |name: &str| StoredName::new(name.to_owned());
    match seen {
        Seen::Turn(name, token) => {
            listener(Notification::Reserved(Message { stored: &of(name), token }));
        }
        Seen::Behind(name, token) => {
            listener(Notification::WaiterBehind(Message { stored: &of(name), token }));
        }
        Seen::Taken(name, token) => {
            listener(Notification::TakenAway(Message { stored: &of(name), token }));
        }
        Seen::Interrupted => listener(Notification::Interrupted),
    }
}

fn fault_of(fault: distlock_etcd::Fault) -> Fault {
    let kind = match fault.kind {
        Kind::Unreachable => BackendKind::Unreachable,
        Kind::TimedOut => BackendKind::TimedOut,
        Kind::Refused => BackendKind::Refused,
        Kind::Full => BackendKind::OutOfMemory,
        Kind::Other => BackendKind::Other,
    };
    if fault.passing {
        Fault::passing(kind, fault.words)
    } else {
        Fault::lasting(kind, fault.words)
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
