//! Looks at a manager and its store, and takes locks away: for health checks, operators and dashboards.
//!
//! The methods that are hidden in the documentation are for the command-line tool of the same version. It asks the
//! store anything, and has to know under which names the store keeps what. Nothing there is stable.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::key::LockKey;
use distlock_core::line::{Freeing, Loss};
use distlock_core::name::{Label, LockName};
use distlock_core::process_info::{Process, ProcessInfo};
pub use distlock_core::store::admin::{StoreCommand, StoreReply, Walked};
use distlock_core::store::owner::Owner;
use distlock_core::store::{self, DrivenBy, Fault, Records, Store, StoreStatus, WakeUps};
use distlock_core::token::Token;

use crate::error::{IntoLockError, LockError};
use crate::lock::locks::Locks;
use crate::manager::LockManager;
pub use crate::observe::Calls;
use crate::observe::Verb;
use crate::peers::{LockReports, PeerReport, QuestionRoute, Want, wanted};
use crate::status::{LockStatus, ManagerStatus};

/// How long to wait for the subscription of a manager that has just connected.
const SUBSCRIBES: Duration = Duration::from_millis(300);
/// The time between two looks whether it subscribes.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The most processes whose counts are asked for.
const ASKED: usize = 64;

impl LockManager {
    /// Sends the store a command that changes nothing, and returns the time until its answer: for health
    /// checks and dashboards. In memory that is zero.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// let health = match locks.ping().await {
    ///     Ok(round_trip) => format!("up, {round_trip:?}"),
    ///     Err(error) => format!("down: {error}"),
    /// };
    /// assert_eq!(health, "up, 0ns");
    /// # }
    /// ```
    ///
    /// It uses the connection for locks (the first of several), and returns within the manager's `command_timeout`. A store that answers may still refuse to give locks: a replica does.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store cannot be reached, does not answer in time or refuses;
    /// [`Closed`](LockError::Closed) once the manager was closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let Locks { table, store, settings, .. } = self.locks();
        table.home().check()?;
        if table.is_closed() {
            return Err(LockError::Closed);
        }
        let limit = table.clock().now().after(settings.command_timeout);
        store.clone().ping(limit).await.map_err(|fault| fault.into_error(None))
    }

    /// Returns whether the manager is connected, and how many locks it holds and waits for. It does no I/O; see
    /// [`ManagerStatus`].
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// use distlock::{DrivenBy, WakeUps};
    ///
    /// let _guard = locks.lock("report").acquire().await?;
    /// let status = locks.status();
    /// assert!(status.connected);
    /// assert_eq!(status.held, 1);
    /// assert_eq!(status.wake_ups, WakeUps::Notified);
    /// assert_eq!(status.driven_by, DrivenBy::Manager);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> ManagerStatus {
        let Locks { table, store, .. } = self.locks();
        if !table.home().is_here() {
            return ManagerStatus {
                connected: false,
                closed: table.is_closed(),
                held: 0,
                waiting: 0,
                wake_ups: WakeUps::Polling,
                driven_by: DrivenBy::Manager,
            };
        }
        let StoreStatus { connected, wake_ups, driven_by } = store.status();
        ManagerStatus {
            connected,
            closed: table.is_closed(),
            held: table.held(),
            waiting: table.waiting(),
            wake_ups,
            driven_by,
        }
    }

    /// Releases a lock that another process holds: a tool for operators. Returns whether it was held.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let stuck = locks.lock("import").acquire().await?;
    /// assert!(locks.force_release("import").await?);
    /// assert!(!stuck.is_held());
    /// assert!(locks.lock("import").acquire().await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If several calls hold the lock together, all of them lose it. A call that takes it meanwhile does not.
    ///
    /// The first waiter gets the lock at once. The former holder is notified and finds its lease lost, at its next
    /// renewal at the latest. Its work until then is not undone. It may also hand the lock over to another task of its
    /// process, whose fencing token is smaller than that of the new holder. So make sure that the process is gone, or
    /// that the resource checks fencing tokens.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or refused;
    /// [`InvalidKey`](LockError::InvalidKey) for a key that cannot be stored.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped early, the lock may or may not have been released.
    pub async fn force_release(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        self.locks().table.home().check()?;
        let lock = self.named(key.into(), "force_release")?;
        let Some(held) = self.held(&lock).await? else {
            return Ok(false);
        };
        let (mut released, mut failed) = (false, None);
        for holder in held.holders {
            match self.take_away(&lock, holder.token).await {
                Ok(was_held) => released |= was_held,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(released), Err)
    }

    /// Returns who holds a lock, since when and for how long at least, and who waits for it: for operators and
    /// dashboards. The answer may be stale by the time it is read. Code that depends on it takes the lock instead.
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
    /// It shows why a write or a permit is not granted: whether a holder has the lock alone, and which waiters come
    /// before.
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
    /// The store knows whether the lock is held, by how many and for how long. Only the processes know the rest, for
    /// example since when. They are asked over the store's pub/sub, and answer within a moment, or within a second if
    /// they were asked just before. A process that is stopped or of an older version does not answer. No process
    /// answers if the server forbids pub/sub or has none (etcd, ZooKeeper). After a second and a half without an answer
    /// a process is named by its record in the store, if it has one (see [`processes`](Self::processes)). The fields
    /// that it alone knows are `None` then. The process of a manager with
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
        let reports = self.reports_of(&lock, &seen).await;
        Ok(reports.status(&lock, seen))
    }

    /// Returns the processes that use the manager's prefix: those that took, awaited or renewed a lock within the
    /// last minute, or connected, and this one. Sorted by application, host and process number.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let processes = locks.processes().await?;
    /// assert_eq!(processes[0].pid, std::process::id());
    /// for process in processes {
    ///     println!("{process} has version {}", process.version); // orders@web-3:4711 has version …
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Each process writes a record of itself, which the store keeps for a minute. So a process that was killed
    /// disappears within that time, and one that was [closed](Self::close) at once. An idle process is not listed,
    /// because it holds nothing. On ZooKeeper the record ends with the session of its process, within seconds, and a
    /// process that is idle and connected is listed. In memory this process is the only one.
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
        // This process's own record may be on its way, or forbidden.
        let is_new =
            |itself: &&ProcessInfo| processes.iter().all(|process| process.id != itself.id());
        let itself = itself.filter(is_new).map(ProcessInfo::process);
        processes.extend(itself);
        processes
            .sort_by(|a, b| (&a.app, &a.host, a.pid, &a.id).cmp(&(&b.app, &b.host, b.pid, &b.id)));
        Ok(processes)
    }
}

