//! The guard: a held lock in the user's hand.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::lease::{Lease, Loss};
use super::locks::Locks;
use super::release::{Releasing, not_ours};
use crate::error::LockError;
use crate::few::Few;
use crate::home::Home;
use crate::limits::check_ttl;
use crate::name::LockName;
use crate::observe;
use crate::options::{OnLost, Release};
use crate::race::any;
use crate::store::{Owned, Renewed};

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
    locks: Arc<Locks>,
    on_lost: OnLost,
    /// Of the lock of a body.
    release: Release,
    /// In stored order, those this guard frees before those it joined.
    leases: Few<Arc<Lease>>,
    /// How many of them this guard frees; the others are an outer call's.
    owned: usize,
}

impl LockGuard {
    pub(crate) fn new(locks: Arc<Locks>, on_lost: OnLost) -> Self {
        let release = Release::Wait;
        Self { locks, on_lost, release, leases: Few::none(), owned: 0 }
    }

    /// A guard of one lease.
    pub(crate) fn of(locks: Arc<Locks>, on_lost: OnLost, lease: Arc<Lease>) -> Self {
        let release = Release::Wait;
        Self { locks, on_lost, release, leases: Few::One(lease), owned: 1 }
    }

    /// How the lock of a body is freed.
    pub(crate) fn set_release(&mut self, release: Release) {
        self.release = release;
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
            self.leases.iter().for_each(|lease| lease.claim.tenure.outdo(fencing_token));
        }
        self
    }

    fn home(&self) -> Home {
        self.locks.table.home()
    }

    pub(crate) fn leases(&self) -> &[Arc<Lease>] {
        &self.leases
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// What the caller is told when a lease is lost: the first one that is. A body may have been
    /// `stopped` for it.
    pub(crate) fn lost_error(&self, loss: Loss, stopped: bool) -> LockError {
        let lost = self.leases.iter().find(|lease| !lease.is_held()).unwrap_or(&self.leases[0]);
        lost.lose(loss);
        lost.lost_error(stopped)
    }

    /// Which of its locks was lost before anything was done under it; an error if it is one under
    /// which the outer call has done something.
    pub(crate) fn lost_before_use(&self) -> Result<Arc<LockName>, LockError> {
        let (own, joined) = self.leases.split_at(self.owned);
        match own.iter().find(|lease| !lease.is_held()) {
            Some(lost) if joined.iter().all(|outer| outer.is_held()) => {
                Ok(lost.claim.owner.lock.clone())
            }
            _ => Err(self.lost_error(Loss::Expired, false)),
        }
    }

    /// What a caller is told whose body has not begun.
    pub(crate) fn not_begun_error(&self) -> LockError {
        match self.lost_before_use() {
            Ok(lost) => self.locks.busy(&lost, None),
            Err(error) => error,
        }
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
    /// smaller ones: it stops a holder that was paused between its last check and its write, and one
    /// whose lock the store has lost with its data. Until that is noticed (at the next renewal, within
    /// a second) the lease may still be handed on to a task of the same process, whose token is then
    /// smaller than that of a newer holder elsewhere.
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
        self.home().check()?;
        if !self.is_held() {
            return Err(self.lost_error(Loss::Expired, false));
        }
        let renewal = |lease: &Arc<Lease>| lease.claim.renewal(lease.capped(ttl), false);
        let renewals: Vec<_> = self.leases.iter().map(renewal).collect();
        let renewed = self.locks.store.clone().renew(renewals.clone()).await;
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
            _ if !self.is_held() => Err(self.lost_error(Loss::Expired, false)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Resolves when the lease is lost; of several, when the first one is. Does not resolve while
    /// the lock is held. Polled after the deadline it is ready at once, also if the loss was not noticed
    /// yet (the machine was suspended, say).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        if !self.home().is_here() {
            return;
        }
        let mut noticed = pin!(self.lost_noticed());
        poll_fn(|cx| {
            if self.leases.iter().any(|lease| lease.is_lost()) {
                return Poll::Ready(());
            }
            noticed.as_mut().poll(cx)
        })
        .await;
    }

    /// Resolves when a lease was found to be lost, for a caller that looks at the clock by itself.
    pub(crate) async fn lost_noticed(&self) {
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
        let table = self.locks.table.clone();
        let now = table.clock().now();
        table.home().check_at(table.clock(), now)?;
        let owned = self.owned;
        let releases = self.take(owned).map(|lease| {
            let was_held = lease.finish_at(now);
            let keep = lease.keep();
            let handed_on = table.end(&lease, was_held, keep.is_some());
            let release = (!handed_on).then(|| table.release(lease.claim.owner.clone(), keep));
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
                    outcome = outcome.and(Err(lease.lost_error(false)));
                }
                continue;
            };
            let one = match release.await {
                Ok(_) if !was_held => Err(lease.lost_error(false)),
                Ok(freed) => match not_ours(
                    &lease.claim.owner,
                    lease.claim.deadline(),
                    &freed,
                    table.clock(),
                ) {
                    None => Ok(()),
                    Some(reason) => Err(LockError::lost(lease.name(), reason, false)),
                },
                Err(fault) => Err(fault.into_error(Some(lease.name()))),
            };
            outcome = outcome.and(one);
        }
        outcome
    }

    /// Frees the lock of a body that has returned: its result stands, a failure is only reported.
    pub(crate) async fn release_quietly(&mut self) {
        match self.release {
            Release::Wait => {
                let Some(lease) = self.leases.first().cloned() else { return };
                if let Err(error) = self.release_all().await
                    && self.home().is_here()
                {
                    observe::released_late(lease.name(), &error);
                }
            }
            Release::Background => self.release_unawaited(),
        }
    }

    /// Sends the release, and has its failure reported.
    fn release_unawaited(&mut self) {
        let table = self.locks.table.clone();
        for lease in self.take_owned() {
            let was_held = lease.finish();
            let keep = lease.keep();
            if !was_held {
                observe::released_late(lease.name(), &lease.lost_error(false));
            }
            if table.end(&lease, was_held, keep.is_some()) {
                continue;
            }
            if was_held {
                let deadline = lease.claim.deadline();
                table.release_unawaited(lease.claim.owner.clone(), keep, deadline);
            } else {
                table.release_in_background(lease.claim.owner.clone(), keep);
            }
        }
    }

    /// Frees the lock in the background; its command is on its way when this returns.
    pub(crate) fn end_in_background(&mut self) {
        for lease in self.take_owned() {
            self.locks.table.end_in_background(&lease);
        }
    }

    /// The leases this guard is to free, last one first.
    fn take_owned(&mut self) -> impl Iterator<Item = Arc<Lease>> + use<> {
        // A forked child has a copy of its parent's lock, and is not to free it.
        let own = self.owned > 0 && self.home().is_here();
        let owned = if own { self.owned } else { 0 };
        self.take(owned)
    }

    /// The first `owned` leases, last one first; the others are forgotten.
    fn take(&mut self, owned: usize) -> impl Iterator<Item = Arc<Lease>> + use<> {
        self.owned = 0;
        let mut leases = std::mem::replace(&mut self.leases, Few::none());
        leases.truncate(owned);
        leases.into_iter().rev()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end_in_background();
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard").field("leases", &self.leases).finish_non_exhaustive()
    }
}
