//! Renewing leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_core::store::{Fault, Owned, Renewal};

use crate::client::MultiError;
use crate::ensemble::{Ensemble, lease_of};
use crate::nodes::holder_data;
use crate::session::{LiveSession, ManagedSession};
use crate::waiters::LocalToken;
use crate::wire::{CreateMode, ZooKeeperError};

/// Extends leases, and returns for each whether the token still holds the lock. The first renewal of each session is a
/// write. Only a leader with a majority answers a write, and only while the session is alive. The answer proves that
/// the session was alive after this call began, for this lease and for all that are read after it.
pub(crate) async fn renew(ensemble: &Ensemble, renewals: &[Renewal]) -> Vec<Result<Owned, Fault>> {
    let mut answers = Vec::with_capacity(renewals.len());
    let mut proven: Vec<Arc<ManagedSession>> = Vec::new();
    for renewal in renewals {
        let token = ensemble.tokens.get(&renewal.owner.token);
        let until = Instant::now() + renewal.ttl;
        answers.push(match token.filter(|token| ensemble.tokens.extend(token, until)) {
            Some(token) => extend(ensemble, &token, renewal, &mut proven).await,
            None => Ok(Owned::No),
        });
    }
    answers
}

/// Extends one lease.
async fn extend(
    ensemble: &Ensemble,
    token: &LocalToken,
    renewal: &Renewal,
    proven: &mut Vec<Arc<ManagedSession>>,
) -> Result<Owned, Fault> {
    let Some(mut session) = token.sent().session.clone() else { return Ok(Owned::No) };
    let mut live = session.live().await?;
    if lease_of(live.timeout) < renewal.ttl {
        session = ensemble.session_for(renewal.ttl)?;
        live = ensemble.live(&session, renewal.ttl).await?;
    }
    let is_proven = proven.iter().any(|other| Arc::ptr_eq(other, &session));
    let answer = match is_proven && !renewal.draw {
        true => live.client.data(&token.holder).await.map(|(_, stat)| stat),
        false => live.client.set_data(&token.holder, &holder_data(renewal.ttl)).await,
    };
    let stat = match answer {
        Ok(stat) => stat,
        Err(ZooKeeperError::NoNode) => return Ok(Owned::No),
        Err(error) => return Err(error.into()),
    };
    if !is_proven {
        proven.push(session.clone());
    }
    let contended = token.sent().contended;
    let fence = match stat.ephemeral_owner == live.id {
        true => Some(live.fence(stat.mzxid)),
        false => move_to(token, &session, &live, renewal.ttl).await?,
    };
    Ok(match fence {
        Some(fence) => Owned::Yes { contended, fence: renewal.draw.then_some(fence) },
        None => Owned::No,
    })
}

/// Moves a holder's node to another session of this process, in one transaction. Returns the fencing token, or `None`
/// if the token does not hold the lock.
async fn move_to(
    token: &LocalToken,
    session: &Arc<ManagedSession>,
    live: &LiveSession,
    ttl: Duration,
) -> Result<Option<u64>, Fault> {
    let multi = live
        .client
        .multi()
        .delete(&token.holder)
        .create(&token.holder, &holder_data(ttl), CreateMode::Ephemeral)
        .increment_version(&token.directory, None);
    let moved = {
        let mut sent = token.sent();
        if sent.gone {
            return Ok(None);
        }
        sent.session = Some(session.clone());
        live.client.commit(multi)
    };
    match moved.await {
        Ok(stats) => live.fence_of(&stats).map(Some),
        Err(MultiError::Change(ZooKeeperError::NoNode)) => Ok(None),
        Err(error) => Err(error.error().into()),
    }
}
