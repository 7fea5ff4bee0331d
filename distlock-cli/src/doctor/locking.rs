//! Whether locks work: one is taken, waited for, handed on and released.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{LockError, LockManager, WakeUps};
use tokio::time::{sleep, timeout};

use super::finding::Finding;
use crate::failure::describe;
use crate::locks::reader::{Found, Locks};
use crate::store::Named;

/// How long the subscription is waited for.
const SUBSCRIBED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_secs(5);

/// A key that nothing else uses.
pub(super) fn scratch_key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("distlock doctor {} {}", std::process::id(), now.as_nanos())
}

/// A manager for the checks.
pub(super) async fn manager(store: &Named) -> Result<LockManager, LockError> {
    store.builder(TTL).connect().await
}

pub(super) async fn check(store: &Named, manager: &LockManager) -> Finding {
    const CHECK: &str = "locks";
    match handed_on(store, manager).await {
        Ok(()) => Finding::ok(CHECK, "one was taken, waited for, handed on and released"),
        Err(why) => {
            Finding::fail(CHECK, why, "mend what other checks say, or see what the server says")
        }
    }
}

/// One process holds, another waits behind it in the queue.
async fn handed_on(store: &Named, first: &LockManager) -> Result<(), String> {
    let said = |error: LockError| describe(&error);
    let other = manager(store).await.map_err(said)?;
    let key = scratch_key();
    let name = "distlock doctor";
    let held = first.lock(key.clone()).name(name).ttl(TTL).acquire().await.map_err(said)?;
    let second = other.lock(key.clone()).name(name).ttl(TTL).wait(TTL).acquire();
    let (second, released) = tokio::join!(second, async {
        // Until the second stands in the queue, which `inspect` shows.
        for _ in 0..50 {
            sleep(LOOK).await;
            let status = first.inspect(key.clone()).await;
            if matches!(status, Ok(distlock::LockStatus::Held { waiting: 1.., .. })) {
                break;
            }
        }
        held.release().await
    });
    released.map_err(said)?;
    let second = second.map_err(said)?;
    second.release().await.map_err(said)
}

/// How many locks there are, in a store of which no server is asked by itself; `None` if it lists none.
pub(super) async fn contents(store: &Named, manager: &LockManager) -> Option<Finding> {
    const MANY: usize = 10_000;
    let locks = Locks::of(store, manager).ok()?;
    let Found { held, more, .. } = locks.held(|_| true, MANY).await.ok()?;
    let others = manager.processes().await.map_or(0, |all| all.len().saturating_sub(1));
    let more = if more { "more than " } else { "" };
    let text = format!("{more}{} locks held, {others} other processes", held.len());
    Some(Finding::ok("contents", text))
}

/// Whether messages of the store reach its clients.
pub(super) async fn told(manager: &LockManager) -> Finding {
    const CHECK: &str = "pub/sub";
    let subscribed = async {
        while manager.status().wake_ups != WakeUps::Notified {
            sleep(LOOK).await;
        }
    };
    match timeout(SUBSCRIBED, subscribed).await {
        Ok(()) => Finding::ok(CHECK, "waiters are notified when a lock is theirs"),
        Err(_) => Finding::warn(
            CHECK,
            "no subscription: waiters poll once a second instead of being notified",
            "allow the user +subscribe +unsubscribe and &PREFIX:wake:*, and pub/sub on the way to the server",
        ),
    }
}
