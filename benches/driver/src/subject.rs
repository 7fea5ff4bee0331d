//! What a task takes and gives back, and how.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock::{LockError, LockManager, LockMode, LockRequest, Release};
use tokio::sync::Mutex;

/// Longer than any run: what is measured is how long waiting takes, not how many give up.
pub(crate) const WAIT: Duration = Duration::from_secs(600);
/// In `mix` one turn in so many is for writing.
const WRITES: u64 = 20;

/// How a lock is taken.
#[derive(Clone, Copy)]
pub(crate) enum Taking {
    Alone,
    Read,
    Write,
    /// For reading, but for one turn in twenty.
    Mixed,
    /// One of so many permits.
    Permit(u32),
}

pub(crate) enum Subject {
    Lock { manager: LockManager, key: String, release: Release, taking: Taking },
    Mutex(Arc<Mutex<()>>),
}

/// How long a turn was waited for, and whether it was for writing.
pub(crate) struct Turn {
    pub(crate) waited: Duration,
    pub(crate) writes: bool,
}

pub(crate) fn request(manager: &LockManager, key: &str, taking: Taking) -> LockRequest {
    let request = manager.lock(key.to_owned()).wait(WAIT);
    match taking {
        Taking::Alone => request,
        Taking::Read | Taking::Mixed => request.mode(LockMode::Read),
        Taking::Write => request.mode(LockMode::Write),
        Taking::Permit(permits) => request.permits(permits),
    }
}

impl Subject {
    pub(crate) fn lock(manager: &LockManager, key: &str, release: Release, taking: Taking) -> Self {
        Self::Lock { manager: manager.clone(), key: key.to_owned(), release, taking }
    }

    /// A task's turn, of which it had `before`.
    pub(crate) async fn turn(&self, before: u64) -> Result<Turn, LockError> {
        let start = Instant::now();
        match self {
            Self::Lock { manager, key, release, taking } => {
                // Each task of a process at another time.
                let writes = matches!(taking, Taking::Mixed) && before % WRITES == WRITES / 2;
                let request = request(manager, key, if writes { Taking::Write } else { *taking });
                if *release == Release::Background {
                    let waited = request.release(*release).run(async { start.elapsed() }).await?;
                    return Ok(Turn { waited, writes });
                }
                let guard = request.acquire().await?;
                let waited = start.elapsed();
                guard.release().await?;
                Ok(Turn { waited, writes })
            }
            Self::Mutex(mutex) => {
                let guard = mutex.lock().await;
                let waited = start.elapsed();
                drop(guard);
                Ok(Turn { waited, writes: false })
            }
        }
    }
}
