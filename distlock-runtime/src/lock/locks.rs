//! The locks of one manager: what a manager, its calls and its guards share. The engine lives as long as one of
//! them does.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::{Fault, Notification, Store};
use distlock_core::token::Identity;
use tokio::runtime::Handle;

use super::commands::{carry_out, serve};
use super::messages::MessageHandler;
use super::services::{Due, Services};
use super::table::LockTable;
use crate::engine::alarm::{Alarm, Alarms};
use crate::engine::{Engine, RunsOn};
use crate::error::{BackendKind, IntoLockError, LockError};
use crate::namespace::Namespace;
use crate::observe::Observers;
use crate::options::{LockOptions, Resolved};
use crate::settings::Settings;

/// The locks of one manager.
pub(crate) struct Locks {
    pub(crate) settings: Settings,
    /// The resolved options of a call that has none of its own.
    pub(crate) usual: Resolved,
    pub(crate) namespace: Namespace,
    pub(crate) table: Arc<LockTable>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine<Due>,
}

impl Locks {
    /// Starts the engine. `store` is made from the handle of its runtime, where the store's tasks live.
    pub(crate) fn start(
        runs_on: RunsOn,
        settings: Settings,
        namespace: Namespace,
        observers: Observers,
        store: impl FnOnce(&Handle, &Arc<Alarms>) -> Arc<dyn Store>,
    ) -> Result<Self, LockError> {
        let usual = LockOptions::default().resolve(&settings.options)?;
        let (engine, idle) = Engine::start(runs_on).map_err(|error| no_thread(&error))?;
        let store = store(engine.handle(), engine.alarms());
        let (timeout, identify) = (settings.command_timeout, settings.identify);
        let identity = settings.identity.clone().map_or_else(Identity::new, Identity::of);
        let identity = (identity, identify);
        let services = Services::new(store.clone(), &engine, timeout, identity, observers);
        let table = Arc::new(LockTable::new(services, carry_out));
        let handler = MessageHandler::new(&table);
        let listener = move |notification: Notification<'_>| handler.handle(notification);
        store.listen(table.process(), Box::new(listener));
        if let Some(itself) = table.itself() {
            store.introduce(itself);
        }
        let served = table.clone();
        engine.run(idle, table.clock(), move |due| serve(&served, due));
        Ok(Self { settings, usual, namespace, table, store, engine })
    }

    /// Returns the error of a call that did not get a lock because others hold it, or because the manager was
    /// closed, which the caller cannot tell apart here.
    pub(crate) fn busy(&self, lock: &LockName, lease_remaining: Option<Duration>) -> LockError {
        if self.table.is_closed() {
            return LockError::Closed;
        }
        let busy = LockError::Busy { lock: Box::new(lock.clone()), lease_remaining };
        busy.advising(self.settings.advice)
    }

    /// Resolves at a moment.
    pub(crate) fn alarm(&self, at: Moment) -> Alarm<'_> {
        Alarm::at(self.engine.alarms(), self.table.clock(), at)
    }
}

fn no_thread(error: &io::Error) -> LockError {
    let text = format!("the engine's thread could not be started: {error}");
    Fault::lasting(BackendKind::Other, text).into_error(None)
}
