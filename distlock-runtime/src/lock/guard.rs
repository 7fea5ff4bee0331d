//! The guard: a held lock in the user's hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::hold::OnLost;
use super::lease::{Lease, Loss};
use super::release::Releasing;
use crate::error::LockError;
use crate::few::Few;
use crate::manager::Inner;
use crate::options::check_ttl;
use crate::race::any;
use crate::store::{Owned, Renewal, Renewed};

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
    on_lost: OnLost,
    /// In stored order, those this guard frees before those it joined.
    leases: Few<Arc<Lease>>,
    /// How many of them this guard frees; the others are an outer call's.
    owned: usize,
}

impl LockGuard {
    pub(crate) fn new(manager: Arc<Inner>, on_lost: OnLost) -> Self {
        Self { manager, on_lost, leases: Few::none(), owned: 0 }
    }

    /// A guard of one lease.
    pub(crate) fn of(manager: Arc<Inner>, on_lost: OnLost, lease: Arc<Lease>) -> Self {
        Self { manager, on_lost, leases: Few::One(lease), owned: 1 }
    }

    /// Holds one more lock, which is freed with the others.
    pub(crate) fn add(&mut self, lease: Arc<Lease>) {
        self.leases.insert(self.owned, lease);
        self.owned += 1;
    }

    /// Takes part in a lock that an outer call holds and will free.
    pub(crate) fn join(&mut self, outer: Arc<Lease>) {
        self.leases.push(outer);
    }

    /// Nothing is missing any more; from here on its `min_hold` counts.
    pub(crate) fn complete(self) -> Self {
        self.leases[..self.owned].iter().for_each(|lease| lease.hand_out());
        if self.leases.len() > 1 {
            // A later holder of one of them must have a higher token than this guard has.
            let fencing_token = self.fencing_token();
            self.leases.iter().for_each(|lease| lease.claim.outdo(fencing_token));
        }
        self
    }

    pub(crate) fn leases(&self) -> &[Arc<Lease>] {
        &self.leases
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// What the caller is told when a lease is lost: the first one that is.
    pub(crate) fn lost_error(&self, loss: Loss) -> LockError {
        let lost = self.leases.iter().find(|lease| !lease.is_held()).unwrap_or(&self.leases[0]);
        lost.lose(loss);
        lost.lost_error()
    }

    /// The key that is locked, without the manager's prefix; of several, the first in stored order.
    pub fn key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// The keys that are locked, in stored order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.in_order().map(|lease| lease.name().key())
    }

    /// A number that is larger than that of every earlier holder of this lock; of several locks,
    /// the largest of theirs. Hand it to the resource the lock protects, and have that refuse
    /// smaller ones: it stops a holder that was paused between its last check and its write.
    pub fn fencing_token(&self) -> u64 {
        self.leases.iter().map(|lease| lease.fencing_token).max().unwrap_or_default()
    }

    /// The fencing token of each key, in the order of [`keys`](Self::keys).
    pub fn fencing_tokens(&self) -> impl Iterator<Item = u64> {
        self.in_order().map(|lease| lease.fencing_token)
    }

    fn in_order(&self) -> impl Iterator<Item = &Lease> {
        let mut leases: Vec<&Lease> = self.leases.iter().map(|lease| &**lease).collect();
        leases.sort_by(|a, b| a.name().stored().cmp(b.name().stored()));
        leases.into_iter()
    }

    /// How long the lease still runs if it is not renewed (of several, the shortest); zero once it
    /// is lost.
    pub fn remaining(&self) -> Duration {
        self.leases.iter().map(|lease| lease.remaining()).min().unwrap_or_default()
    }

    /// Whether the lock (of several, every one) is held at this moment. It may be lost the moment
    /// after.
    pub fn is_held(&self) -> bool {
        self.leases.iter().all(|lease| lease.is_held())
    }

