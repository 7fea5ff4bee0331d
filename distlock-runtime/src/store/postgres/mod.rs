//! Locks in Postgres: owner tokens over the lease table of the crate `distlock-postgres`.
//!
//! The rules are those of Redis. What differs: a lock's name is locked in the database while a function
//! looks at it, so each of these is one step to all others, as a script is in Redis; and renewals of any number of
//! leases are one statement.
//!
//! - `acquire`: the functions that may give a lock
//! - `ears`: when this process listens for messages
//! - `record`: which processes there are; `letters`: what processes say to each other; `console`
//! - here: all others

mod acquire;
mod console;
mod ears;
mod letters;
mod record;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use distlock_postgres::{Address, Kind, Live, Message as Heard, Table};
use tokio::runtime::Handle;

use super::contention::Contention;
use super::owner::Owner;
use super::record::Record;
use super::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Letter,
    Listener, Notification, Op, OpOn, Outage, Owned, ProcessInfo, Records, Renewal, Renewed, Store,
};
use crate::clock::{Clock, Moment};
use crate::engine::alarm::{Alarm, Alarms};
use crate::error::BackendKind;
use crate::name::LockName;
use crate::observe::Observers;
use crate::select::until;
use crate::store::StoreEvents;
use crate::store::status::{DrivenBy, StoreStatus, WakeUps};
use ears::Ears;
use letters::hear;

/// How many connections for commands there are by default. On one, each lock would wait for the disk
/// behind all others; a server writes for several connections at once.
const LANES: usize = 4;
/// Of no connection that was lost is it known that the server does nothing for it any more: behind a pooler it may be
/// another client's by now, so none is ended.
const NONE_CLOSED: Range<u64> = 0..0;
/// Behind a pooler no message arrives. A look that finds nothing new writes nothing, so the first looks follow
/// each other quickly.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const BACKWARDS: &str = "the sequence of fencing tokens goes backwards";

/// How to reach a Postgres.
pub(crate) struct PostgresConfig {
    pub(crate) address: Address,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: Option<usize>,
    /// What all names in the store begin with.
    pub(crate) prefix: String,
    pub(crate) observers: Observers,
}

/// Locks in one Postgres database.
pub(crate) struct PostgresStore {
    table: Arc<Table>,
    /// The servers' addresses, for errors.
    servers: String,
    record: Arc<Record>,
    contention: Contention,
    ears: Arc<Ears>,
    command_timeout: Duration,
    observers: Observers,
    alarms: Arc<Alarms>,
    handle: Handle,
}

impl PostgresStore {
    pub(crate) fn start(config: PostgresConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let PostgresConfig {
            address,
            command_timeout,
            connect_timeout,
            connections,
            prefix,
            observers,
        } = config;
        let lanes = connections.unwrap_or(LANES);
        let (record, handle) = (Arc::new(Record::new(prefix)), handle.clone());
        let servers = address.servers();
        let settings =
            distlock_postgres::Settings { address, connect_timeout, command_timeout, lanes };
        let table = Table::start(settings, &handle, || {
            let mut watch = observers.watch_link();
            Box::new(move |node: &str, why: Option<&distlock_postgres::Fault>| match why {
                None => watch.up(node),
                Some(why) => watch.down(node, why),
            })
        });
        let (table, alarms) = (Arc::new(table), alarms.clone());
        let (contention, ears) = (Contention::none(), Arc::new(Ears::new(&table, &handle)));
        Self {
            table,
            servers,
            record,
            contention,
            ears,
            command_timeout,
            observers,
            alarms,
            handle,
        }
    }

    /// What is done by then; the connection that it was asked on owes an answer otherwise.
    async fn by<T>(
        &self,
        answer_by: Moment,
        live: Option<&Live>,
        work: impl Future<Output = Result<T, distlock_postgres::Fault>>,
    ) -> Result<T, distlock_postgres::Fault> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        if let Some(done) = until(work, alarm).await {
            return done;
        }
        if let Some(live) = live {
            live.missed();
        } else if let Some((_, fault)) = self.table.outage() {
            // There was no connection to send the question over.
            return Err(fault);
        }
        let words = format!("{}: no answer in time", self.servers);
        let kind = Kind::TimedOut;
        Err(distlock_postgres::Fault { kind, words, passing: true, answered: false })
    }

    /// The connection over which all goes that concerns this lock.
    async fn live(&self, lock: &LockName, answer_by: Moment) -> Result<Live, Fault> {
        self.record.used(Clock::Boottime.now());
        let lane = self.table.lane(self.lane(lock));
        self.by(answer_by, None, lane).await.map_err(|fault| fault_of(&fault))
    }

    async fn free(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let live = self.live(&owner.lock, answer_by).await?;
        // R9: an acquire that died unanswered with an older connection may still run.
        let settled = owner.is_behind(live.number(), &NONE_CLOSED);
        let release = live.release(owner.lock.stored(), &owner.token, keep);
        let freed = self.by(answer_by, Some(&live), release).await;
        let freed = freed.map_err(|fault| fault_of(&fault))?;
        if !freed.next.is_empty() {
            self.contention.seen(&owner.lock, Clock::Boottime.now());
        }
        let next = freed.next.into_iter().map(Into::into).collect();
        Ok(Freed { was_ours: freed.was_held, settled, next, awaited: freed.awaited })
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let now = Clock::Boottime.now();
        self.record.used(now);
        let answer_by = now.after(self.command_timeout);
        let live = self.by(answer_by, None, self.table.renewals()).await;
        let live = live.map_err(|fault| fault_of(&fault))?;
        // Other processes may ask the holder of a lock that is held this long.
        renewals.iter().for_each(|renewal| self.ears.need(&renewal.owner));
        let sent = Clock::Boottime.now();
        let leases = renewals.iter().map(|Renewal { owner, ttl, draw, .. }| {
            owner.stored_until(sent.after(*ttl));
            let (name, token) = (&**owner.lock.stored(), &*owner.token);
            distlock_postgres::Renewal { name, token, ttl: *ttl, draw: *draw }
        });
        let leases: Vec<_> = leases.collect();
        let answers = self.by(answer_by, Some(&live), live.renew(&leases)).await;
        let answers = answers.map_err(|fault| fault_of(&fault))?;
        let owned = |(renewal, answer): (&Renewal, Option<(bool, Option<u64>)>)| match answer {
            None => Ok(Owned::No),
            Some((_, Some(fence))) if !self.table.fence().is_new(fence, renewal.fence) => {
                Err(Fault::passing(BackendKind::Other, BACKWARDS))
            }
            Some((contended, fence)) => Ok(Owned::Yes { contended, fence }),
        };
        Ok(Renewed { sent, answers: renewals.iter().zip(answers).map(owned).collect() })
    }

    async fn look(&self, lock: &LockName, answer_by: Moment) -> Result<Option<Held>, Fault> {
        let live = self.live(lock, answer_by).await?;
        let held = self.by(answer_by, Some(&live), live.inspect(lock.stored())).await;
        let held = held.map_err(|fault| fault_of(&fault))?;
        let holder = |(token, remaining)| Holder { token, remaining: Some(remaining) };
        let holders: Vec<_> = held.holders.into_iter().map(holder).collect();
        Ok((!holders.is_empty()).then_some(Held { holders, queue: held.waiters }))
    }
}

