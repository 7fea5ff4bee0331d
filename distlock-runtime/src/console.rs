//! What the command-line tool needs beyond locks: to ask a store anything, and to know under which
//! names it keeps what. For that tool of the same version alone: nothing here is stable.

use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::locks::Locks;
use crate::manager::LockManager;
use crate::name::Label;

pub use crate::process::unescaped;
pub use crate::store::console::{StoreCommand, StoreReply};

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
