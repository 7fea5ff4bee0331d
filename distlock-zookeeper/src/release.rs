//! Releasing locks, and places in their queues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::store::{Fault, Freed, Owner};

use crate::client::MultiError;
use crate::ensemble::Ensemble;
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::wire::ZooKeeperError;

/// Finish a release in the background after this long if its caller has given up on it. This holds for tokens that
/// wait, and for leases whose end is not known.
const GIVEN_UP: Duration = Duration::from_secs(1);
/// Repeat a release in the background after this pause.
const PAUSE: Duration = Duration::from_millis(500);
/// A kept lock that others wait for is released by its caller when it is due. The background waits this much longer.
const SPARE: Duration = Duration::from_millis(100);

/// Releases a lock, or keeps it for the time `keep`, and removes the token from the queue. Idempotent. Once this is
/// answered, no command that was sent for the token can still take effect.
pub(crate) async fn release(
    ensemble: &Ensemble,
    owner: &Owner,
    keep: Option<Duration>,
) -> Result<Freed, Fault> {
    let Some(token) = ensemble.tokens.get(&owner.token) else {
        return release_stray(ensemble, owner).await;
    };
    ensemble.tokens.begin_release(&token, Instant::now() + GIVEN_UP);
    match keep {
        Some(keep) => keep_for(ensemble, &token, keep).await,
        None => {
            let was_ours = remove_nodes(ensemble, &token).await?;
            Ok(Freed { was_ours, ..Freed::nothing() })
        }
    }
}

/// Releases locks at the end of their leases, while their process continues.
pub(crate) async fn release_expired(ensemble: Arc<Ensemble>) {
    loop {
        let token = ensemble.tokens.next_expired().await;
        let ensemble = ensemble.clone();
        tokio::spawn(async move {
            while remove_nodes(&ensemble, &token).await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// Removes all nodes of a token, and returns whether it held the lock.
async fn remove_nodes(ensemble: &Ensemble, token: &LocalToken) -> Result<bool, Fault> {
    let (session, may_wait, number, contended) = {
        let mut sent = token.sent();
        sent.gone = true;
        (sent.session.clone(), sent.may_wait, sent.number, sent.contended)
    };
    // The waiter's node is removed before the holder's node. An exchange of the two may still be on its way, in
    // whatever session. It fails once the waiter's node is gone. In the opposite order it could create the holder's
    // node after that was removed.
    if may_wait {
        let waits = ensemble.waiting.live().await?;
        leave_queue(ensemble, token, &waits, number).await?;
    }
    let was_held = match session {
        Some(session) => remove_holder(token, &session.live().await?, contended).await?,
        None => false,
    };
    ensemble.tokens.forget(token);
    Ok(was_held)
}

/// Removes the nodes of a token in the queue.
async fn leave_queue(
    ensemble: &Ensemble,
    token: &LocalToken,
    waits: &LiveSession,
    number: Option<i32>,
) -> Result<(), Fault> {
    if let Some(number) = number {
        waits.client.delete(&token.waiter_node(number)).await?;
        return Ok(());
    }
    let children = ensemble.children(waits, &token.directory).await?;
    for waiter in children.queue.iter().filter(|waiter| waiter.token == token.owner.token) {
        waits.client.delete(&format!("{}/{}", token.directory, waiter.node)).await?;
    }
    Ok(())
}

/// Removes a holder's node, and returns whether it existed. Removes the lock's node as well if nobody else is known
/// to use it.
async fn remove_holder(
    token: &LocalToken,
    live: &LiveSession,
    contended: bool,
) -> Result<bool, Fault> {
    if token.is_exclusive() && !contended {
        let multi = live.client.multi().delete(&token.holder).delete(&token.directory);
        match live.client.commit(multi).await {
            Ok(_) => return Ok(true),
            Err(MultiError::Change(ZooKeeperError::NoNode)) => return Ok(false),
            // Others wait.
            Err(MultiError::Change(ZooKeeperError::NotEmpty)) => {}
            Err(error) => return Err(error.error().into()),
        }
    }
    Ok(live.client.delete(&token.holder).await?)
}

/// Removes the nodes of a token of another process, or of a token that was released before.
async fn release_stray(ensemble: &Ensemble, owner: &Owner) -> Result<Freed, Fault> {
    let directory = ensemble.directory(owner.lock.stored())?;
    let live = ensemble.waiting.live().await?;
    let children = ensemble.children(&live, &directory).await?;
    let mut was_ours = false;
    for holder in children.holders.iter().filter(|holder| holder.token == owner.token) {
        was_ours |= live.client.delete(&format!("{directory}/{}", holder.node)).await?;
    }
    for waiter in children.queue.iter().filter(|waiter| waiter.token == owner.token) {
        live.client.delete(&format!("{directory}/{}", waiter.node)).await?;
    }
    Ok(Freed { was_ours, ..Freed::nothing() })
}

/// Keeps a lock that its last holder does not use any more.
async fn keep_for(ensemble: &Ensemble, token: &LocalToken, keep: Duration) -> Result<Freed, Fault> {
    let begun = Instant::now();
    let live = ensemble.waiting.live().await?;
    let (may_wait, number) = {
        let sent = token.sent();
        (sent.may_wait, sent.number)
    };
    if may_wait {
        leave_queue(ensemble, token, &live, number).await?;
    }
    let children = ensemble.children(&live, &token.directory).await?;
    let was_ours = children.holds(&token.owner.token);
    let awaited = was_ours && !children.queue.is_empty();
    match was_ours {
        true => {
            let spare = if awaited { SPARE } else { Duration::ZERO };
            ensemble.tokens.set_last_end(token, begun + keep + spare);
        }
        false => ensemble.tokens.forget(token),
    }
    Ok(Freed { was_ours, awaited, ..Freed::nothing() })
}
