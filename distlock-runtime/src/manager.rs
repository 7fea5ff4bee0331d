//! What users hold: the manager of all locks of a process, or of one store.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::LockManagerBuilder;
use crate::error::LockError;
use crate::few::Few;
use crate::key::LockKey;
use crate::lock::claim::Claim;
use crate::lock::lease::{Lease, Loss};
use crate::lock::locks::Locks;
use crate::name::{Label, LockName};
use crate::race::until;
use crate::request::LockRequest;
use crate::status::{DrivenBy, ManagerStatus, StoreStatus, WakeUps};
use crate::store::Holder;

/// Takes locks in one store, over connections that it owns for the whole process.
///
/// Cheap to clone; all clones are one manager. It may be used from any number of runtimes.
#[derive(Clone)]
pub struct LockManager {
    locks: Arc<Locks>,
}

impl LockManager {
    pub(crate) fn new(locks: Locks) -> Self {
        Self { locks: Arc::new(locks) }
    }

    /// Resolves once the store has answered.
    pub(crate) async fn ready(&self) -> Result<(), LockError> {
        let Locks { table, store, settings, .. } = &*self.locks;
        let limit = table.clock().now().after(settings.connect_timeout);
        store.clone().ready(limit).await.map_err(|fault| fault.into_error(None))
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(crate) fn into_locks(self) -> Arc<Locks> {
        self.locks
    }

    /// Connects with the defaults, and returns once the store has answered.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store cannot be reached or refuses,
    /// [`InvalidOption`](LockError::InvalidOption) for a URL that cannot be used.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().url(url).connect().await
    }

