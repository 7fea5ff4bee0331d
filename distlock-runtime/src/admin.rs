//! The holders and waiters of a lock, and which processes there are: for operators and dashboards.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::LockError;
use crate::itself::Itself;
use crate::key::LockKey;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::{Label, LockName};
use crate::observe::Verb;
use crate::peers::lock_status::{Told, wanted};
use crate::peers::{Account, Want, Way};
use crate::process::Process;
use crate::status::LockStatus;
use crate::store::{self, Records};

/// A manager that has just connected notified answers only a moment later.
const SUBSCRIBES: Duration = Duration::from_millis(300);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl LockManager {
    /// Who holds a lock, since when and for how long at least, and who waits for it: for operators and
    /// dashboards. The answer may be stale by the time it is read; code that depends on it takes the
    /// lock instead.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockStatus;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// assert!(locks.inspect("order:42").await?.is_free());
    /// let _guard = locks.lock("order:42").name("checkout").acquire().await?;
    /// if let LockStatus::Held { holders, .. } = locks.inspect("order:42").await? {
    ///     let holder = &holders[0];
    ///     assert_eq!(holder.name.as_deref(), Some("checkout"));
    ///     // orders@web-3:4711
    ///     println!("{}", holder.process.as_ref().expect("it is this one"));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Why a write or a permit is not granted: whether the holder has the lock alone, and which waiters are
    /// in front.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{LockMode, LockStatus};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _reads = locks.lock("prices").mode(LockMode::Read).acquire().await?;
    /// let _too = locks.lock("prices").mode(LockMode::Read).acquire().await?;
    /// let LockStatus::Held { holders, alone, waiters, .. } = locks.inspect("prices").await? else {
    ///     unreachable!("it is held");
    /// };
    /// assert_eq!((holders.len(), alone, waiters.len()), (2, false, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The store knows whether the lock is held, by how many and for how long. The rest, such as since when,
    /// the processes know: they are asked over the store's pub/sub, and answer within a moment, or a second
    /// if they were asked just before. A process that is stopped or of an older version does not answer, and
    /// none does where the server permits no pub/sub or has none (etcd, ZooKeeper). After a second and a half
    /// without an answer a process is named by its record in the store, if it has one (see
    /// [`processes`](Self::processes)), and what it alone knows is `None`. The process of a manager with
    /// [`identify(false)`](crate::LockManagerBuilder::identify) has no name.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or refused;
    /// [`InvalidKey`](LockError::InvalidKey) for a key that cannot be stored.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn inspect(&self, key: impl Into<LockKey>) -> Result<LockStatus, LockError> {
        self.locks().table.home().check()?;
        let lock = self.named(key.into(), "inspect")?;
        let Some(seen) = self.held(&lock).await? else {
            return Ok(LockStatus::Free);
        };
        let told = self.told_of(&lock, &seen).await;
        Ok(told.status(&lock, seen))
    }

    /// The processes that use the manager's prefix: those that took, awaited or renewed a lock within the
    /// last minute, or connected, and this one. Sorted by application, host and process number.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// for process in locks.processes().await? {
    ///     println!("{process} has version {}", process.version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each says so itself, in a record that the store keeps for a minute. So a process that was killed is
    /// gone within that time, and one that was [closed](Self::close) at once. One that is idle is not listed:
    /// it holds nothing. On ZooKeeper the record goes with the session of its process, within seconds, and one that is
    /// idle and connected is listed; in memory there is this process alone.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or refused.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn processes(&self) -> Result<Vec<Process>, LockError> {
        let Locks { table, store, namespace, .. } = self.locks();
        table.home().check()?;
        let itself = table.itself().filter(|_| !table.is_closed());
        let prefix = namespace.prefix().to_owned();
        let listed = store.clone().recorded(prefix, self.limit()).await;
        let listed = listed.map_err(|fault| fault.into_error(None))?;
        let mut processes: Vec<Process> = self.recorded(listed).await?;
        // Its record may be on its way, or not be allowed.
        let is_new = |itself: &&Itself| processes.iter().all(|process| process.id != itself.id());
        let itself = itself.filter(is_new).map(Itself::process);
        processes.extend(itself);
        processes
            .sort_by(|a, b| (&a.app, &a.host, a.pid, &a.id).cmp(&(&b.app, &b.host, b.pid, &b.id)));
        Ok(processes)
    }

    /// Those of these processes that have a record.
    pub(crate) async fn recorded(&self, ids: Vec<String>) -> Result<Vec<Process>, LockError> {
        let Locks { store, namespace, .. } = self.locks();
        let prefix = namespace.prefix().to_owned();
        let records = store.clone().records(prefix, ids.clone(), self.limit()).await;
        let records = records.map_err(|fault| fault.into_error(None))?;
        let Records { time, texts } = records;
        let read = |(id, text): (&String, Option<String>)| Process::of_record(id, &text?, time);
        Ok(ids.iter().zip(texts).filter_map(read).collect())
    }

    pub(crate) fn named(&self, key: LockKey, by: &'static str) -> Result<Arc<LockName>, LockError> {
        self.locks().namespace.name(Label::Given(by.into()), key)
    }

    /// What the store says of a lock; `None` if it is free.
    pub(crate) async fn held(
        &self,
        lock: &Arc<LockName>,
    ) -> Result<Option<store::Held>, LockError> {
        let Locks { table, store, .. } = self.locks();
        let asked = store.clone().inspect(lock.clone(), self.limit());
        let answer = table
            .observers()
            .timed(Verb::Inspect, (table.clock(), table.clock().now()), asked)
            .await;
        answer.map_err(|fault| fault.into_error(Some(lock)))
    }

    pub(crate) fn limit(&self) -> Moment {
        let Locks { table, settings, .. } = self.locks();
        table.clock().now().after(settings.command_timeout)
    }

    /// What these processes say of themselves and of what they count.
    pub(crate) async fn watch(
        &self,
        processes: Vec<String>,
    ) -> Result<HashMap<String, Arc<Account>>, LockError> {
        let Locks { table, store, engine, namespace, .. } = self.locks();
        let lock = self.named("watch".into(), "watch")?;
        if !self.is_subscribed(&lock).await {
            return Ok(HashMap::new());
        }
        let (prefix, limit, own) = (namespace.prefix(), self.limit(), table.process());
        let way = Way { store, alarms: engine.alarms(), prefix, own, limit };
        Ok(table.questions.watch(processes, way).await)
    }

    /// What those say that hold the lock or wait for it, this process included.
    async fn told_of(&self, lock: &Arc<LockName>, seen: &store::Held) -> Told {
        let Locks { table, store, engine, .. } = self.locks();
        let own = table.process();
        let (held, waiting) = table.has(lock.stored());
        let mut told = Told {
            own: own.to_owned(),
            itself: table.itself().map(Itself::process),
            held,
            waiting,
            ..Told::default()
        };
        let wants = wanted(seen, own);
        if wants.is_empty() || !self.is_subscribed(lock).await {
            told.recorded = self.records_of(wants).await;
            return told;
        }
        let processes: Vec<String> = wants.iter().map(|want| want.process.clone()).collect();
        let (prefix, limit) = (lock.prefix(), self.limit());
        let way = Way { store, alarms: engine.alarms(), prefix, own, limit };
        told.accounts = table.questions.ask(wants, lock.stored(), way).await;
        let silent = processes.into_iter().filter(|id| !told.accounts.contains_key(id));
        let silent = silent.map(|process| Want { process, leases: Vec::new() }).collect();
        told.recorded = self.records_of(silent).await;
        told
    }

    /// The records of processes that say nothing. That there are none is no reason to fail.
    async fn records_of(&self, silent: Vec<Want>) -> HashMap<String, Process> {
        if silent.is_empty() {
            return HashMap::new();
        }
        let ids = silent.into_iter().map(|want| want.process).collect();
        let records = self.recorded(ids).await.unwrap_or_default();
        records.into_iter().map(|process| (process.id.clone(), process)).collect()
    }

    /// Whether answers can be received. Without a subscription no process is asked.
    async fn is_subscribed(&self, lock: &LockName) -> bool {
        let locks = self.locks();
        let clock = locks.table.clock();
        let until = clock.now().after(SUBSCRIBES);
        while !locks.store.hears_answers(lock) {
            let now = clock.now();
            if now >= until {
                return false;
            }
            locks.alarm(now.after(LOOK_AGAIN).min(until)).await;
        }
        true
    }
}
