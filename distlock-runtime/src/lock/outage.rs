//! Calls that begin while the store has been out of reach for long: they do not wait for it as long as calls do
//! that began before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::select::until;
use distlock_core::store::Fault;

use super::guard::LockGuard;
use super::locks::Locks;
use super::services::Services;
use crate::error::{IntoLockError, LockError};
use crate::observe::InLine;

/// A call under way.
pub(super) type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Returns whether a call that begins now must not wait for the store as long as it would for others.
pub(super) fn is_long(locks: &Locks) -> bool {
    let Services { store, clock, .. } = &locks.table.services;
    let is_long = |since| clock.now().since(since) >= locks.settings.outage_grace;
    store.outage().is_some_and(|outage| is_long(outage.since))
}

/// Acquires a lock, and gives up after `command_timeout` unless the store is there again by then. Whatever the
/// call waits for until then, a connection, a place in a line or another lock, it leaves by being dropped, as a
/// caller may do at any await.
pub(super) fn give_up_early(
    locks: Arc<Locks>,
    lock: Arc<LockName>,
    asked: Moment,
    acquire: impl FnOnce() -> Acquiring + Send + 'static,
) -> Acquiring {
    Box::pin(async move {
        let limit = asked.after(locks.settings.command_timeout);
        let mut report = Report::begin(&locks, lock, asked);
        let mut acquiring = acquire();
        let alarm = locks.alarm(limit);
        let outcome = match until(acquiring.as_mut(), alarm).await {
            Some(outcome) => outcome,
            None => match locks.table.services.store.outage() {
                Some(outage) => {
                    drop(acquiring);
                    return Err(report.refused(outage.fault));
                }
                None => acquiring.await,
            },
        };
        report.ended = true;
        outcome
    })
}

/// The report of such a call to observers: it waits for the store, and may be cut short.
struct Report<'a> {
    locks: &'a Locks,
    lock: Arc<LockName>,
    asked: Moment,
    /// Whether its end was reported.
    ended: bool,
    _in_line: InLine,
}

impl<'a> Report<'a> {
    fn begin(locks: &'a Locks, lock: Arc<LockName>, asked: Moment) -> Self {
        let in_line = locks.table.services.observers.waiting(&lock, true);
        Self { locks, lock, asked, ended: false, _in_line: in_line }
    }

    fn refused(&mut self, fault: Fault) -> LockError {
        let error = fault.into_error(Some(&self.lock));
        self.end(Some(&error));
        error
    }

    fn end(&mut self, error: Option<&LockError>) {
        let Services { clock, observers, .. } = &self.locks.table.services;
        let waited = clock.now().since(self.asked);
        self.ended = true;
        observers.refused(&self.lock, waited, error, true);
    }
}

/// Reports a call whose future is dropped before its end.
impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !self.ended && self.locks.table.services.home.is_here() {
            self.end(None);
        }
    }
}
