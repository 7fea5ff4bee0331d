//! Watches on the nodes of locks, and the notifications that they cause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::select::either;
use distlock_core::store::{Fault, Message, Notification};

use crate::ensemble::Ensemble;
use crate::nodes::LockChildren;
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::wire::ZooKeeperError;

/// Locks that are released sooner are not watched.
const SHORT: Duration = Duration::from_millis(5);

/// Begins the lease of a granted lock: schedules its end, and watches the holder's node until then.
pub(crate) fn begin_lease(
    ensemble: &Arc<Ensemble>,
    token: &Arc<LocalToken>,
    live: LiveSession,
    ttl: Duration,
    contended: bool,
) {
    ensemble.tokens.extend(token, Instant::now() + ttl);
    token.sent().contended |= contended;
    let (ensemble, token) = (ensemble.clone(), token.clone());
    ensemble.handle.clone().spawn(async move {
        tokio::time::sleep(SHORT).await;
        watch_holder(&ensemble, &token, &live).await;
    });
}

/// Reports waiters after a holder, and the removal of the holder's node unless the token was released.
async fn watch_holder(ensemble: &Ensemble, token: &LocalToken, live: &LiveSession) {
    while !token.is_gone() {
        let Ok(own) = live.client.watch(&token.holder).await else {
            // The node may have moved to a longer session in between, or the connection is lost.
            if !token.is_gone() {
                ensemble.config.tell(Notification::TakenAway(message(token)));
            }
            return;
        };
        if token.sent().contended {
            own.changed().await;
            continue;
        }
        let children = live.client.watch_children(&token.directory).await;
        let Ok((children, others)) = children else { return };
        if LockChildren::of(children).queue.is_empty() {
            let _ = either(own.changed(), others.changed()).await;
        } else {
            token.sent().contended = true;
            ensemble.config.tell(Notification::WaiterBehind(message(token)));
            own.changed().await;
        }
    }
}

/// Watches the node of a holder or waiter before a token, and notifies the token once the node is removed. Returns
/// false if there is no such node.
pub(crate) async fn watch_predecessor(
    ensemble: &Arc<Ensemble>,
    token: &Arc<LocalToken>,
    waits: &LiveSession,
    node: &str,
) -> Result<bool, Fault> {
    if token.sent().watched.contains(node) {
        return Ok(true);
    }
    let path = format!("{}/{node}", token.directory);
    let watch = match waits.client.watch(&path).await {
        Ok(watch) => watch,
        Err(ZooKeeperError::NoNode) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    // Noted only after the answer, because the future that waits for it may be dropped.
    token.sent().watched.insert(node.to_owned());
    let (ensemble, token, node) = (ensemble.clone(), token.clone(), node.to_owned());
    ensemble.handle.clone().spawn(async move {
        watch.changed().await;
        token.sent().watched.remove(&node);
        if !token.is_gone() {
            ensemble.config.tell(Notification::Reserved(message(&token)));
        }
    });
    Ok(true)
}

fn message(token: &LocalToken) -> Message<'_> {
    Message { stored: token.owner.lock.stored(), token: &token.owner.token }
}