/// The counts of one process, and the names of its locks.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The id of its manager.
    pub process: String,
    /// For how long it has counted.
    pub counted: Duration,
    /// The counts so far.
    pub calls: Vec<Calls>,
    /// The names of the locks that it holds, and for how long it has held them, by their names in the store.
    pub held: HashMap<String, (String, Duration)>,
}

/// A lock that is held, at a glance.
#[derive(Debug, Clone, Default)]
pub struct Glance {
    /// The holders: at least one, unless something is `amiss`. Several hold it together.
    pub holders: Vec<Owning>,
    /// Whether its holder shares it with no other.
    pub alone: bool,
    /// The time until the last lease ends; `None` if one has no end, which no lock of distlock is.
    pub remaining: Option<Duration>,
    /// The number of waiters in its queue.
    pub waiting: u64,
    /// Describes a foreign value under the name of the lock or of its queue. The lock cannot be taken or waited for.
    pub amiss: Option<String>,
}

/// A process that holds a lock or waits for it, as the store knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owning {
    /// The id of its manager.
    pub process: String,
    /// The owner token. Each lease has another one.
    pub token: String,
}

impl Owning {
    fn of(token: &str) -> Self {
        let process = token.split('.').next().unwrap_or_default();
        Self { process: process.to_owned(), token: token.to_owned() }
    }
}

