//! A manager of locks in a store that is no part of this crate.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::offers::Offers;
use super::{LockManagerBuilder, StoreAt};
use crate::engine::RunsOn;
use crate::error::LockError;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::store::Store;

impl LockManagerBuilder {
    /// Makes the manager of locks in a store of another crate, called `kind` in metrics, without I/O. `start` makes
    /// the store; it gets the runtime of the manager's own thread, where the store's tasks belong: it has timers and
    /// I/O, and lives as long as the manager.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build); and where there is a `url` as well.
    #[doc(hidden)]
    pub fn store<S: Store + 'static>(
        self,
        kind: &'static str,
        start: impl FnOnce(&Handle) -> S,
    ) -> Result<LockManager, LockError> {
        let Self { store: StoreAt::Unsaid, settings, observers } = self else {
            return Err(LockError::invalid_option(
                "url: there is a store already; give one of them",
            ));
        };
        settings.check()?;
        Offers::FOREIGN.check(&settings)?;
        let namespace = settings.namespace()?;
        let observers = observers.of_manager(kind);
        let locks = Locks::start(RunsOn::Thread, settings, namespace, observers, |handle, _| {
            Arc::new(start(handle))
        })?;
        Ok(LockManager::new(locks))
    }
}
