//! The guard: a held lock in the user's hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lease::{Lease, Loss};
use crate::error::{LockError, LockName};
use crate::manager::Inner;
use crate::store::Renewal;

/// A lock that is held. Dropping it frees the lock in the background.
///
/// # Freeing on drop is not immediate
///
/// `Drop` cannot wait: it sends the release, and the engine sees it through, also outside a runtime
/// and while a runtime shuts down. A program that ends right after the drop may end before the
/// command is out; then the lock is free after its `ttl`. Use [`release`](Self::release) to wait
/// for the answer, and [`LockManager::close`](crate::LockManager::close) at the end of a program.
#[must_use = "if unused the lock is freed at once"]
pub struct LockGuard {
    manager: Arc<Inner>,
    lease: Option<Arc<Lease>>,
}

impl LockGuard {
    pub(crate) fn new(manager: Arc<Inner>, lease: Arc<Lease>) -> Self {
        Self { manager, lease: Some(lease) }
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        match &self.lease {
            Some(lease) => lease,
            // Only `release` and `Drop` take it, and both consume the guard.
            None => unreachable!("the lease of a guard that was released"),
        }
    }

    /// The key that is locked, without the manager's prefix.
    pub fn key(&self) -> &str {
        self.lease().name.key()
    }

    /// A number that is larger than that of every earlier holder of this lock. Hand it to the
    /// resource the lock protects, and have that refuse smaller ones: it stops a holder that was
    /// paused between its last check and its write.
    pub fn fencing_token(&self) -> u64 {
        self.lease().fencing_token
    }

    /// How long the lease still runs if it is not renewed; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.lease().remaining()
    }

    /// Whether the lock is held at this moment. It may be lost the moment after.
    pub fn is_held(&self) -> bool {
        self.lease().is_held()
    }

    /// Extends the lease to at least `ttl` from now. Never shortens it.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock is no longer held, [`Backend`](LockError::Backend) if
    /// the store did not confirm (the lease stands as it was), [`InvalidOption`](LockError::InvalidOption)
    /// if `ttl` is out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the lease may or may not have been extended.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        crate::options::check_ttl(ttl)?;
        let lease = self.lease();
        if !lease.is_held() {
            lease.lose(Loss::Expired);
            return Err(lease.lost_error());
        }
        let renewal = Renewal { claim: lease.claim.clone(), ttl };
        let fault = match self.manager.engine.store.clone().renew(vec![renewal]).await {
            Ok(mut renewed) => match renewed.answers.pop() {
                Some(Ok(true)) => {
                    lease.renewed(renewed.sent, ttl);
                    return if lease.is_held() { Ok(()) } else { Err(lease.lost_error()) };
                }
                Some(Err(fault)) => fault,
                Some(Ok(false)) | None => {
                    lease.lose(Loss::Taken);
                    return Err(lease.lost_error());
                }
            },
            Err(fault) => fault,
        };
        Err(fault.into_error(Some(&lease.name)))
    }

    /// Resolves when the lease is lost. Does not resolve while it is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        self.lease().lost().await;
    }

    /// Frees the lock and waits for the store's answer.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if it was no longer ours, [`Backend`](LockError::Backend) if the
    /// store did not confirm within `command_timeout`: the engine goes on trying until the lock
    /// has expired by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the release goes on in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        let was_held = lease.finish();
        let name: &LockName = &lease.name;
        match self.manager.releaser.release(lease.claim.clone()).await {
            Ok(freed) if freed.was_ours && was_held => Ok(()),
            Ok(_) if !was_held => Err(lease.lost_error()),
            Ok(_) => Err(LockError::Lost {
                lock: Box::new(name.clone()),
                reason: "the store had it free or with another owner when it was released",
            }),
            Err(fault) => Err(fault.into_error(Some(name))),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.finish();
            self.manager.releaser.let_go(lease.claim.clone());
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.lease).finish()
    }
}
