//! A request for a lock: the key and how it is to be held.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::time::Duration;

use crate::error::LockError;
use crate::few::Few;
use crate::key::LockKey;
use crate::lock::acquire::{Ask, acquire};
use crate::lock::guard::LockGuard;
use crate::lock::hold::{OnLost, hold};
use crate::lock::outage;
use crate::lock::release::Release;
use crate::manager::LockManager;
use crate::name::Label;
use crate::options::{check_hold, check_ttl};
use crate::store::Term;

/// A lock that is about to be taken. Nothing is asked of the store before
/// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run).
#[must_use = "a request takes no lock before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    manager: LockManager,
    keys: Few<LockKey>,
    label: Label,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    renew: bool,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    on_lost: OnLost,
    reentrant: bool,
    release: Release,
    prefix: Option<Box<str>>,
    max_waiters: Option<u32>,
}

impl LockRequest {
    pub(crate) fn new(
        manager: LockManager,
        keys: Few<LockKey>,
        caller: &'static Location<'static>,
    ) -> Self {
        Self {
            manager,
            keys,
            label: Label::Caller(caller),
            ttl: None,
            wait: None,
            renew: true,
            max_hold: None,
            min_hold: None,
            on_lost: OnLost::Cancel,
            reentrant: false,
            release: Release::Wait,
            prefix: None,
            max_waiters: None,
        }
    }