    /// Extends the lease to at least `ttl` from now. Never shortens it, and not past `max_hold`.
    ///
    /// # Errors
    ///
    /// [`Lost`](LockError::Lost) if the lock is no longer held, [`Backend`](LockError::Backend) if
    /// the store did not confirm (the lease stands as it was),
    /// [`InvalidOption`](LockError::InvalidOption) if `ttl` is out of range.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the lease may or may not have been extended.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        check_ttl(ttl)?;
        if !self.is_held() {
            return Err(self.lost_error(Loss::Expired));
        }
        let renewal = |lease: &Arc<Lease>| {
            let claim = lease.claim.clone();
            Renewal { claim, ttl: lease.capped(ttl), draw: false }
        };
        let renewals: Vec<_> = self.leases.iter().map(renewal).collect();
        let renewed = self.manager.engine.store.clone().renew(renewals.clone()).await;
        let Renewed { sent, answers } =
            renewed.map_err(|fault| fault.into_error(Some(self.leases[0].name())))?;
        let mut doubt = None;
        for ((lease, renewal), answer) in self.leases.iter().zip(&renewals).zip(answers) {
            match answer {
                Ok(Owned::Yes { .. }) => lease.extended(sent, renewal.ttl),
                Ok(Owned::No) => drop(lease.lose(Loss::Taken)),
                Err(fault) => doubt = Some(fault.into_error(Some(lease.name()))),
            }
        }
        match doubt {
            _ if !self.is_held() => Err(self.lost_error(Loss::Expired)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Resolves when the lease is lost; of several, when the first one is. Does not resolve while
    /// the lock is held.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        if let [lease] = &*self.leases {
            return lease.lost().await;
        }
        any(self.leases.iter().map(|lease| lease.lost())).await;
    }

    /// Frees the lock and waits for the store's answer; several locks in reverse order. With
    /// `min_hold` the store frees it when it is due.
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
        self.release_all().await
    }

    /// The same in place: what is left is a guard of nothing.
    pub(crate) async fn release_all(&mut self) -> Result<(), LockError> {
        let table = self.manager.engine.table.clone();
        let releases = self.let_go().map(|lease| {
            let was_held = lease.finish();
            let keep = lease.keep();
            let handed_on = table.end(&lease, was_held, keep.is_some());
            let release = (!handed_on).then(|| table.release(lease.claim.clone(), keep));
            (lease, was_held, release)
        });
        let mut releases = releases.collect::<Few<_>>();
        if releases.len() > 1 {
            // All on their way before the first answer is awaited.
            let all = releases.iter_mut().filter_map(|(_, _, release)| release.as_mut());
            all.for_each(Releasing::send);
        }
        let mut outcome = Ok(());
        for (lease, was_held, release) in releases {
            let Some(release) = release else {
                // Handed on, it was ours, and there is nothing to confirm.
                if !was_held {
                    outcome = outcome.and(Err(lease.lost_error()));
                }
                continue;
            };
            let one = match release.await {
                Ok(freed) if freed.was_ours && was_held => Ok(()),
                Ok(_) if !was_held => Err(lease.lost_error()),
                Ok(_) => Err(LockError::Lost {
                    lock: Box::new(lease.name().clone()),
                    reason: "the store had it free or with another owner when it was released",
                }),
                Err(fault) => Err(fault.into_error(Some(lease.name()))),
            };
            outcome = outcome.and(one);
        }
        outcome
    }

    /// Frees the lock in the background; its command is on its way when this returns.
    pub(crate) fn let_go_all(&mut self) {
        for lease in self.let_go() {
            self.manager.engine.table.let_go(&lease);
        }
    }

    /// The leases this guard is to free, last one first.
    fn let_go(&mut self) -> impl Iterator<Item = Arc<Lease>> + use<> {
        let owned = std::mem::take(&mut self.owned);
        let mut leases = std::mem::replace(&mut self.leases, Few::none());
        leases.truncate(owned);
        leases.into_iter().rev()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.let_go_all();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("leases", &self.leases).finish_non_exhaustive()
    }
}
