//! The locks of a test on a real server, under a prefix of the test's own.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::backing::LetGo;
use crate::builder::LockManagerBuilder;
use crate::error::LockError;
use crate::limit::Limit;
use crate::lock::messages::interrupted;
use crate::lock::table::LockTable;
use crate::manager::LockManager;
use crate::name::LockName;
use crate::options::LockMode;
use crate::store::owner::Owner;

/// Names the server.
pub(super) const VARIABLE: &str = "DISTLOCK_TEST_URL";

/// How long the server may take for what the test itself asks it.
const ANSWER: Duration = Duration::from_secs(30);

/// Lets a paused clock go on.
pub(super) fn resume() {
    let (paused, start) = (Instant::now(), std::time::Instant::now());
    // Tokio does not say whether it is paused, and a panic would be printed.
    while start.elapsed() < Duration::from_micros(200) {
        std::hint::spin_loop();
    }
    if paused.elapsed().is_zero() {
        tokio::time::resume();
    }
}

pub(super) struct Real {
    url: String,
    prefix: String,
    /// A process that is no replica. A test that panics leaves it as it was.
    elsewhere: AssertUnwindSafe<LockManager>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    tables: Vec<Weak<LockTable>>,
    /// Counters of fencing tokens, which a server would keep for good.
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

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a replica, in the test's own part of the server.
    pub(super) fn settings(&self, builder: LockManagerBuilder) -> LockManagerBuilder {
        builder.url(&self.url).inside(&self.prefix)
    }

    pub(super) fn knows(&self, manager: &LockManager) {
        let locks = manager.locks();
        let (table, fence) = (Arc::downgrade(&locks.table), locks.namespace.fence());
        let mut known = self.known();
        known.tables.push(table);
        if !known.fences.contains(&fence) {
            known.fences.push(fence);
        }
    }

    pub(super) fn interrupt(&self) {
        let tables: Vec<_> = self.known().tables.iter().filter_map(Weak::upgrade).collect();
        for table in tables {
            interrupted(&table, |_| true);
        }
    }

    pub(super) fn take(&self, lock: &Arc<LockName>) -> Vec<String> {
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
        taken.unwrap_or_else(|fault: crate::store::Fault| panic!("{VARIABLE}: {fault}"))
    }

    pub(super) fn hold(&self, lock: &Arc<LockName>, limit: Limit) -> Option<LetGo> {
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
                guard.map(|guard| -> LetGo { Box::new(move || drop(outside(guard.release()))) })
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
        // What is left is a few bytes: not worth a panic in a destructor.
        drop(outside(self.elsewhere.ask_store(None, vec![command])));
    }
}

/// Waits for it on a thread of its own: the caller's may be one of a runtime.
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
