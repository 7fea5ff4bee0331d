//! Whether locks work: one is taken, waited for, handed on and released.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock::{LockManager, WakeUps};
use tokio::time::{sleep, timeout};

use super::finding::Finding;
use crate::store::{Named, describe};

/// How long the subscription is waited for.
const SUBSCRIBED: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_secs(5);

/// A key that nobody else uses.
pub(super) fn scratch_key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("distlock doctor {} {}", std::process::id(), now.as_nanos())
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
async fn handed_on(store: &Named, manager: &LockManager) -> Result<(), String> {
    let said = |error: distlock::LockError| describe(&error);
    let other = store.builder().connect().await.map_err(said)?;
    let key = scratch_key();
    let name = "distlock doctor";
    let first = manager.lock(key.clone()).name(name).ttl(TTL).acquire().await.map_err(said)?;
    let second = other.lock(key.clone()).name(name).ttl(TTL).wait(TTL).acquire();
    let (second, released) = tokio::join!(second, async {
        // Until the second stands in the queue, which `inspect` shows.
        for _ in 0..50 {
            sleep(LOOK).await;
            let status = manager.inspect(key.clone()).await;
            if matches!(status, Ok(distlock::LockStatus::Held { waiting: 1.., .. })) {
                break;
            }
        }
        first.release().await
    });
    released.map_err(said)?;
    let second = second.map_err(said)?;
    second.release().await.map_err(said)
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
        Ok(()) => Finding::ok(CHECK, "waiters are told when a lock is theirs"),
        Err(_) => Finding::warn(
            CHECK,
            "no subscription: waiters poll once a second instead of being notified",
            "allow the user +subscribe +unsubscribe and &PREFIX:wake:*, and pub/sub on the way to the server",
        ),
    }
}
