//! Calls that begin while the store has been out of reach for long: they do not wait for it, as those
//! do that began before.

use std::future::Future;
use std::pin::Pin;

use super::acquire::Call;
use super::core::Request;
use super::guard::LockGuard;
use super::locks::Locks;
use crate::error::LockError;
use crate::select::until;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Whether a call that begins now must not wait for the store as long as it would for others.
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
pub(super) fn acquire_meanwhile(call: Call) -> Acquiring {
    Box::pin(async move {
        let locks = call.locks.clone();
        let limit = call.request.asked.after(locks.settings.command_timeout);
        let first = call.open.first().cloned();
        let mut acquiring = Box::pin(call.acquire());
        let alarm = locks.alarm(limit);
        if let Some(outcome) = until(acquiring.as_mut(), alarm).await {
            return outcome;
        }
        match locks.store.outage() {
            Some(outage) => Err(outage.fault.into_error(first.as_deref())),
            None => acquiring.await,
        }
    })
}