impl Store for PostgresStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            let first = self.by(answer_by, None, self.table.first()).await;
            first.map(|_| ()).map_err(|fault| fault_of(&fault))
        })
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        self.table.is_listening()
    }

    fn first_look(&self) -> Duration {
        FIRST_LOOK
    }

    fn outage(&self) -> Option<Outage> {
        let (since, fault) = self.table.outage()?;
        let now = Clock::Boottime.now();
        let lasts = Moment::from_nanos(0).after(since.elapsed());
        let since = Moment::from_nanos(now.as_nanos().saturating_sub(lasts.as_nanos()));
        Some(Outage { since, fault: fault_of(&fault) })
    }

    fn listen(&self, process: &str, listener: Listener) {
        let observers = self.observers.clone();
        self.table.listen(process, move |heard| match heard {
            Heard::Text(text) => hear(text, &listener),
            Heard::Interrupted => listener(Notification::Interrupted),
            Heard::Denied(words) => {
                observers.denied(words.to_owned());
            }
        });
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

    fn lane(&self, lock: &LockName) -> usize {
        lock.stored().part(self.table.lanes())
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    fn introduce(&self, itself: &ProcessInfo) {
        let keeper = Arc::new(record::RecordKeeper(self.table.clone()));
        self.handle.spawn(self.record.start(itself, &keeper));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.record.end();
            let left = record::remove(&self.table, &self.record.prefix, &process);
            self.by(answer_by, None, left).await.map_err(|fault| fault_of(&fault))
        })
    }

    fn tell(self: Arc<Self>, letters: Vec<Letter>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move {
            // The message may be a question, whose answer is a message as well.
            self.ears.need_answers();
            let _ = self.by(answer_by, None, async { Ok(self.table.hear().await) }).await;
            let sent = letters::send(&self.table, &letters);
            self.by(answer_by, None, sent).await.map_err(|fault| fault_of(&fault))
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let all = record::all(&self.table, &prefix);
            self.by(answer_by, None, all).await.map_err(|fault| fault_of(&fault))
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move {
            let some = record::some(&self.table, &prefix, &processes);
            self.by(answer_by, None, some).await.map_err(|fault| fault_of(&fault))
        })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let answer_by = Clock::Boottime.now().after(self.command_timeout);
            let Ok(live) = self.live(&lock, answer_by).await else { return };
            // Its owner also finds out at its next renewal.
            let _ = self.by(answer_by, Some(&live), live.tell("x", &token, lock.stored())).await;
        });
    }

    fn status(&self) -> StoreStatus {
        let listens = self.table.is_listening();
        StoreStatus {
            connected: self.table.is_connected(),
            wake_ups: if listens { WakeUps::Notified } else { WakeUps::Polling },
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let live = self.by(answer_by, None, self.table.lane(0)).await;
            let live = live.map_err(|fault| fault_of(&fault))?;
            let sent = Clock::Boottime.now();
            let answer = self.by(answer_by, Some(&live), live.ping()).await;
            answer.map_err(|fault| fault_of(&fault))?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { self.look(&lock, answer_by).await })
    }
}

fn fault_of(fault: &distlock_postgres::Fault) -> Fault {
    let kind = match fault.kind {
        Kind::Unreachable => BackendKind::Unreachable,
        Kind::TimedOut => BackendKind::TimedOut,
        Kind::Refused => BackendKind::Refused,
        Kind::Full => BackendKind::OutOfMemory,
        Kind::ReadOnly => BackendKind::ReadOnly,
        Kind::Other => BackendKind::Other,
    };
    let words = fault.words.clone();
    if fault.passing { Fault::passing(kind, words) } else { Fault::lasting(kind, words) }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
