//! What the command-line tool needs beyond locks: to ask a store anything, and to know under which
//! names it keeps what. For that tool of the same version alone: nothing here is stable.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::Label;

pub use crate::observe::Calls;
pub use crate::process::unescaped;
pub use crate::store::console::{StoreCommand, StoreReply};

/// What a process counts, and what its locks are called.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Its number among all managers.
    pub process: String,
    /// For how long it has counted.
    pub counted: Duration,
    /// What it has counted by now.
    pub calls: Vec<Calls>,
    /// What locks that it holds are called, and for how long it has held them, by their names in the store.
    pub held: HashMap<String, (String, Duration)>,
}

/// So many processes are asked.
const ASKED: usize = 64;

impl LockManager {
    /// Sends commands to the store in one write, and returns the answer to each. All of them are
    /// answered within the manager's `command_timeout`.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store did not answer, or takes no commands (locks in
    /// memory, for example).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropped early, the commands may or may not have been carried out.
    #[doc(hidden)]
    pub async fn ask_store(
        &self,
        commands: Vec<StoreCommand>,
    ) -> Result<Vec<StoreReply>, LockError> {
        let Locks { table, store, settings, .. } = self.locks();
        table.home().check()?;
        let limit = table.clock().now().after(settings.command_timeout);
        store.clone().ask(commands, limit).await.map_err(|fault| fault.into_error(None))
    }

    /// How often the processes of the manager's prefix take locks, and how long that takes them: they
    /// count from the first such question on, while these go on. Processes that say nothing are missing.
    ///
    /// # Errors
    ///
    /// [`Backend`](LockError::Backend) if the store could not be asked.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nobody counts for longer than ten seconds for it.
    #[doc(hidden)]
    pub async fn counted(&self) -> Result<Vec<Counted>, LockError> {
        let own = self.locks().table.process();
        let processes = self.processes().await?.into_iter().map(|process| process.id);
        let processes: Vec<_> = processes.filter(|id| id != own).take(ASKED).collect();
        let accounts = self.watch(processes).await?;
        let counted = accounts.into_iter().filter_map(|(process, account)| {
            let (counted, calls) = account.counted.clone()?;
            let held = account.held.iter();
            let held = held.map(|held| (held.stored.clone(), (held.name.clone(), held.age)));
            Some(Counted { process, counted, calls, held: held.collect() })
        });
        Ok(counted.collect())
    }

    /// Under which name the store keeps the lock of this key.
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey).
    #[doc(hidden)]
    pub fn stored_name(&self, key: impl Into<LockKey>) -> Result<String, LockError> {
        let label = Label::Given("stored_name".into());
        let lock = self.locks().namespace.name(label, key.into())?;
        Ok(lock.stored().to_string())
    }
}
