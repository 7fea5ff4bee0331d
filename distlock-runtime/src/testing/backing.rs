//! Where the locks of a test are kept: in memory, in virtual time, or on a server.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::faults::{FaultyStore, State};
use super::real::Real;
use super::server::{Connection, Server};
use crate::builder::LockManagerBuilder;
use crate::engine::RunsOn;
use crate::error::LockError;
use crate::limit::Limit;
use crate::manager::LockManager;
use crate::name::LockName;

/// The remaining lease that calls find on a lock that is held elsewhere for ever.
const ELSEWHERE: Duration = Duration::from_secs(30);

pub(super) enum Backing {
    Memory(Arc<Server>),
    Real(Real),
}

/// Lets go of a lock that was held elsewhere.
pub(super) type LetGo = Box<dyn FnOnce() + Send>;

impl Backing {
    /// The manager of a replica, which the test breaks through `states`.
    pub(super) fn manager(
        &self,
        builder: LockManagerBuilder,
        states: Vec<Arc<State>>,
    ) -> Result<LockManager, LockError> {
        match self {
            Self::Memory(server) => {
                let (server, prefix) = (server.clone(), builder.stored_prefix()?);
                builder.url("memory://").build_over(here(), |_, runtime, alarms| {
                    let connection = Connection { server, runtime: runtime.clone(), prefix };
                    Arc::new(FaultyStore::new(Arc::new(connection), alarms.clone(), states))
                })
            }
            Self::Real(real) => {
                let builder = real.settings(builder);
                let manager = builder.build_over(RunsOn::Thread, |store, _, alarms| {
                    Arc::new(FaultyStore::new(store, alarms.clone(), states))
                })?;
                real.knows(&manager);
                Ok(manager)
            }
        }
    }

    /// What replicas have set as their prefix begins with this.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Memory(_) => "distlock".to_owned(),
            Self::Real(real) => real.prefix().to_owned(),
        }
    }

    /// Takes a lock from all that have it, and says under which tokens they had.
    pub(super) fn take(&self, lock: &Arc<LockName>) -> Vec<String> {
        match self {
            Self::Memory(server) => server.free(lock.stored(), None),
            Self::Real(real) => real.take(lock),
        }
    }

    /// Holds a lock for a process that is no replica; `None` if a present holder excludes it.
    pub(super) fn hold(&self, lock: &Arc<LockName>, token: &str, limit: Limit) -> Option<LetGo> {
        match self {
            Self::Memory(server) => {
                let (server, stored) = (server.clone(), lock.stored().clone());
                let token = token.to_owned();
                server.hold(&stored, &token, limit, ELSEWHERE).then(|| {
                    let let_go = move || drop(server.free(&stored, Some(&token)));
                    Box::new(let_go) as LetGo
                })
            }
            Self::Real(real) => real.hold(lock, limit),
        }
    }

    /// A replica is dead. Its locks are free after their ttl.
    pub(super) fn bury(&self, process: &str) {
        let Self::Memory(server) = self else { return };
        for (stored, ttl) in server.bury(process) {
            let server = server.clone();
            tokio::spawn(async move {
                tokio::time::sleep(ttl).await;
                server.expire(&stored);
            });
        }
    }

    /// All waiters poll again: connections have come back.
    pub(super) fn interrupt(&self) {
        match self {
            Self::Memory(server) => server.interrupt(),
            Self::Real(real) => real.interrupt(),
        }
    }

    /// For how long a test waits for a lock to be held.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Memory(_) => Duration::from_secs(60 * 60),
            Self::Real(_) => Duration::from_secs(60),
        }
    }
}

/// The engine of a test that may have paused its clock.
fn here() -> RunsOn {
    let Ok(here) = Handle::try_current() else {
        panic!("testing::Locks: call it in a tokio runtime, for example in a #[tokio::test]")
    };
    match here.runtime_flavor() {
        RuntimeFlavor::CurrentThread => RunsOn::Runtime(here),
        _ => RunsOn::Thread,
    }
}
