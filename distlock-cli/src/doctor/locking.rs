//! Checks whether locks work, by a hand-over from one process to another.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{LockError, LockManager, WakeUps};
use tokio::time::{sleep, timeout};

use super::finding::Finding;
use crate::exit::describe;
use crate::locks::reader::{LockList, LockReader};
use crate::store::StoreConfig;

/// The longest wait for the subscription.
const SUBSCRIPTION_TIMEOUT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_secs(5);

/// Returns a key that nothing else uses.
pub(super) fn scratch_key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("distlock doctor {} {}", std::process::id(), now.as_nanos())
}

/// Connects a manager for the checks.
pub(super) async fn manager(store: &StoreConfig) -> Result<LockManager, LockError> {
    store.builder(TTL).connect().await
}

/// Checks whether a lock can be acquired, waited for and handed over.
pub(super) async fn check(store: &StoreConfig, manager: &LockManager) -> Finding {
    const CHECK: &str = "locks";
    match hand_over(store, manager).await {
        Ok(()) => Finding::ok(CHECK, "one was taken, waited for, handed on and released"),
        Err(why) => {
            Finding::fail(CHECK, why, "mend what other checks say, or see what the server says")
        }
    }
}

/// Hands a lock over from one manager to another, which waits in the queue.
async fn hand_over(store: &StoreConfig, first: &LockManager) -> Result<(), String> {
    let text = |error: LockError| describe(&error);
    let other = manager(store).await.map_err(text)?;
    let key = scratch_key();
    let name = "distlock doctor";
    let held = first.lock(key.clone()).name(name).ttl(TTL).acquire().await.map_err(text)?;
    let second = other.lock(key.clone()).name(name).ttl(TTL).wait(TTL).acquire();
    let (second, released) = tokio::join!(second, async {
        // Waits until `inspect` shows that the second is in the queue.
        for _ in 0..50 {
            sleep(LOOK).await;
            let status = first.inspect(key.clone()).await;
            if matches!(status, Ok(distlock::LockStatus::Held { waiting: 1.., .. })) {
                break;
            }
        }
        held.release().await
    });
    released.map_err(text)?;
    let second = second.map_err(text)?;
    second.release().await.map_err(text)
}

/// Counts the locks in a store whose servers take no commands. `None` if the store does not list its locks.
pub(super) async fn contents(store: &StoreConfig, manager: &LockManager) -> Option<Finding> {
    const MANY: usize = 10_000;
    let reader = LockReader::new(store, manager).ok()?;
    let LockList { locks, has_more, .. } = reader.list(|_| true, MANY).await.ok()?;
    let others = manager.processes().await.map_or(0, |all| all.len().saturating_sub(1));
    let more = if has_more { "more than " } else { "" };
    let text = format!("{more}{} locks held, {others} other processes", locks.len());
    Some(Finding::ok("contents", text))
}

/// Checks whether notifications of the store reach its clients.
pub(super) async fn notifications(manager: &LockManager) -> Finding {
    const CHECK: &str = "pub/sub";
    let subscribed = async {
        while manager.status().wake_ups != WakeUps::Notified {
            sleep(LOOK).await;
        }
    };
    match timeout(SUBSCRIPTION_TIMEOUT, subscribed).await {
        Ok(()) => Finding::ok(CHECK, "waiters are notified when a lock is theirs"),
        Err(_) => Finding::warn(
            CHECK,
            "no subscription: waiters poll once a second instead of being notified",
            "allow the user +subscribe +unsubscribe and &PREFIX:wake:*, and pub/sub on the way to the server",
        ),
    }
}