impl Glance {
    fn of(seen: &store::admin::Glance) -> Self {
        let is_alone = |holder: &store::Holder| {
            Token::parse(&holder.token).is_none_or(|token| token.limit == store::Limit::ALONE)
        };
        Self {
            holders: seen.holders.iter().map(|holder| Owning::of(&holder.token)).collect(),
            alone: seen.holders.iter().any(is_alone),
            remaining: seen.remaining(),
            waiting: seen.waiting,
            amiss: seen.amiss.clone(),
        }
    }
}

impl LockManager {
    /// Returns the addresses of the store's servers that take plain commands; `None` for an unknown address. Empty if
    /// the store takes no plain commands.
    #[doc(hidden)]
    pub fn store_nodes(&self) -> Vec<Option<String>> {
        self.locks().store.nodes()
    }

    /// Sends commands to one of the [nodes](Self::store_nodes), or to any, in one write, and returns the answer to
    /// each, within the manager's `command_timeout`.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store did not answer, or takes no commands (locks in
    /// memory, for example).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the commands may or may not have been carried out.
    #[doc(hidden)]
    pub async fn ask_store(
        &self,
        node: Option<&str>,
        commands: Vec<StoreCommand>,
    ) -> Result<Vec<StoreReply>, LockError> {
        let store = self.store()?;
        let asked = store.ask(node.map(str::to_owned), commands, self.limit());
        asked.await.map_err(|fault| fault.into_error(None))
    }

    /// Returns each sentinel's answers about the primary (`SENTINEL MASTER`) and about a failover (`SENTINEL
    /// CKQUORUM`), by the sentinel's address, or a single error. Empty if no sentinels name the primary.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the manager is closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn ask_sentinels(&self) -> Result<Vec<(String, Vec<StoreReply>)>, LockError> {
        let asked = self.store()?.sentinels();
        asked.await.map_err(|fault| fault.into_error(None))
    }

    /// Returns the next names of locks of the manager's prefix, from a cursor on. A walk begins with an empty cursor.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked, or does not list its locks.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn walk(&self, cursor: &str) -> Result<Walked, LockError> {
        let prefix = self.locks().namespace.prefix().to_owned();
        let walked = self.store()?.walk(prefix, cursor.to_owned(), self.limit());
        walked.await.map_err(|fault| fault.into_error(None))
    }

    /// Returns the holders of the locks of these names; `None` for locks that are free, and for names that do not
    /// belong to this prefix.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn look(&self, names: &[String]) -> Result<Vec<Option<Glance>>, LockError> {
        let (store, prefix) = (self.store()?, self.locks().namespace.prefix());
        let named = names.iter().map(|name| LockName::of_stored(prefix, name).map(Arc::new));
        let named: Vec<Option<Arc<LockName>>> = named.collect();
        let locks: Vec<_> = named.iter().flatten().cloned().collect();
        let found = match store.clone().glance(&locks, self.limit()) {
            Some(looked) => looked.await,
            None => one_by_one(&store, &locks, self.limit()).await,
        };
        let mut found = found.map_err(|fault| fault.into_error(None))?.into_iter();
        let glance = |lock: &Option<_>| lock.as_ref().and_then(|_| found.next().flatten());
        let glances: Vec<_> = named.iter().map(glance).collect();
        Ok(glances.iter().map(|seen| seen.as_ref().map(Glance::of)).collect())
    }

    /// Returns the holders of one lock, and its queue, the next waiter first; `None` if it is free.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked;
    /// [`InvalidKey`](LockError::InvalidKey).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn look_at(&self, key: &str) -> Result<Option<(Glance, Vec<Owning>)>, LockError> {
        let lock = self.named(key.into(), "look")?;
        let Some(held) = self.held(&lock).await? else { return Ok(None) };
        let queue = held.queue.iter().map(|token| Owning::of(token)).collect();
        Ok(Some((Glance::of(&held.into()), queue)))
    }

    /// Returns the records of these processes, those that have one.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    #[doc(hidden)]
    pub async fn known(&self, processes: Vec<String>) -> Result<Vec<Process>, LockError> {
        self.recorded(processes).await
    }

    /// Returns how often the processes of the manager's prefix take locks, and how long they wait for them. A process
    /// counts from the first such question on, while further ones follow. Processes that do not answer are missing.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the processes stop counting ten seconds after they were last asked.
    #[doc(hidden)]
    pub async fn counted(&self) -> Result<Vec<Counted>, LockError> {
        let own = self.locks().table.process();
        let processes = self.processes().await?.into_iter().map(|process| process.id);
        let processes: Vec<_> = processes.filter(|id| id != own).take(ASKED).collect();
        let reports = self.watch(processes).await?;
        let counted = reports.into_iter().filter_map(|(process, report)| {
            let (counted, calls) = report.counted.clone()?;
            let held = report.held.iter();
            let held = held.map(|held| (held.stored.clone(), (held.name.clone(), held.age)));
            Some(Counted { process, counted, calls, held: held.collect() })
        });
        Ok(counted.collect())
    }

    /// Returns the name under which the store keeps the lock of this key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey).
    #[doc(hidden)]
    pub fn stored_name(&self, key: impl Into<LockKey>) -> Result<String, LockError> {
        let label = Label::Given("stored_name".into());
        let lock = self.locks().namespace.name(label, key.into())?;
        Ok(lock.stored().to_string())
    }
}