    /// How long the lock may outlive a holder that died. At least 10 ms. Default: the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait while others hold the lock; zero is not to wait. Default: the manager's.
    ///
    /// First come, first served, among the tasks of all processes that wait; nobody polls. Clients
    /// that try again in step, without jitter, may shut one process out: the places of those that
    /// came first also run out first. Vary the pause between two tries.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Whether the lease is extended for as long as the lock is held. Default: true. With false
    /// the holder has `ttl` and no more.
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }

    /// Never extend the lease past this time after the lock was taken; then it counts as lost.
    /// At least 10 ms. Default: the manager's, no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Do not free the lock before this time after it was taken, however the call ends: so that a
    /// short job runs once although replicas fire a moment apart. Default: none.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = Some(min_hold);
        self
    }

    /// What becomes of the body of [`run`](Self::run) when the lease is lost. Default:
    /// [`OnLost::Cancel`].
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Inside a body that runs under the same lock: join it (true), or fail with
    /// [`WouldDeadlock`](LockError::WouldDeadlock) (false, the default). Whoever joins has the same
    /// fencing token, its own durations are ignored, and the outermost call frees the lock.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// When the caller of [`run`](Self::run) has its result: after the store confirmed the release,
    /// or as soon as the release is sent. Default: [`Release::Wait`]. A guard is freed by its
    /// [`release`](LockGuard::release), which always waits, or by dropping it, which never does.
    pub fn release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// A label for errors and events. Default: where the request was made.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.label = Label::Given(name.into());
        self
    }

    /// The namespace in the store, instead of the manager's; empty for none.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = Some(prefix.as_ref().into());
        self
    }

    /// How many calls of this process may wait for one lock at a time: who comes when so many
    /// wait is told [`Busy`](LockError::Busy) at once, and nothing is sent for him. 0 is not to wait.
    /// Default: the manager's, no limit.
    ///
    /// It counts the waiters of this manager for each key by itself, on whatever terms they wait,
    /// and is looked at when a call arrives. A call that finds nobody here who has or wants the
    /// lock tries first, and is counted once it waits.
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.max_waiters = Some(waiters);
        self
    }

    /// Takes the lock.
    ///
    /// Returns within max(`wait`, the manager's `command_timeout`) + 50 ms, whatever the store does;
    /// within `command_timeout` where the store has been out of reach for longer than the manager's
    /// [`outage_grace`](crate::LockManagerBuilder::outage_grace).
    ///
    /// # Errors
    ///
    /// [`Busy`](LockError::Busy) if others held it for all of `wait`, [`Backend`](LockError::Backend)
    /// if the store could not say, [`InvalidKey`](LockError::InvalidKey),
    /// [`InvalidOption`](LockError::InvalidOption), [`Closed`](LockError::Closed).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe at every await: a lock that was granted to a dropped future is freed at once.
    pub async fn acquire(self) -> Result<LockGuard, LockError> {
        let release = self.release;
        let (manager, ask) = self.check()?;
        let locks = manager.into_locks();
        let table = &locks.table;
        let asked = table.clock().now();
        // Before anything that takes a mutex: see `home`.
        table.home().check_at(table.clock(), asked)?;
        let mut guard = match outage::cuts_short(&locks, &ask) {
            true => outage::acquire_meanwhile(locks, ask, asked).await?,
            false => acquire(locks, ask, asked).await?,
        };
        guard.set_release(release);
        Ok(guard)
    }

    /// What it is called, and by whom it is made.
    #[cfg(any(feature = "axum", feature = "actix"))]
    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    #[cfg(any(feature = "axum", feature = "actix"))]
    pub(crate) fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// The same under another label.
    #[cfg(any(feature = "axum", feature = "actix"))]
    pub(crate) fn labelled(self, label: Label) -> Self {
        Self { label, ..self }
    }

    /// The same for other keys.
    #[cfg(any(feature = "axum", feature = "actix"))]
    pub(crate) fn with_keys(&self, keys: Few<LockKey>) -> Self {
        Self {
            manager: self.manager.clone(),
            keys,
            label: self.label.clone(),
            prefix: self.prefix.clone(),
            ..*self
        }
    }

    /// The request with the manager's defaults, or what is wrong with it.
    pub(crate) fn check(self) -> Result<(LockManager, Ask), LockError> {
        let settings = &self.manager.locks().settings;
        let ttl = self.ttl.unwrap_or(settings.ttl);
        check_ttl(ttl)?;
        let max_hold = self.max_hold.or(settings.max_hold);
        check_hold(max_hold, self.min_hold)?;
        let term = Term { ttl, renewed: self.renew, max_hold, min_hold: self.min_hold };
        let wait = self.wait.unwrap_or(settings.wait);
        let label = self.label;
        let other = match &self.prefix {
            Some(prefix) => Some(settings.namespace.of_request(prefix)?),
            None => None,
        };
        let namespace = other.as_ref().unwrap_or(&settings.namespace);
        let mut wanted = self.keys.try_map(|key| namespace.name(label.clone(), key))?;
        if wanted.is_empty() {
            return Err(LockError::invalid_option("keys: none; name at least one"));
        }
        if let Few::Many(wanted) = &mut wanted {
            wanted.sort_by(|a, b| a.stored().cmp(b.stored()));
            wanted.dedup_by(|a, b| a.stored() == b.stored());
        }
        let max_waiters = self.max_waiters.or(settings.max_waiters);
        let (on_lost, reentrant) = (self.on_lost, self.reentrant);
        Ok((self.manager, Ask { wanted, term, wait, max_waiters, on_lost, reentrant }))
    }

    /// Takes the lock, or says that it is held elsewhere: `None` where [`acquire`](Self::acquire)
    /// returns `Busy`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without `Busy`.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn try_acquire(self) -> Result<Option<LockGuard>, LockError> {
        match self.acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(LockError::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock, runs `body` under it, and frees it: what the attribute does, by hand.
    ///
    /// The body is polled only while the lock is held. When the lease is lost it is dropped.
    /// A body that returned keeps its result, whatever becomes of the release.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Lost`](LockError::Lost) if the lease was lost before
    /// the body was done.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the body is dropped where it stands, then the lock is freed.
    #[allow(clippy::needless_late_init)] // The late initialisation is what orders the drops.
    pub async fn run<F: Future>(self, body: F) -> Result<F::Output, LockError> {
        // Declared before the body, so that it is dropped after it: nobody else may have the lock
        // while the body's destructors run.
        let mut guard;
        let body = pin!(body);
        guard = self.acquire().await?;
        hold_and_release(&mut guard, body).await
    }
}

/// Runs a body under the lock of `guard` and frees it.
pub(crate) async fn hold_and_release<F: Future>(
    guard: &mut LockGuard,
    body: Pin<&mut F>,
) -> Result<F::Output, LockError> {
    let out = hold(guard, body).await?;
    guard.release_quietly().await;
    Ok(out)
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &self.keys)
            .field("name", &format_args!("{}", self.label))
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("renew", &self.renew)
            .field("max_hold", &self.max_hold)
            .field("min_hold", &self.min_hold)
            .field("on_lost", &self.on_lost)
            .field("reentrant", &self.reentrant)
            .field("release", &self.release)
            .field("max_waiters", &self.max_waiters)
            .finish_non_exhaustive()
    }
}
