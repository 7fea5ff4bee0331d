//! Stores that fail on demand, for tests of code that uses locks, and of the locks themselves.
//!
//! A real server is slow to break and hard to break at one exact moment. Here the store is broken
//! by [`Switches`] in the test's hand, or by a seeded [`Script`] that delivers commands more than
//! once and loses or delays answers, the same way every time.
//!
//! ```
//! use distlock_runtime::faults::Faults;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let (manager, switches) = Faults::in_memory().start()?;
//! switches.busy(true);
//! assert!(manager.lock("k").acquire().await.is_err_and(|error| error.is_busy()));
//! switches.busy(false);
//! manager.lock("k").acquire().await?.release().await?;
//! # Ok::<_, distlock_runtime::LockError>(())
//! # }).unwrap();
//! ```

mod script;
mod store;
mod switches;

use std::sync::Arc;

use crate::builder::LockManagerBuilder;
use crate::engine::RunsOn;
use crate::error::LockError;
use crate::manager::LockManager;
use crate::memory::MemoryStore;
use crate::store::Store;
pub(super) use store::FaultyStore;
pub(super) use switches::State;

pub use script::Script;
pub use switches::Switches;

/// Makes a [`LockManager`] whose store fails on demand.
#[derive(Debug)]
#[must_use = "nothing is made before `start`"]
pub struct Faults {
    builder: LockManagerBuilder,
    as_remote: bool,
    script: Option<Script>,
    identity: Option<String>,
}

impl Faults {
    /// Over locks in memory, on the caller's tokio clock, which may be paused. A renewed lease has
    /// no end there; to see renewals fail use [`as_remote`](Self::as_remote).
    pub fn in_memory() -> Self {
        Self::over(LockManager::builder().url("memory://"))
    }

    /// Over locks in memory that behave as on a server: a lease ends unless it is renewed in time.
    /// Time is real time.
    pub fn as_remote() -> Self {
        Self { as_remote: true, ..Self::in_memory() }
    }

    /// Over the store that this builder names.
    pub fn over(builder: LockManagerBuilder) -> Self {
        Self { builder, as_remote: false, script: None, identity: None }
    }

    /// Changes the manager's settings.
    pub fn with(mut self, set: impl FnOnce(LockManagerBuilder) -> LockManagerBuilder) -> Self {
        self.builder = set(self.builder);
        self
    }

    /// What happens to the commands on their way. Default: nothing.
    pub fn script(mut self, script: Script) -> Self {
        self.script = Some(script);
        self
    }

    /// The manager's tokens begin with this, and are counted from 0. Two managers of one identity are
    /// what a virtual machine becomes that goes on twice from one snapshot. 32 letters and digits.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = Some(identity.to_owned());
        self
    }

    /// The manager, and the switches of its store.
    ///
    /// # Errors
    ///
    /// As [`LockManagerBuilder::build`].
    pub fn start(self) -> Result<(LockManager, Switches), LockError> {
        let Self { builder, as_remote, script, identity } = self;
        let builder = builder.identity(identity);
        let mut parts = None;
        let manager = builder.build_over(RunsOn::Thread, |store, _, alarms| {
            let inner: Arc<dyn Store> =
                if as_remote { Arc::new(MemoryStore::as_remote()) } else { store };
            let state = vec![Arc::new(State::new(script))];
            let faulty = Arc::new(FaultyStore::new(inner.clone(), alarms.clone(), state));
            parts = Some((inner, faulty.state()));
            faulty
        })?;
        let (inner, state) = parts.ok_or(LockError::NotConfigured)?;
        let namespace = manager.locks().namespace.clone();
        Ok((manager, Switches::new(inner, state, namespace)))
    }
}