impl LockManager {
    /// Releases one token, of this process or another. Returns whether it had the lock.
    async fn take_away(&self, lock: &Arc<LockName>, token: String) -> Result<bool, LockError> {
        let Locks { table, store, .. } = self.locks();
        // The holder may release the lock before the command arrives.
        let held_here = table.owner_of(lock.stored(), &token);
        let lost_here = held_here.is_some_and(|owner| table.taken_away(&owner, Loss::Forced));
        let owner = Arc::new(Owner::stray(lock.clone(), token));
        let freeing = Freeing { token: owner.clone(), keep: None, deadline: Moment::NEVER };
        match table.release(freeing).await {
            Ok(freed) => {
                // Notified only now: a notified holder gives the lock up, and the release would not find it held.
                store.clone().tell_taken(lock.clone(), owner.token.clone());
                Ok(freed.was_ours || lost_here)
            }
            Err(fault) => Err(fault.into_error(Some(lock))),
        }
    }

    /// Returns the records of these processes, those that have one.
    async fn recorded(&self, ids: Vec<String>) -> Result<Vec<Process>, LockError> {
        let Locks { store, namespace, .. } = self.locks();
        let prefix = namespace.prefix().to_owned();
        let records = store.clone().records(prefix, ids.clone(), self.limit()).await;
        let records = records.map_err(|fault| fault.into_error(None))?;
        let Records { time, texts } = records;
        let read = |(id, text): (&String, Option<String>)| Process::of_record(id, &text?, time);
        Ok(ids.iter().zip(texts).filter_map(read).collect())
    }

    /// Names a lock for a call that does not take it.
    fn named(&self, key: LockKey, by: &'static str) -> Result<Arc<LockName>, LockError> {
        self.locks().namespace.name(Label::Given(by.into()), key)
    }

    /// Asks the store for the holders and the queue of a lock; `None` if it is free.
    async fn held(&self, lock: &Arc<LockName>) -> Result<Option<store::Held>, LockError> {
        let Locks { table, store, .. } = self.locks();
        let asked = store.clone().inspect(lock.clone(), self.limit());
        let answer = table
            .observers()
            .timed(Verb::Inspect, (table.clock(), table.clock().now()), asked)
            .await;
        answer.map_err(|fault| fault.into_error(Some(lock)))
    }

