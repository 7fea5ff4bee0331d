//! How a guard frees its locks: awaited, after a body, in the background, or dropped.

use std::sync::Arc;

use super::core::{Finished, Freeing};
use super::effects::Live;
use super::guard::LockGuard;
use super::lease::Lease;
use super::release::{Releasing, not_ours};
use super::table::LockTable;
use crate::error::{IntoLockError, LockError};
use crate::home::RefuseFork;
use crate::one_or_many::OneOrMany;
use crate::options::Release;

impl LockGuard {
    /// The same in place: what is left is a guard of nothing.
    pub(crate) async fn release_all(&mut self) -> Result<(), LockError> {
        let now = self.locks.table.clock().now();
        self.home().check_at(self.locks.table.clock(), now)?;
        let owned = std::mem::take(&mut self.owned);
        let table = &self.locks.table;
        match &self.leases {
            OneOrMany::One(lease) if owned == 1 => {
                let finished = table.finish_at(lease, now);
                // It went on to another caller of this process, and that is all.
                if finished.was_held && finished.release.is_none() && !lease.account().is_open() {
                    return Ok(());
                }
                Ending::of(lease.clone(), finished, table).confirmed().await
            }
            leases => {
                let leases = leases[..owned].to_vec();
                let ending = |lease| {
                    let finished = table.finish_at(&lease, now);
                    Ending::of(lease, finished, table)
                };
                let endings = leases.into_iter().rev().map(ending).collect();
                Box::pin(all_confirmed(endings)).await
            }
        }
    }

    /// Frees the lock of a body that has returned: its result stands, a failure is only reported.
    pub(crate) async fn release_quietly(&mut self) {
        match self.release {
            Release::Wait => {
                let Some(lease) = self.leases.first().cloned() else { return };
                if let Err(error) = self.release_all().await
                    && self.home().is_here()
                {
                    self.locks.table.observers().released_late(lease.name(), error, false);
                }
            }
            Release::Background => self.release_unawaited(),
        }
    }

    /// Sends the release, and has its failure reported.
    fn release_unawaited(&mut self) {
        let table = self.locks.table.clone();
        let leases = self.take_owned();
        for lease in leases.iter().rev() {
            let Finished { was_held, release } = table.finish(lease);
            if !was_held {
                table.observers().released_late(lease.name(), lease.lost_error(false), false);
            }
            match release {
                Some(freeing) if was_held => table.release_unawaited(freeing),
                Some(Freeing { token, keep, .. }) => table.release_in_background(token, keep),
                None => {}
            }
        }
        self.tell_released(&leases);
    }

    /// Reports to observers that these leases were given back, once all of them were.
    fn tell_released(&self, leases: &[Arc<Lease>]) {
        for lease in leases.iter().rev() {
            self.locks.table.observers().released(lease.name(), lease.account(), false);
        }
    }

    /// Frees the lock in the background; its command is on its way when this returns.
    pub(crate) fn end_in_background(&mut self) {
        // Nearly every guard that is dropped was released.
        if self.owned == 0 {
            return;
        }
        let leases = self.take_owned();
        for lease in leases.iter().rev() {
            self.locks.table.end_in_background(lease);
        }
        self.tell_released(&leases);
    }

    /// The leases this guard is to free: the last one first.
    fn take_owned(&mut self) -> OneOrMany<Arc<Lease>> {
        // A forked child has a copy of its parent's lock, and is not to free it.
        let own = self.owned > 0 && self.home().is_here();
        let owned = if own { self.owned } else { 0 };
        self.take(owned)
    }

    /// The first `owned` leases; the others are forgotten.
    #[inline]
    fn take(&mut self, owned: usize) -> OneOrMany<Arc<Lease>> {
        self.owned = 0;
        let mut leases = std::mem::replace(&mut self.leases, OneOrMany::none());
        leases.truncate(owned);
        leases
    }
}

/// A lease that was given back. Dropped, its release goes on by itself, and is reported to observers.
struct Ending<'a> {
    lease: Arc<Lease>,
    table: &'a Arc<LockTable>,
    was_held: bool,
    confirmed: bool,
    /// `None` if it was handed on, or the engine releases it.
    release: Option<Releasing>,
}

impl<'a> Ending<'a> {
    #[inline]
    fn of(lease: Arc<Lease>, finished: Finished<Live>, table: &'a Arc<LockTable>) -> Self {
        let Finished { was_held, release } = finished;
        let release = release.map(|freeing| table.release(freeing));
        Self { lease, table, was_held, confirmed: false, release }
    }

    /// Waits for the store's answer, if there is anything to confirm.
    async fn confirmed(&mut self) -> Result<(), LockError> {
        let Self { lease, table, was_held, confirmed, release } = self;
        let outcome = match release {
            None if *was_held => Ok(()),
            None => Err(lease.lost_error(false)),
            Some(release) => match (&mut *release).await {
                Ok(_) if !*was_held => Err(lease.lost_error(false)),
                Ok(freed) => match not_ours(release.freeing(), &freed, table.clock()) {
                    None => Ok(()),
                    Some(reason) => Err(LockError::lost(lease.name(), reason, false)),
                },
                Err(fault) => Err(fault.into_error(Some(lease.name()))),
            },
        };
        *confirmed = outcome.is_ok();
        outcome
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // Sends what was not sent.
        drop(self.release.take());
        let Self { lease, table, confirmed, .. } = self;
        // Without observers it never is. A forked child has no answer to wait for.
        if lease.account().is_open() && (*confirmed || table.home().is_here()) {
            table.observers().released(lease.name(), lease.account(), *confirmed);
        }
    }
}

/// Waits for the answers to the releases of several locks. On the heap: it is the rare path, and would be
/// part of every locked function's future.
async fn all_confirmed(mut endings: Vec<Ending<'_>>) -> Result<(), LockError> {
    // All on their way before the first answer is awaited.
    endings.iter_mut().filter_map(|ending| ending.release.as_mut()).for_each(Releasing::send);
    let mut outcome = Ok(());
    for ending in &mut endings {
        outcome = outcome.and(ending.confirmed().await);
    }
    outcome
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end_in_background();
    }
}
