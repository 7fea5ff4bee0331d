//! How a guard frees its locks: awaited, after a body, in the background, or dropped.

use std::sync::Arc;

use super::guard::LockGuard;
use super::lease::Lease;
use super::release::{Releasing, not_ours};
use crate::error::LockError;
use crate::few::Few;
use crate::observe;
use crate::options::Release;

impl LockGuard {
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
