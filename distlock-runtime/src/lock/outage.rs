//! Calls that begin while the store has been out of reach for long: they do not wait for it, as those
//! do that began before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::acquire::{Ask, acquire};
use super::guard::LockGuard;
use super::locks::Locks;
use crate::clock::Moment;
use crate::error::LockError;
use crate::select::until;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Whether a call that begins now must not wait for the store as long as it would for others.
pub(crate) fn cuts_short(locks: &Locks, ask: &Ask) -> bool {
    let settings = &locks.settings;
    if ask.options.wait <= settings.command_timeout {
        return false;
    }
    let now = || locks.table.clock().now();
    locks.store.outage().is_some_and(|outage| now().since(outage.since) >= settings.outage_grace)
}

/// Acquires, and gives up after `command_timeout` unless the store is there again by then. Whatever
/// the call waits for until then, a connection, a place in a line or another lock, it leaves by being
/// dropped, as a caller may do at any await.
pub(crate) fn acquire_meanwhile(locks: Arc<Locks>, ask: Ask, asked: Moment) -> Acquiring {
    Box::pin(async move {
        let limit = asked.after(locks.settings.command_timeout);
        let first = ask.wanted.first().cloned();
        let mut acquiring = Box::pin(acquire(locks.clone(), ask, asked));
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
