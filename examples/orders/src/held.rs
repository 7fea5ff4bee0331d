//! The holders and waiters of each lock, over all instances: there are no books of that, the manager is
//! asked.

use std::collections::BTreeSet;
use std::time::Duration;

use distlock::{Holder, LockManager, LockStatus, Process, Waiter};
use serde::Serialize;
use tokio::task::JoinSet;

/// A lock that is held, as the page shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    key: String,
    holders: Vec<Who>,
    /// The next one first.
    waiters: Vec<Who>,
}

/// Who holds it, or waits for it.
#[derive(Debug, Serialize)]
struct Who {
    /// `axum_orders@host:pid`, if it says so.
    process: Option<String>,
    /// What for: the name of the lock there.
    name: Option<String>,
    /// For how long.
    ms: Option<u64>,
    /// How many requests stand there.
    calls: usize,
}

/// Those of these locks that are held.
pub(crate) async fn held(locks: &LockManager, keys: BTreeSet<String>) -> Vec<Lock> {
    let mut asked = JoinSet::new();
    for key in keys {
        let locks = locks.clone();
        asked.spawn(async move { (locks.inspect(key.as_str()).await, key) });
    }
    let mut held = Vec::new();
    while let Some(answer) = asked.join_next().await {
        if let Ok((Ok(LockStatus::Held { holders, waiters, .. }), key)) = answer {
            let holders = holders.into_iter().map(Who::from).collect();
            let waiters = waiters.into_iter().map(Who::from).collect();
            held.push(Lock { key, holders, waiters });
        }
    }
    held.sort_by(|a, b| a.key.cmp(&b.key));
    held
}

impl From<Holder> for Who {
    fn from(holder: Holder) -> Self {
        let Holder { process, name, since, .. } = holder;
        Self { process: said(process), name, ms: since.map(millis), calls: 1 }
    }
}

impl From<Waiter> for Who {
    fn from(waiter: Waiter) -> Self {
        let Waiter { process, name, since, calls, .. } = waiter;
        Self { process: said(process), name, ms: since.map(millis), calls: calls.unwrap_or(1) }
    }
}

pub(crate) fn said(process: Option<Process>) -> Option<String> {
    process.map(|process| process.to_string())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
