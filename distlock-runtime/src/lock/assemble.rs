//! How a call puts its guard together, lease by lease, and what it reports of a lease that is lost.

use std::sync::Arc;

use super::guard::LockGuard;
use super::lease::Lease;
use super::locks::Locks;
use crate::error::LockError;
use crate::name::LockName;
use crate::observe::{LeaseEvent, Listening};
use crate::one_or_many::OneOrMany;
use crate::options::{OnLost, Release};
use crate::select::any;

impl LockGuard {
    pub(crate) fn new(locks: Arc<Locks>, on_lost: OnLost) -> Self {
        let release = Release::Wait;
        Self { locks, on_lost, release, leases: OneOrMany::none(), owned: 0 }
    }

    /// A guard of one lease.
    #[inline]
    pub(crate) fn of(
        locks: Arc<Locks>,
        (on_lost, release): (OnLost, Release),
        lease: Arc<Lease>,
    ) -> Self {
        Self { locks, on_lost, release, leases: OneOrMany::One(lease), owned: 1 }
    }

    /// How the lock of a body is freed.
    pub(super) fn releasing(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Holds one more lock, which is freed with the others.
    pub(crate) fn add(&mut self, lease: Arc<Lease>) {
        self.leases.insert(self.owned, lease);
        self.owned += 1;
    }

    /// Holds what another guard held, which is freed with the others.
    pub(crate) fn take_over(&mut self, mut other: Self) {
        other.owned = 0;
        for lease in std::mem::replace(&mut other.leases, OneOrMany::none()) {
            self.add(lease);
        }
    }

    /// Takes part in a lock that an outer call holds and will free.
    pub(crate) fn join(&mut self, outer: Arc<Lease>) {
        self.leases.push(outer);
    }

    /// Nothing is missing any more; from here on its `min_hold` counts. The call `queued`, as observers
    /// know.
    #[inline(always)]
    pub(crate) fn complete(&self, queued: bool) {
        let table = &self.locks.table;
        match &self.leases {
            OneOrMany::One(lease) if self.owned == 1 => table.complete(lease),
            _ => self.complete_all(),
        }
        if let Some(listening) = table.observers().listening() {
            self.tell_acquired(listening, queued);
        }
    }

    fn complete_all(&self) {
        let table = &self.locks.table;
        self.leases[..self.owned].iter().for_each(|lease| table.complete(lease));
        if self.leases.len() > 1 {
            // A later holder of one of them must have a higher token than this guard has.
            let fencing_token = self.fencing_token();
            self.leases.iter().for_each(|lease| table.outdo(lease, fencing_token));
        }
    }

    fn tell_acquired(&self, listening: Listening, queued: bool) {
        let table = &self.locks.table;
        for (index, lease) in self.leases[..self.owned].iter().enumerate() {
            let lock = (lease.name().as_ref(), lease.account());
            let known = (lease.request.asked, lease.fencing_token());
            table.observers().acquired(listening, lock, known, (queued, index));
        }
        if let (0, Some(outer)) = (self.owned, self.leases.first()) {
            table.observers().joined(listening, outer.name(), outer.fencing_token());
        }
    }

    /// Shows an event of all its leases to the probe of a test, if there is one.
    #[inline]
    pub(super) fn show(&self, event: LeaseEvent) {
        let observers = self.locks.table.observers();
        self.leases.iter().for_each(|lease| lease.show(observers, event));
    }

    pub(crate) fn leases(&self) -> &[Arc<Lease>] {
        &self.leases
    }

    pub(crate) fn on_lost(&self) -> OnLost {
        self.on_lost
    }

    /// What the caller gets when a lease is lost: the error of the first one that is. A body may have been
    /// `stopped` for it.
    pub(crate) fn lost_error(&self, stopped: bool) -> LockError {
        let lost = self.leases.iter().find(|lease| !lease.is_held()).unwrap_or(&self.leases[0]);
        lost.is_lost(&self.locks.table);
        lost.lost_error(stopped)
    }

    /// Which of its locks was lost before anything was done under it; an error if it is one under
    /// which the outer call has done something.
    pub(crate) fn lost_before_use(&self) -> Result<Arc<LockName>, LockError> {
        let (own, joined) = self.leases.split_at(self.owned);
        match own.iter().find(|lease| !lease.is_held()) {
            Some(lost) if joined.iter().all(|outer| outer.is_held()) => Ok(lost.name().clone()),
            _ => Err(self.lost_error(false)),
        }
    }

    /// The error for a caller whose body has not begun.
    pub(crate) fn not_begun_error(&self) -> LockError {
        match self.lost_before_use() {
            Ok(lost) => self.locks.busy(&lost, None),
            Err(error) => error,
        }
    }

    /// Resolves when a lease was found to be lost, for a caller that looks at the clock by itself.
    pub(crate) async fn lost_noticed(&self) {
        if let [lease] = &*self.leases {
            return lease.lost(&self.locks.table).await;
        }
        any(self.leases.iter().map(|lease| lease.lost(&self.locks.table))).await;
    }
}
