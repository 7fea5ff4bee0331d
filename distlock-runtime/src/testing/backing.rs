//! The place of a test's locks: in memory, in virtual time, or on a real server.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use distlock_core::limit::Limit;
use distlock_core::name::LockName;
use distlock_core::store::owner::Owner;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use super::faults::{FaultState, FaultyStore};
use super::server::{ReplicaConnection, VirtualServer};
use crate::builder::LockManagerBuilder;
use crate::engine::RunsOn;
use crate::error::LockError;
use crate::lock::messages::interrupted;
use crate::lock::table::LockTable;
use crate::manager::LockManager;
use crate::options::LockMode;

/// The remaining lease that calls see of a lock that is held elsewhere forever.
const ELSEWHERE: Duration = Duration::from_secs(30);

/// The place of a test's locks.
pub(super) enum Backing {
    Memory(Arc<VirtualServer>),
    Real(Real),
}

/// Frees a lock that was held elsewhere.
pub(super) type FreeLock = Box<dyn FnOnce() + Send>;

impl Backing {
    /// Makes the manager of a replica, whose store the test breaks through `states`.
    pub(super) fn manager(
        &self,
        builder: LockManagerBuilder,
        states: Vec<Arc<FaultState>>,
    ) -> Result<LockManager, LockError> {
        match self {
            Self::Memory(server) => {
                let (server, prefix) = (server.clone(), builder.stored_prefix()?);
                builder.url("memory://").build_over(here(), |_, runtime, alarms| {
                    let connection = ReplicaConnection { server, runtime: runtime.clone(), prefix };
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

    /// Returns the beginning of the prefixes of replicas.
    pub(super) fn prefix(&self) -> String {
        match self {
            Self::Memory(_) => "distlock".to_owned(),
            Self::Real(real) => real.prefix().to_owned(),
        }
    }

    /// Takes a lock away from all holders, and returns their tokens.
    pub(super) fn take(&self, lock: &Arc<LockName>) -> Vec<String> {
        match self {
            Self::Memory(server) => server.free(lock.stored(), None),
            Self::Real(real) => real.take(lock),
        }
    }

    /// Holds a lock for a process that is no replica; `None` if a present holder excludes it.
    pub(super) fn hold(&self, lock: &Arc<LockName>, token: &str, limit: Limit) -> Option<FreeLock> {
        match self {
            Self::Memory(server) => {
                let (server, stored) = (server.clone(), lock.stored().clone());
                let token = token.to_owned();
                server.hold(&stored, &token, limit, ELSEWHERE).then(|| {
                    let let_go = move || drop(server.free(&stored, Some(&token)));
                    Box::new(let_go) as FreeLock
                })
            }
            Self::Real(real) => real.hold(lock, limit),
        }
    }

    /// Notes that a replica is dead. Its locks are free after their ttl.
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

    /// Makes all waiters poll again, as after a reconnect.
    pub(super) fn interrupt(&self) {
        match self {
            Self::Memory(server) => server.interrupt(),
            Self::Real(real) => real.interrupt(),
        }
    }

    /// Returns how long a test waits until a lock is held.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Memory(_) => Duration::from_secs(60 * 60),
            Self::Real(_) => Duration::from_secs(60),
        }
    }
}

/// Returns where the engine of a test runs. The test may have paused its clock.
fn here() -> RunsOn {
    let Ok(here) = Handle::try_current() else {
        panic!("testing::Locks: call it in a tokio runtime, for example in a #[tokio::test]")
    };
    match here.runtime_flavor() {
        RuntimeFlavor::CurrentThread => RunsOn::Runtime(here),
        _ => RunsOn::Thread,
    }
}

/// The environment variable that names the server.
pub(super) const VARIABLE: &str = "DISTLOCK_TEST_URL";

/// How long the server may take for a command of the test itself.
const ANSWER: Duration = Duration::from_secs(30);

/// Resumes a paused clock.
pub(super) fn resume() {
    let (paused, start) = (Instant::now(), std::time::Instant::now());
    // Tokio does not tell whether the clock is paused, and resuming one that runs would print a panic.
    while start.elapsed() < Duration::from_micros(200) {
        std::hint::spin_loop();
    }
    if paused.elapsed().is_zero() {
        tokio::time::resume();
    }
}

/// The part of a real server that belongs to one test, under a prefix of its own.
pub(super) struct Real {
    url: String,
    prefix: String,
    /// The manager of a process that is no replica. A panic of the test does not break it.
    elsewhere: AssertUnwindSafe<LockManager>,
    known: Mutex<KnownReplicas>,
}

#[derive(Default)]
struct KnownReplicas {
    tables: Vec<Weak<LockTable>>,
    /// The counters of fencing tokens, which a server would keep permanently.
    fences: Vec<String>,
}

impl Real {
    pub(super) fn connect(url: String) -> Result<Self, LockError> {
        let prefix = format!("test.{}", uuid::Uuid::new_v4().simple());
        let elsewhere = LockManager::builder().url(&url).prefix(&prefix);
        let elsewhere = elsewhere.command_timeout(ANSWER).build()?;
        outside(elsewhere.ready())?;
        let elsewhere = AssertUnwindSafe(elsewhere);
        let real = Self { url, prefix, elsewhere, known: Mutex::default() };
        let elsewhere = real.elsewhere.clone();
        real.knows(&elsewhere);
        Ok(real)
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    fn known(&self) -> MutexGuard<'_, KnownReplicas> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the URL and the prefix of a replica.
    fn settings(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.url(&self.url).inside(&self.prefix)
    }

    /// Remembers a manager, to notify its table and to delete its counters.
    fn knows(&self, manager: &LockManager) {
        let locks = manager.locks();
        let (table, fence) = (Arc::downgrade(&locks.table), locks.namespace.fence());
        let mut known = self.known();
        known.tables.push(table);
        if !known.fences.contains(&fence) {
            known.fences.push(fence);
        }
    }

    fn interrupt(&self) {
        let tables: Vec<_> = self.known().tables.iter().filter_map(Weak::upgrade).collect();
        for table in tables {
            interrupted(&table, |_| true);
        }
    }

    fn take(&self, lock: &Arc<LockName>) -> Vec<String> {
        let taken = outside(async {
            let store = &self.elsewhere.locks().store;
            let answer_by = store.clock().now().after(ANSWER);
            let Some(held) = store.clone().inspect(lock.clone(), answer_by).await? else {
                return Ok(Vec::new());
            };
            let mut taken = Vec::new();
            for holder in held.holders {
                let owner = Arc::new(Owner::stray(lock.clone(), holder.token));
                if store.clone().release(owner.clone(), None, answer_by).await?.was_ours {
                    taken.push(owner.token.clone());
                }
            }
            Ok(taken)
        });
        taken.unwrap_or_else(|fault: distlock_core::store::Fault| panic!("{VARIABLE}: {fault}"))
    }

    fn hold(&self, lock: &Arc<LockName>, limit: Limit) -> Option<FreeLock> {
        let prefix = lock.prefix();
        let request = self.elsewhere.lock(lock.key()).name("elsewhere");
        let request = request.prefix(prefix.strip_suffix(':').unwrap_or(prefix));
        let request = match limit.as_permits() {
            Some(permits) => request.permits(permits.get()),
            None if limit.is_read() => request.mode(LockMode::Read),
            None => request,
        };
        match outside(request.try_acquire()) {
            Ok(guard) => {
                guard.map(|guard| -> FreeLock { Box::new(move || drop(outside(guard.release()))) })
            }
            Err(error) => panic!("{VARIABLE}: {error}"),
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let fences = std::mem::take(&mut self.known().fences);
        let words = std::iter::once("DEL".to_owned()).chain(fences);
        let command = words.map(String::into_bytes).collect();
        // If this fails, a few bytes are left. They are not worth a panic in a destructor.
        drop(outside(self.elsewhere.ask_store(None, vec![command])));
    }
}

/// Runs a future on a thread of its own, because the caller's may belong to a runtime.
fn outside<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(work),
            Err(error) => panic!("testing::Locks: {error}"),
        }
    };
    match std::thread::scope(|scope| scope.spawn(run).join()) {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
