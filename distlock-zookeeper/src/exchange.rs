//! Exchanging the token of a held lock, for a downgrade.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::store::{BackendKind, Exchange, Exchanged, Fault};

use crate::acquire::{TOO_FAST, TRIES};
use crate::client::MultiError;
use crate::ensemble::Ensemble;
use crate::nodes::holder_data;
use crate::session::LiveSession;
use crate::waiters::{LocalToken, answered, sending};
use crate::watches;
use crate::wire::{CreateMode, ZooKeeperError};

/// The result of one attempt.
enum ExchangeStep {
    Done(Exchanged),
    /// Somebody else was let in: look again.
    Again,
    /// The release of the new token has begun, and nothing was sent.
    GivenUp,
}

/// Gives a lock from a token that holds it exclusively to one that shares it. Idempotent. After an error either token
/// may hold the lock.
pub(crate) async fn exchange(
    ensemble: &Arc<Ensemble>,
    exchange: &Exchange,
) -> Result<Exchanged, Fault> {
    let Exchange { old, new: owner, term } = exchange;
    let ttl = term.stored_for();
    // The time for creating a session is no part of the lease.
    let session = ensemble.session_for(ttl)?;
    let live = ensemble.live(&session, ttl).await?;
    let sent = sending(owner, ttl)?;
    let directory = ensemble.directory(owner.lock.stored())?;
    let old = ensemble.tokens.get_or_insert(old, true, directory.clone());
    let new = ensemble.tokens.get_or_insert(owner, true, directory);
    new.sent().session = Some(session);
    for _ in 0..TRIES {
        match exchange_once(ensemble, &old, &new, &live, ttl, sent).await? {
            ExchangeStep::Done(exchanged) => {
                if let Exchanged::Granted { contended, .. } = exchanged {
                    old.sent().gone = true;
                    ensemble.tokens.forget(&old);
                    watches::begin_lease(ensemble, &new, live, ttl, contended);
                }
                answered(owner);
                return Ok(exchanged);
            }
            ExchangeStep::GivenUp => {
                answered(owner);
                return Err(Fault::given_up());
            }
            ExchangeStep::Again => {}
        }
    }
    Err(Fault::passing(BackendKind::Other, TOO_FAST))
}

/// Makes one attempt to exchange a token, unless somebody else was let in meanwhile.
async fn exchange_once(
    ensemble: &Ensemble,
    old: &LocalToken,
    new: &LocalToken,
    live: &LiveSession,
    ttl: Duration,
    sent: Moment,
) -> Result<ExchangeStep, Fault> {
    let version = live.client.data(&new.directory);
    let children = ensemble.children(live, &new.directory);
    let version = match version.await {
        Ok((_, stat)) => stat.version,
        Err(ZooKeeperError::NoNode) => return Ok(ExchangeStep::Done(Exchanged::NotHeld)),
        Err(error) => return Err(error.into()),
    };
    let children = children.await?;
    let contended = !children.queue.is_empty();
    let granted = |fence| ExchangeStep::Done(Exchanged::Granted { fence, sent, contended });
    if children.holds(&new.owner.token) {
        let stat = live.client.set_data(&new.holder, &holder_data(ttl)).await?;
        return Ok(granted(live.fence(stat.mzxid)));
    }
    if !children.holds(&old.owner.token) {
        return Ok(ExchangeStep::Done(Exchanged::NotHeld));
    }
    let multi = live
        .client
        .multi()
        .increment_version(&new.directory, Some(version))
        .delete(&old.holder)
        .create(&new.holder, &holder_data(ttl), CreateMode::Ephemeral);
    let exchanged = {
        if new.is_gone() {
            return Ok(ExchangeStep::GivenUp);
        }
        live.client.commit(multi)
    };
    match exchanged.await {
        Ok(stats) => live.fence_of(&stats).map(granted),
        Err(MultiError::Change(_)) => Ok(ExchangeStep::Again),
        Err(error) => Err(error.error().into()),
    }
}
