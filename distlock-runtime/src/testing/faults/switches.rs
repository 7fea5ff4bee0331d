//! What a test holds in its hand to break a store.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::script::{Fate, Script};
use crate::error::{BackendKind, IntoLockError, LockError};
use crate::key::LockKey;
use crate::lock::guard::LockGuard;
use crate::name::Label;
use crate::namespace::Namespace;
use crate::store::Store;
use crate::store::owner::Owner;

/// What is wrong with a store at the moment.
#[derive(Debug, Default)]
pub(crate) struct State {
    busy: AtomicBool,
    /// For how many reasons it is down.
    down: AtomicUsize,
    refusal: Mutex<Option<BackendKind>>,
    delay_nanos: AtomicU64,
    script: Mutex<Option<Script>>,
    /// Renewals the store has carried out, answered or not.
    renewals: AtomicU64,
}

impl State {
    pub(crate) fn new(script: Option<Script>) -> Self {
        Self { script: Mutex::new(script), ..Self::default() }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire) > 0
    }

    /// One more reason to be down.
    pub(crate) fn goes_down(&self) {
        self.down.fetch_add(1, Ordering::AcqRel);
    }

    /// One reason less to be down.
    pub(crate) fn comes_up(&self) {
        self.down.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses everything with this kind of failure; returns what it refused with before.
    pub(crate) fn refuse(&self, kind: Option<BackendKind>) -> Option<BackendKind> {
        std::mem::replace(&mut self.refusal.lock().unwrap_or_else(PoisonError::into_inner), kind)
    }

    pub(crate) fn refusal(&self) -> Option<BackendKind> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delays every answer by this; returns by how much it did before.
    pub(crate) fn slow_down(&self, by: Duration) -> Duration {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.delay_nanos.swap(nanos, Ordering::AcqRel))
    }

    /// What becomes of the next command; `None` without a script.
    pub(crate) fn fate(&self) -> Option<Fate> {
        self.script().as_mut().map(Script::next)
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::Acquire))
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Option<Script>> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_renewal(&self) {
        self.renewals.fetch_add(1, Ordering::AcqRel);
    }
}

/// Breaks a store and mends it again, at once and for every clone of its manager.
#[derive(Clone)]
pub struct Switches {
    /// The store behind the faults.
    inner: Arc<dyn Store>,
    state: Arc<State>,
    namespace: Namespace,
}

impl Switches {
    pub(crate) fn new(inner: Arc<dyn Store>, state: Arc<State>, namespace: Namespace) -> Self {
        Self { inner, state, namespace }
    }

    /// Every try finds its lock held elsewhere. What is held stays held and can be freed.
    pub fn busy(&self, on: bool) {
        self.state.busy.store(on, Ordering::Release);
    }

    /// Nothing reaches the store; every operation fails as if there were no connection.
    pub fn down(&self, on: bool) {
        self.state.down.store(usize::from(on), Ordering::Release);
    }

    /// Every answer comes this much later; the command was carried out long before.
    pub fn delay(&self, by: Duration) {
        self.state.slow_down(by);
    }

    /// Replaces the script; `None` for a faithful network.
    pub fn script(&self, script: Option<Script>) {
        *self.state.script() = script;
    }

    /// How often leases were renewed, whether the answer came through or not.
    pub fn renewals(&self) -> u64 {
        self.state.renewals.load(Ordering::Acquire)
    }

    /// Ends a lease as far as a thread has come that was stopped in the middle of doing so: it is not
    /// held any more, and still in the engine's hand. Dropping the guard does the rest.
    pub fn end_halfway(&self, guard: &LockGuard) {
        for lease in guard.leases() {
            lease.retire();
        }
    }

    /// Takes a lock away behind its holder's back; true if it was held. Holders are not notified: they
    /// find it gone at their next renewal or release.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store behind the faults fails of itself.
    pub async fn lose(&self, key: impl Into<LockKey>) -> Result<bool, LockError> {
        let lock = self.namespace.name(Label::Given("lose".into()), key.into())?;
        let limit = self.inner.clock().now().after(Duration::from_secs(60));
        let held = self.inner.clone().inspect(lock.clone(), limit).await;
        let Some(held) = held.map_err(|fault| fault.into_error(None))? else { return Ok(false) };
        let mut lost = false;
        for holder in held.holders {
            let owner = Arc::new(Owner::stray(lock.clone(), holder.token));
            let freed = self.inner.clone().release(owner, None, limit).await;
            lost |= freed.map_err(|fault| fault.into_error(None))?.was_ours;
        }
        Ok(lost)
    }
}

impl fmt::Debug for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switches").field("state", &self.state).finish_non_exhaustive()
    }
}
