//! Calls that come while the store has been out of reach for long: they do not wait for it as those
//! do that came before.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::acquire::{Ask, acquire};
use super::guard::LockGuard;
use crate::clock::Moment;
use crate::engine::schedule::Alarm;
use crate::error::LockError;
use crate::manager::Inner;
use crate::race::until;

type Acquiring = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// Whether a call that comes now must not wait for the store as long as it would for others.
pub(crate) fn cuts_short(manager: &Inner, ask: &Ask) -> bool {
    let (engine, settings) = (&manager.engine, &manager.settings);
    if ask.wait <= settings.command_timeout {
        return false;
    }
    engine
        .store
        .outage()
        .is_some_and(|outage| engine.clock().now().since(outage.since) >= settings.outage_grace)
}

/// Acquires, and gives up after `command_timeout` unless the store is there again by then. Whatever
/// the call waits for until then, a connection, a place in a line or another lock, it leaves by being
/// dropped, as a caller may do at any await.
pub(crate) fn acquire_meanwhile(manager: Arc<Inner>, ask: Ask, asked: Moment) -> Acquiring {
    Box::pin(async move {
        let engine = &manager.engine;
        let limit = asked.after(manager.settings.command_timeout);
        let first = ask.wanted.first().cloned();
        let mut acquiring = Box::pin(acquire(manager.clone(), ask, asked));
        let alarm = Alarm::at(&engine.schedule, engine.clock(), limit);
        if let Some(outcome) = until(acquiring.as_mut(), alarm).await {
            return outcome;
        }
        match engine.store.outage() {
            Some(outage) => Err(outage.fault.into_error(first.as_deref())),
            None => acquiring.await,
        }
    })
}
