//! Calls that begin while the store has been out of reach for long: they do not wait for it, as those
//! do that began before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::call::Call;
use super::core::Request;
use super::guard::LockGuard;
use super::locks::Locks;
use super::told::Told;
use crate::clock::Moment;
use crate::error::{IntoLockError, LockError};
use crate::name::LockName;
use crate::observe::InLine;
use crate::select::until;
use crate::store::Fault;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Whether a call that begins now must not wait for the store as long as it would for others.
#[inline]
pub(super) fn cuts_short(locks: &Locks, request: &Request) -> bool {
    let settings = &locks.settings;
    if request.wait_until.since(request.asked) <= settings.command_timeout {
        return false;
    }
    let now = || locks.table.clock().now();
    locks.store.outage().is_some_and(|outage| now().since(outage.since) >= settings.outage_grace)
}

/// Acquires, and gives up after `command_timeout` unless the store is there again by then. Whatever
/// the call waits for until then, a connection, a place in a line or another lock, it leaves by being
/// dropped, as a caller may do at any await.
pub(super) fn acquire_meanwhile(mut call: Call) -> Acquiring {
    Box::pin(async move {
        let locks = call.locks.clone();
        let limit = call.request.asked.after(locks.settings.command_timeout);
        let mut told = Telling::begin(&locks, call.lock().clone(), call.request.asked);
        call.told = Told::WaitsFor;
        let mut acquiring = Box::pin(call.acquire());
        let alarm = locks.alarm(limit);
        let outcome = match until(acquiring.as_mut(), alarm).await {
            Some(outcome) => outcome,
            None => match locks.store.outage() {
                Some(outage) => {
                    drop(acquiring);
                    return Err(told.refused(outage.fault));
                }
                None => acquiring.await,
            },
        };
        told.ended = true;
        outcome
    })
}

/// What is reported to observers of such a call: it waits for the store, and may be cut short.
struct Telling<'a> {
    locks: &'a Locks,
    lock: Arc<LockName>,
    asked: Moment,
    /// Its end was reported.
    ended: bool,
    _in_line: InLine,
}

impl<'a> Telling<'a> {
    fn begin(locks: &'a Locks, lock: Arc<LockName>, asked: Moment) -> Self {
        let in_line = locks.table.observers().waiting(&lock, true);
        Self { locks, lock, asked, ended: false, _in_line: in_line }
    }

    fn refused(&mut self, fault: Fault) -> LockError {
        let error = fault.into_error(Some(&self.lock));
        self.tell(Some(&error));
        error
    }

    fn tell(&mut self, error: Option<&LockError>) {
        let table = &self.locks.table;
        let waited = table.clock().now().since(self.asked);
        self.ended = true;
        table.observers().refused(&self.lock, waited, error, true);
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        if !self.ended && self.locks.table.home().is_here() {
            self.tell(None);
        }
    }
}