    /// A manager with the defaults and no I/O yet: the first use connects.
    ///
    /// # Errors
    ///
    /// [`InvalidOption`](LockError::InvalidOption) for a URL that cannot be used.
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::builder().url(url).build()
    }

    /// All settings.
    pub fn builder() -> LockManagerBuilder {
        LockManagerBuilder::default()
    }

    /// A lazy manager from the environment: `DISTLOCK_URL` (required), `DISTLOCK_PREFIX`,
    /// `DISTLOCK_TTL` and `DISTLOCK_WAIT` (durations such as `5s` or `1m 30s`; `none` for no wait).
    ///
    /// # Errors
    ///
    /// [`NotConfigured`](LockError::NotConfigured) if `DISTLOCK_URL` is not set,
    /// [`InvalidOption`](LockError::InvalidOption) names the variable that cannot be used.
    pub fn from_env() -> Result<Self, LockError> {
        LockManagerBuilder::from_env()?.build()
    }

    /// Locks in this process's memory, for examples and tests: the same promises without a server.
    /// Every call makes a store of its own.
    ///
    /// A wait on a `current_thread` runtime without `enable_time`, or in the context of one that has
    /// ended, brings about a panic of tokio's, once for each runtime. It is caught; a panic hook runs.
    ///
    /// # Panics
    ///
    /// If the system cannot start a thread.
    pub fn in_memory() -> Self {
        match Self::connect_lazy("memory://") {
            Ok(manager) => manager,
            Err(error) => panic!("{error}"),
        }
    }

    /// A request for the lock of `key`, with the manager's defaults.
    #[track_caller]
    pub fn lock(&self, key: impl Into<LockKey>) -> LockRequest {
        LockRequest::new(self.clone(), Few::One(key.into()), Location::caller())
    }

    /// A request for several locks at once: sorted by their text, each once, one `wait` for all, freed in
    /// reverse order. There is a guard, or a body runs, when all are held; while one is waited for, those
    /// that sort before it are held, so let the one that is waited for most sort first. If one is lost,
    /// all count as lost. What ends a lease while it is held
    /// (`max_hold`, and the `ttl` without renewal) counts from when all of them are held.
    #[track_caller]
    pub fn lock_all<K: Into<LockKey>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        let keys = keys.into_iter().map(Into::into).collect();
        LockRequest::new(self.clone(), keys, Location::caller())
    }

    /// Asks the store something that changes nothing, and says how long the answer took: for health
    /// checks and dashboards. In memory it is nothing.
    ///
    /// Goes over the connection that locks are taken over (the first of several), and is answered within
    /// the manager's `command_timeout`. A store that answers may still refuse to give locks, a replica for
    /// example.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let manager = distlock_runtime::LockManager::in_memory();
    /// let status = match manager.ping().await {
    ///     Ok(took) => format!("up, {took:?}"),
    ///     Err(error) => format!("down: {error}"),
    /// };
    /// # assert!(status.starts_with("up"));
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store cannot be reached, does not answer in time or refuses,
    /// [`Closed`](LockError::Closed) once the manager was closed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn ping(&self) -> Result<Duration, LockError> {
        let Locks { table, store, settings, .. } = &*self.locks;
        table.home().check()?;
        if table.is_closed() {
            return Err(LockError::Closed);
        }
        let limit = table.clock().now().after(settings.command_timeout);
        store.clone().ping(limit).await.map_err(|fault| fault.into_error(None))
    }

    /// Whether a lock is held, and for how long; a look for people and dashboards. By the time it
    /// is read it may be otherwise: to act on it, take the lock.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not say,
    /// [`InvalidKey`](LockError::InvalidKey).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn inspect(&self, key: impl Into<LockKey>) -> Result<LockStatus, LockError> {
        self.locks.table.home().check()?;
        let lock = self.named(key.into(), "inspect")?;
        let holder = self.holder(&lock).await?;
        // Who waits behind a holder of his own process does not stand in the store's queue.
        let table = &self.locks.table;
        let here = table.has_waiters(lock.stored()).then(|| table.process().to_owned());
        Ok(match holder {
            None => LockStatus::Free,
            Some(Holder { rest: remaining, mut waiting, .. }) => {
                waiting.extend(here);
                LockStatus::Held { remaining, waiting: waiting.len() }
            }
        })
    }

    /// Whether the manager is connected, what it holds and who waits here; no I/O.
    pub fn status(&self) -> ManagerStatus {
        let Locks { table, store, .. } = &*self.locks;
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
            held: table.leases().len(),
            waiting: table.waiting(),
            wake_ups,
            driven_by,
        }
    }

    /// Takes a lock away from whoever holds it: an operator's tool. The holder is told and finds its
    /// lease lost, at its next renewal at the latest; the next in the queue has the lock at once.
    /// What the holder began until then is not undone, and it may hand the lock to another task of
    /// its process before it knows, under a fencing token smaller than the next holder's: so make
    /// sure that it is gone, or that its resource checks fencing tokens.
    ///
    /// True if the lock was held.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not say,
    /// [`InvalidKey`](LockError::InvalidKey).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the lock may or may not have been taken away.
    pub async fn force_release(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        self.locks.table.home().check()?;
        let lock = self.named(key.into(), "force_release")?;
        let Some(Holder { token, .. }) = self.holder(&lock).await? else {
            return Ok(false);
        };
        let Locks { table, store, .. } = &*self.locks;
        // Its holder may give the lock back before we do.
        let held_here = table.lease_of(lock.stored(), &token);
        let lost_here = held_here.is_some_and(|lease| lease.lose(Loss::Forced));
        let claim = Arc::new(Claim::stray(lock.clone(), token));
        match table.release(claim.clone(), None).await {
            Ok(freed) => {
                // Only now: the holder gives up what he is told of, and it would not have been held.
                store.clone().tell_taken(lock, claim.token.clone());
                Ok(freed.was_ours || lost_here)
            }
            Err(fault) => Err(fault.into_error(Some(&lock))),
        }
    }

    fn named(&self, key: LockKey, by: &'static str) -> Result<Arc<LockName>, LockError> {
        self.locks.settings.namespace.name(Label::Given(by.into()), key)
    }

    async fn holder(&self, lock: &Arc<LockName>) -> Result<Option<Holder>, LockError> {
        let Locks { table, store, settings, .. } = &*self.locks;
        let limit = table.clock().now().after(settings.command_timeout);
        let asked = store.clone().inspect(lock.clone(), limit);
        asked.await.map_err(|fault| fault.into_error(Some(lock)))
    }

    /// Gives no new locks, ends every lease, frees what was held, and waits for it at most
    /// `timeout`.
    ///
    /// Holders find their lease lost: a body under it is not polled again and its caller gets
    /// [`Lost`](LockError::Lost). A lock whose body is in the middle of a poll is freed when that
    /// poll ends; if that is not before `timeout`, it is freed later, or by its ttl.
    ///
    /// In a child that was forked without `exec` it does nothing: the locks are its parent's.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what was begun goes on in the background.
    pub async fn close(&self, timeout: Duration) -> CloseReport {
        let locks = &self.locks;
        let Locks { table, engine, .. } = &**locks;
        if !table.home().is_here() {
            return CloseReport { freed: 0, unconfirmed: 0 };
        }
        table.close();
        table.retries.hurry();
        let leases = table.leases();
        // Not under a body that goes on without its lock: that one frees it when it is done.
        let lapsed = table.lapsed.take().into_iter().filter(|lease| !lease.has_body());
        let free = |lease: &Lease| {
            let mut release = table.release(lease.claim.clone(), lease.keep());
            release.send();
            release
        };
        let (mut ending, mut in_use) = (Vec::new(), Vec::new());
        for lease in leases {
            lease.lose(Loss::Closed);
            // Nobody may have the lock while a body is still there to touch what it protects.
            if lease.has_body() {
                in_use.push(lease);
            } else {
                ending.push((free(&lease), true));
            }
        }
        ending.extend(lapsed.map(|lease| (free(&lease), false)));
        let limit = table.clock().now().after(timeout);
        let mut report = CloseReport { freed: 0, unconfirmed: 0 };
        for (release, was_held) in ending {
            let confirmed = matches!(until(release, locks.alarm(limit)).await, Some(Ok(_)));
            report.freed += usize::from(confirmed && was_held);
            report.unconfirmed += usize::from(!confirmed);
        }
        for lease in in_use {
            match until(lease.returned(), locks.alarm(limit)).await {
                Some(()) => report.freed += 1,
                None => report.unconfirmed += 1,
            }
        }
        // What was let go before, and what holders let go just now, is confirmed in the background.
        if until(engine.all_finished(), locks.alarm(limit)).await.is_none() {
            let open = engine.unfinished();
            report.freed = report.freed.saturating_sub(open);
            report.unconfirmed = report.unconfirmed.max(open);
        }
        report
    }
}

/// What [`LockManager::inspect`] saw.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockStatus {
    /// Nobody holds it.
    Free,
    /// Somebody holds it.
    #[non_exhaustive]
    Held {
        /// How long the lease still runs if it is not renewed; `None` if the store keeps something
        /// there without an end, which is no lock of ours.
        remaining: Option<Duration>,
        /// How many processes wait for it.
        waiting: usize,
    },
}

impl LockStatus {
    /// Nobody holds it.
    pub fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

/// What [`LockManager::close`] came to.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseReport {
    /// Locks that were held and are free now.
    pub freed: usize,
    /// Locks that may still be stored: the store did not confirm, or a body did not come to an
    /// await in time. They are free after their ttl at the latest.
    pub unconfirmed: usize,
}

impl CloseReport {
    /// Nothing is left behind.
    pub fn is_complete(&self) -> bool {
        self.unconfirmed == 0
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("store", &self.locks.store)
            .field("settings", &self.locks.settings)
            .field("closed", &self.locks.table.is_closed())
            .finish()
    }
}
