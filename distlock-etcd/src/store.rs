//! The store: [`Store`] for the locks in one etcd.
//!
//! Nothing is reserved for a waiter. A release deletes a key, the next waiter is notified, and it learns by its next
//! command that it holds the lock. A process that died leaves keys until their leases end.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::select::until;
use distlock_core::store::admin::Walked;
use distlock_core::store::contention::Contention;
use distlock_core::store::record::ProcessRecord;
use distlock_core::store::{
    Answer, Attempt, DrivenBy, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Listener,
    Op, OpOn, Outage, Owner, ProcessDirectory, ProcessInfo, Records, Renewal, Renewed, Store,
    StoreAdmin, StoreEvents, StoreStatus, WakeUps,
};
use distlock_core::timers::{Alarm, Alarms};
use tokio::runtime::Handle;

use crate::address::EtcdAddress;
use crate::client::{EtcdClient, txn};
use crate::connection::{ConnectSettings, EtcdConnection};
use crate::ordering::CommandEffect;
use crate::process_records::{self, EtcdRecordKeeper};
use crate::proto::{RequestOp, TxnRequest};

/// The longest wait for commands that must not be overtaken. The future of such a command may never be polled again.
const LONGEST_TURN: Duration = Duration::from_millis(250);

/// The settings of the store.
pub struct EtcdConfig {
    /// The members and the user.
    pub address: EtcdAddress,
    /// The longest time that a command may take.
    pub command_timeout: Duration,
    /// The longest time that opening a connection may take.
    pub connect_timeout: Duration,
    /// The key of the base of fencing tokens, for locks without a base of their own.
    pub fence: String,
    /// The prefix of all names in the store.
    pub prefix: String,
    /// The receiver of reports about the connection.
    pub events: Arc<dyn StoreEvents>,
}

/// The locks in one etcd.
pub struct EtcdStore {
    client: EtcdClient,
    /// The members' addresses, for errors.
    servers: String,
    record: Arc<ProcessRecord>,
    contention: Contention,
    command_timeout: Duration,
    alarms: Arc<Alarms>,
}

impl EtcdStore {
    /// Starts on a runtime with I/O and timers. It connects on first use.
    pub fn start(config: EtcdConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let EtcdConfig { address, command_timeout, connect_timeout, fence, prefix, events } =
            config;
        let servers = address.servers();
        let settings = ConnectSettings { address, connect_timeout };
        Self {
            client: EtcdClient::start(settings, fence, handle, events.watch_link()),
            servers,
            record: Arc::new(ProcessRecord::new(prefix)),
            contention: Contention::none(),
            command_timeout,
            alarms: alarms.clone(),
        }
    }