    /// Returns until when the store may answer.
    fn limit(&self) -> Moment {
        let Locks { table, settings, .. } = self.locks();
        table.clock().now().after(settings.command_timeout)
    }

    /// Asks these processes what they hold, wait for and count.
    async fn watch(
        &self,
        processes: Vec<String>,
    ) -> Result<HashMap<String, Arc<PeerReport>>, LockError> {
        let Locks { table, store, engine, namespace, .. } = self.locks();
        let lock = self.named("watch".into(), "watch")?;
        if !self.is_subscribed(&lock).await {
            return Ok(HashMap::new());
        }
        let (prefix, limit, own) = (namespace.prefix(), self.limit(), table.process());
        let way = QuestionRoute { store, alarms: engine.alarms(), prefix, own, limit };
        Ok(table.questions.watch(processes, way).await)
    }

    /// Asks the holders and waiters of a lock, this process included.
    async fn reports_of(&self, lock: &Arc<LockName>, seen: &store::Held) -> LockReports {
        let Locks { table, store, engine, .. } = self.locks();
        let own = table.process();
        let (held, waiting) = table.has(lock.stored());
        let mut reports = LockReports {
            own: own.to_owned(),
            itself: table.itself().map(ProcessInfo::process),
            held,
            waiting,
            ..LockReports::default()
        };
        let wants = wanted(seen, own);
        if wants.is_empty() || !self.is_subscribed(lock).await {
            reports.recorded = self.records_of(wants).await;
            return reports;
        }
        let processes: Vec<String> = wants.iter().map(|want| want.process.clone()).collect();
        let (prefix, limit) = (lock.prefix(), self.limit());
        let way = QuestionRoute { store, alarms: engine.alarms(), prefix, own, limit };
        reports.by_process = table.questions.ask(wants, lock.stored(), way).await;
        let silent = processes.into_iter().filter(|id| !reports.by_process.contains_key(id));
        let silent = silent.map(|process| Want { process, leases: Vec::new() }).collect();
        reports.recorded = self.records_of(silent).await;
        reports
    }

    /// Returns the records of processes that have not answered. Missing records are no reason to fail.
    async fn records_of(&self, silent: Vec<Want>) -> HashMap<String, Process> {
        if silent.is_empty() {
            return HashMap::new();
        }
        let ids = silent.into_iter().map(|want| want.process).collect();
        let records = self.recorded(ids).await.unwrap_or_default();
        records.into_iter().map(|process| (process.id.clone(), process)).collect()
    }

    /// Waits until answers can be received, and returns whether they can. Without a subscription no process is asked.
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

    /// Returns the store, unless this process is a forked child.
    fn store(&self) -> Result<Arc<dyn Store>, LockError> {
        let Locks { table, store, .. } = self.locks();
        table.home().check()?;
        Ok(store.clone())
    }
}

/// Inspects all locks at once, one by one, for a store that has no faster way.
async fn one_by_one(
    store: &Arc<dyn Store>,
    locks: &[Arc<LockName>],
    answer_by: Moment,
) -> Result<Vec<Option<store::admin::Glance>>, Fault> {
    let ask = |lock: &Arc<LockName>| store.clone().inspect(lock.clone(), answer_by);
    let mut asked: Vec<_> = locks.iter().map(|lock| (Some(ask(lock)), None)).collect();
    poll_fn(|cx| {
        for (question, answer) in &mut asked {
            if let Some(Poll::Ready(now)) = question.as_mut().map(|asked| asked.as_mut().poll(cx)) {
                (*question, *answer) = (None, Some(now));
            }
        }
        match asked.iter().all(|(question, _)| question.is_none()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    let answers = asked.into_iter().filter_map(|(_, answer)| answer);
    answers.map(|held| Ok(held?.map(Into::into))).collect()
}
