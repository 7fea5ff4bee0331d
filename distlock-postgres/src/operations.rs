//! The operations of the store, as the traits of `distlock-core` name them.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::admin::Walked;
use distlock_core::store::{
    Answer, Attempt, DrivenBy, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Listener,
    LockName, Op, OpOn, Outage, Owner, ProcessDirectory, ProcessInfo, ProcessMessage, Records,
    Renewal, Renewed, Store, StoreAdmin, StoreStatus, WakeUps,
};

use crate::store::PostgresStore;
use crate::{acquire, messages};

/// The delay of a waiter's first poll. Behind a pooler no message arrives. A poll that finds nothing new writes
/// nothing, so the first polls follow each other quickly.
const FIRST_POLL: Duration = Duration::from_millis(5);
/// The number of names in one step of a walk.
const WALK_STEP: usize = 1000;

impl PostgresStore {
    async fn free(
        &self,
        owner: &Owner,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        let session = self.session_for(&owner.lock, answer_by).await?;
        let release = session.release(owner, keep);
        let freed = self.await_answer(answer_by, Some(&session), release).await?;
        if !freed.next.is_empty() {
            self.contention.seen(&owner.lock, Clock::Boottime.now());
        }
        Ok(freed)
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let now = Clock::Boottime.now();
        self.record.used(now);
        let answer_by = now.after(self.command_timeout);
        let session = self.pool.session_for_renewals();
        let session = self.await_answer(answer_by, None, session).await?;
        // Other processes may ask the holder of a lock that is held this long.
        renewals.iter().for_each(|renewal| self.listen_demand.add(&renewal.owner));
        let sent = Clock::Boottime.now();
        renewals.iter().for_each(|renewal| renewal.owner.stored_until(sent.after(renewal.ttl)));
        let renew = session.renew(renewals);
        let answers = self.await_answer(answer_by, Some(&session), renew).await?;
        Ok(Renewed { sent, answers })
    }

    async fn send(
        &self,
        messages: &[ProcessMessage],
        answer_by: Moment,
    ) -> Result<Vec<bool>, Fault> {
        // The message may be a question, whose answer is a message as well.
        self.listen_demand.add_answers();
        let listens = async { Ok(self.pool.listen().await) };
        let _ = self.await_answer(answer_by, None, listens).await;
        let send = async {
            let processes: Vec<_> = messages.iter().map(|message| message.to.as_str()).collect();
            let texts: Vec<_> = messages.iter().map(messages::encode).collect();
            self.pool.session().await?.send(&processes, &texts).await
        };
        Ok(self.await_answer(answer_by, None, send).await?)
    }

    async fn read_records(
        &self,
        prefix: &str,
        processes: &[String],
        answer_by: Moment,
    ) -> Result<Records, Fault> {
        let read = async {
            let session = self.pool.session().await?;
            let time = session.time().await?;
            let mut records = session.records(prefix, Some(processes)).await?;
            let texts = processes.iter().map(|process| records.remove(process)).collect();
            Ok(Records { time, texts })
        };
        Ok(self.await_answer(answer_by, None, read).await?)
    }
}

impl Store for PostgresStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.await_answer(answer_by, None, self.pool.first_session()).await?;
            Ok(())
        })
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        self.pool.can_listen()
    }

    fn first_look(&self) -> Duration {
        FIRST_POLL
    }

    fn outage(&self) -> Option<Outage> {
        let (since, fault) = self.pool.outage()?;
        let now = Clock::Boottime.now();
        let lasts = Moment::from_nanos(0).after(since.elapsed());
        let since = Moment::from_nanos(now.as_nanos().saturating_sub(lasts.as_nanos()));
        Some(Outage { since, fault })
    }

    fn listen(&self, process: &str, listener: Listener) {
        self.pool.start_listener(process, listener);
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
        self.pool.link_of(lock)
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    fn status(&self) -> StoreStatus {
        let listens = self.pool.can_listen();
        StoreStatus {
            connected: self.pool.is_connected(),
            wake_ups: if listens { WakeUps::Notified } else { WakeUps::Polling },
            driven_by: DrivenBy::Manager,
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let session = self.await_answer(answer_by, None, self.pool.session()).await?;
            let sent = Clock::Boottime.now();
            self.await_answer(answer_by, Some(&session), session.ping()).await?;
            Ok(Clock::Boottime.now().since(sent))
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { self.holders(&lock, answer_by).await })
    }
}

impl ProcessDirectory for PostgresStore {
    fn introduce(&self, info: &ProcessInfo) {
        self.handle.spawn(self.record.start(info, &self.pool));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            self.record.end();
            let remove = async {
                self.pool.session().await?.remove_record(&self.record.prefix, &process).await
            };
            Ok(self.await_answer(answer_by, None, remove).await?)
        })
    }

    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move { self.send(&messages, answer_by).await })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let read = async { self.pool.session().await?.records(&prefix, None).await };
            let records = self.await_answer(answer_by, None, read).await?;
            Ok(records.into_keys().collect())
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move { self.read_records(&prefix, &processes, answer_by).await })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let answer_by = Clock::Boottime.now().after(self.command_timeout);
            let Ok(session) = self.session_for(&lock, answer_by).await else { return };
            // The owner also finds out at its next renewal.
            let notify = session.notify_revoked(&lock, &token);
            let _ = self.await_answer(answer_by, Some(&session), notify).await;
        });
    }
}

impl StoreAdmin for PostgresStore {
    /// The cursor is the last name of the step before.
    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let begin = format!("{prefix}lock:");
            let step = async { self.pool.session().await?.walk(&begin, &cursor, WALK_STEP).await };
            let names = self.await_answer(answer_by, None, step).await?;
            let next = names.last().filter(|_| names.len() >= WALK_STEP).cloned();
            Ok(Walked { names, next, missed: None })
        })
    }
}