    /// Returns the result of `work` by then. Otherwise notes that the connection owes an answer.
    async fn by<T, E: Into<Fault>>(
        &self,
        answer_by: Moment,
        connection: Option<&EtcdConnection>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault> {
        let alarm = Alarm::at(&self.alarms, Clock::Boottime, answer_by);
        if let Some(done) = until(work, alarm).await {
            return done.map_err(E::into);
        }
        let silent = || Fault::timed_out().at(&self.servers);
        match connection {
            Some(connection) => {
                connection.missed();
                Err(silent())
            }
            // There was no connection to send the request over.
            None => Err(self.outage().map_or_else(silent, |outage| outage.fault)),
        }
    }

    async fn connection(&self, answer_by: Moment) -> Result<EtcdConnection, Fault> {
        self.record.used(Clock::Boottime.now());
        self.by(answer_by, None, self.client.link.connection()).await
    }

    /// Runs a command for a lock, after the earlier commands that it must not overtake.
    async fn in_order<T>(
        &self,
        lock: &LockName,
        effect: CommandEffect,
        command: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let mut pending = self.client.order.begin(lock.stored(), effect);
        let limit = Clock::Boottime.now().after(LONGEST_TURN);
        until(pending.turn(), Alarm::at(&self.alarms, Clock::Boottime, limit)).await;
        command.await
    }

    /// Takes the lock if it is free (R2).
    async fn attempt(&self, attempt: &Attempt, answer_by: Moment) -> Result<Answer, Fault> {
        let owner = &attempt.owner;
        // R2: the engine has sent this token since, and only the answer to that counts.
        if !owner.is_unsent() {
            if !attempt.look {
                return Err(Fault::given_up());
            }
            let held = self.look(&owner.lock, answer_by).await?;
            return Ok(Held::taken_over(held.as_ref(), owner));
        }
        if self.contention.spares_a_try(attempt) {
            return Ok(Answer::Taken { remaining: None });
        }
        self.in_order(&owner.lock, CommandEffect::Acquire, async {
            let connection = self.connection(answer_by).await?;
            let answer = self.client.try_acquire(&connection, attempt);
            self.by(answer_by, Some(&connection), answer).await
        })
        .await
    }

    /// Takes the lock if it is the token's turn, and enqueues the token if not (R3, R4, R11).
    async fn enqueue(&self, entry: &Entry, answer_by: Moment) -> Result<Entered, Fault> {
        let lock = &entry.owner.lock;
        let entered = self.in_order(lock, CommandEffect::Acquire, async {
            let connection = self.connection(answer_by).await?;
            let entered = self.client.enter(&connection, entry);
            self.by(answer_by, Some(&connection), entered).await
        });
        let entered = entered.await?;
        self.contention.entered(lock, &entered);
        Ok(entered)
    }

    async fn free(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        self.in_order(&owner.lock, CommandEffect::Release, async {
            let connection = self.connection(answer_by).await?;
            let now = Clock::Boottime.now();
            if let Some(lasts) = self.client.lasts(&owner.token) {
                owner.stored_until(now.after(lasts));
            }
            if keep.is_some() {
                // Its lease is not shorter. The next release deletes the key when it is due.
                let kept = self.client.keep(&connection, owner);
                let kept = self.by(answer_by, Some(&connection), kept).await?;
                return Ok(Freed { was_ours: kept, awaited: kept, ..Freed::nothing() });
            }
            let freed = self.client.release(&connection, owner);
            self.by(answer_by, Some(&connection), freed).await
        })
        .await
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let answer_by = Clock::Boottime.now().after(self.command_timeout);
        let connection = self.connection(answer_by).await?;
        let sent = Clock::Boottime.now();
        for Renewal { owner, ttl, .. } in renewals {
            let lasts = self.client.lasts(&owner.token).unwrap_or_default();
            owner.stored_until(sent.after(lasts.max(*ttl)));
        }
        let answers = self.client.renew(&connection, renewals);
        let answers = self.by(answer_by, Some(&connection), answers).await?;
        Ok(Renewed { sent, answers: answers.into_iter().map(Ok).collect() })
    }

    async fn look(&self, lock: &LockName, answer_by: Moment) -> Result<Option<Held>, Fault> {
        let connection = self.connection(answer_by).await?;
        self.by(answer_by, Some(&connection), self.client.inspect(&connection, lock)).await
    }
}

impl StoreAdmin for EtcdStore {
    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let connection = self.connection(answer_by).await?;
            let beginning = format!("{prefix}lock:");
            let walked = self.client.names(&connection, &beginning, &cursor);
            self.by(answer_by, Some(&connection), walked).await
        })
    }
}

impl Store for EtcdStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.by(answer_by, None, self.client.link.first()).await?;
            Ok(())
        })
    }

    /// Each place in the queue has a watch, over the same connection.
    fn is_notified(&self, _lock: &LockName) -> bool {
        true
    }

    fn hears_answers(&self, _lock: &LockName) -> bool {
        false
    }

    fn outage(&self) -> Option<Outage> {
        self.client.link.outage()
    }

    fn listen(&self, _process: &str, listener: Listener) {
        self.client.link.listen(listener);
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move { self.attempt(&attempt, answer_by).await })
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { self.enqueue(&entry, answer_by).await })
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
        Box::pin(async move {
            let lock = &exchange.new.lock;
            self.in_order(lock, CommandEffect::Acquire, async {
                let connection = self.connection(answer_by).await?;
                let exchanged = self.client.exchange(&connection, &exchange);
                self.by(answer_by, Some(&connection), exchanged).await
            })
            .await
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    fn status(&self) -> StoreStatus {
        StoreStatus {
            connected: self.client.link.up().is_some(),
            wake_ups: WakeUps::Notified,
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let connection = self.connection(answer_by).await?;
            let sent = Clock::Boottime.now();
            // Only a member with a quorum answers this.
            let read = RequestOp::get(self.client.fence_key.clone().into());
            let read = TxnRequest::unconditional(vec![read]);
            self.by(answer_by, Some(&connection), txn(&connection, &read)).await?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { self.look(&lock, answer_by).await })
    }
}

impl ProcessDirectory for EtcdStore {
    fn introduce(&self, info: &ProcessInfo) {
        let keeper = Arc::new(EtcdRecordKeeper::new(&self.client));
        self.client.handle.spawn(self.record.start(info, &keeper));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.record.end();
            let removed = process_records::remove(&self.client.link, &self.record.prefix, &process);
            self.by(answer_by, None, removed).await
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let all = process_records::all(&self.client.link, &prefix);
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
            let some = process_records::some(&self.client.link, &prefix, &processes);
            self.by(answer_by, None, some).await
        })
    }

    /// Does nothing: the owner's process watches the key of its token.
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
