//! A request for a lock: the key and how it is to be held.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Label, LockError, LockName};
use crate::key::LockKey;
use crate::lock::acquire::{Ask, acquire};
use crate::lock::guard::LockGuard;
use crate::lock::hold::hold;
use crate::manager::LockManager;
use crate::observe;
use crate::options::check_ttl;

/// A lock that is about to be taken. Nothing is asked of the store before
/// [`acquire`](Self::acquire), [`try_acquire`](Self::try_acquire) or [`run`](Self::run).
#[must_use = "a request takes no lock before `acquire`, `try_acquire` or `run`"]
pub struct LockRequest {
    manager: LockManager,
    key: LockKey,
    label: Label,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    renew: bool,
}

impl LockRequest {
    pub(crate) fn new(
        manager: LockManager,
        key: LockKey,
        caller: &'static Location<'static>,
    ) -> Self {
        let label = Label::Caller(caller);
        Self { manager, key, label, ttl: None, wait: None, renew: true }
    }

    /// How long the lock may outlive a holder that died. At least 10 ms. Default: the manager's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait while others hold the lock; zero is not to wait. Default: the manager's.
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

    /// A label for errors, spans and metrics. Default: where the request was made.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.label = Label::Given(name.into());
        self
    }

    /// Takes the lock.
    ///
    /// Returns within max(`wait`, the manager's `command_timeout`) + 50 ms, whatever the store does.
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
        let Self { manager, key, label, ttl, wait, renew } = self;
        let lock = manager.inner().settings.namespace.lock(key.as_str());
        let checked = key.check();
        let name = Arc::new(LockName::new(label, key));
        if let Err(reason) = checked {
            return Err(LockError::InvalidKey { lock: Box::new(LockName::clone(&name)), reason });
        }
        let settings = &manager.inner().settings;
        let ttl = ttl.unwrap_or(settings.ttl);
        check_ttl(ttl)?;
        let wait = wait.unwrap_or(settings.wait);
        acquire(manager.into_inner(), Ask { name, lock, ttl, wait, renew }).await
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
        let guard;
        let mut body = pin!(body);
        guard = self.acquire().await?;
        let out = hold(guard.lease(), body.as_mut()).await?;
        release_quietly(guard).await;
        Ok(out)
    }
}

/// Frees the lock of a body that has returned: its result stands, a failure is only reported.
pub(crate) async fn release_quietly(guard: LockGuard) {
    let lease = guard.lease().clone();
    if let Err(error) = guard.release().await {
        observe::released_late(&lease.name, &error);
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("key", &self.key)
            .field("name", &format_args!("{}", self.label))
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("renew", &self.renew)
            .finish_non_exhaustive()
    }
}
