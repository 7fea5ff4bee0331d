//! How a guard frees its locks: awaited, after a body, in the background, or dropped.

use std::sync::Arc;

use super::core::{Finished, Freeing};
use super::guard::LockGuard;
use super::lease::Lease;
use super::release::{Releasing, not_ours};
use super::table::LockTable;
use crate::clock::Moment;
use crate::error::LockError;
use crate::observe;
use crate::one_or_many::OneOrMany;
use crate::options::Release;

impl LockGuard {
    /// The same in place: what is left is a guard of nothing.
    pub(crate) async fn release_all(&mut self) -> Result<(), LockError> {
        let now = self.locks.table.clock().now();
        self.home().check_at(self.locks.table.clock(), now)?;
        let owned = self.take(self.owned);
        let table = &self.locks.table;
        let ending = |lease| Ending::of(lease, now, table);
        match owned {
            OneOrMany::One(lease) => ending(lease).confirmed(table).await,
            OneOrMany::Many(leases) => {
                let endings = leases.into_iter().rev().map(ending).collect();
                Box::pin(all_confirmed(endings, table)).await
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
            let Finished { was_held, release } = table.finish(&lease);
            if !was_held {
                observe::released_late(lease.name(), &lease.lost_error(false));
            }
            match release {
                Some(freeing) if was_held => table.release_unawaited(freeing),
                Some(Freeing { token, keep, .. }) => table.release_in_background(token, keep),
                None => {}
            }
        }
    }

    /// Frees the lock in the background; its command is on its way when this returns.
    pub(crate) fn end_in_background(&mut self) {
        // Nearly every guard that is dropped was released.
        if self.owned == 0 {
            return;
        }
        for lease in self.take_owned() {
            self.locks.table.end_in_background(&lease);
        }
    }

    /// The leases this guard is to free, last one first.
    fn take_owned(&mut self) -> impl Iterator<Item = Arc<Lease>> + use<> {
        // A forked child has a copy of its parent's lock, and is not to free it.
        let own = self.owned > 0 && self.home().is_here();
        let owned = if own { self.owned } else { 0 };
        self.take(owned).into_iter().rev()
    }

    /// The first `owned` leases; the others are forgotten.
    fn take(&mut self, owned: usize) -> OneOrMany<Arc<Lease>> {
        self.owned = 0;
        let mut leases = std::mem::replace(&mut self.leases, OneOrMany::none());
        leases.truncate(owned);
        leases
    }
}

/// A lease that was given back.
struct Ending {
    lease: Arc<Lease>,
    was_held: bool,
    /// `None` if it was handed on, or the engine releases it.
    release: Option<Releasing>,
}

impl Ending {
    fn of(lease: Arc<Lease>, now: Moment, table: &Arc<LockTable>) -> Self {
        let Finished { was_held, release } = table.finish_at(&lease, now);
        Self { lease, was_held, release: release.map(|freeing| table.release(freeing)) }
    }

    /// Waits for the store's answer, if there is anything to confirm.
    async fn confirmed(&mut self, table: &LockTable) -> Result<(), LockError> {
        let Self { lease, was_held, release } = self;
        let lost = || Err(lease.lost_error(false));
        let Some(release) = release else { return if *was_held { Ok(()) } else { lost() } };
        match (&mut *release).await {
            Ok(_) if !*was_held => lost(),
            Ok(freed) => match not_ours(release.freeing(), &freed, table.clock()) {
                None => Ok(()),
                Some(reason) => Err(LockError::lost(lease.name(), reason, false)),
            },
            Err(fault) => Err(fault.into_error(Some(lease.name()))),
        }
    }
}

/// Waits for the answers to the releases of several locks. On the heap: it is the rare path, and would be
/// part of every locked function's future.
async fn all_confirmed(mut endings: Vec<Ending>, table: &LockTable) -> Result<(), LockError> {
    // All on their way before the first answer is awaited.
    endings.iter_mut().filter_map(|ending| ending.release.as_mut()).for_each(Releasing::send);
    let mut outcome = Ok(());
    for ending in &mut endings {
        outcome = outcome.and(ending.confirmed(table).await);
    }
    outcome
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end_in_background();
    }
}
