//! Renewing leases, and exchanging the token of a held lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::{Granted, Reply};
use crate::client::MultiError;
use crate::ensemble::{Ensemble, lease_of};
use crate::fault::Fault;
use crate::nodes::holder_data;
use crate::session::{LiveSession, ManagedSession};
use crate::waiters::LocalToken;
use crate::watches;
use crate::wire::{CreateMode, ZooKeeperError};

/// The number of attempts to exchange a token while others are let in.
const TRIES: usize = 32;

/// A lease to extend.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The holder's token.
    pub token: &'a str,
    /// The new length of the lease, at least.
    pub ttl: Duration,
    /// Whether to draw a fencing token as well.
    pub draw: bool,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Others wait.
    pub contended: bool,
    /// The fencing token, if one was asked for.
    pub fence: Option<u64>,
}

/// A token for another one.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that holds the lock exclusively.
    pub old: &'a str,
    /// The token that gets the lock, and shares it.
    pub new: &'a str,
    /// The number of holders that the lock may then have.
    pub most: u32,
    /// The length of the new lease.
    pub ttl: Duration,
}

/// Extends leases, and returns for each whether the token still holds the lock. The first renewal of each session is a
/// write. Only a leader with a majority answers a write, and only while the session is alive. The answer proves that
/// the session was alive after this call began, for this lease and for all that are read after it.
pub(crate) async fn renew(
    ensemble: &Ensemble,
    leases: &[Renewal<'_>],
) -> Vec<Result<Option<Renewed>, Fault>> {
    let mut answers = Vec::with_capacity(leases.len());
    let mut proven: Vec<Arc<ManagedSession>> = Vec::new();
    for lease in leases {
        let token = ensemble.tokens.get(lease.token);
        let until = Instant::now() + lease.ttl;
        answers.push(match token.filter(|token| ensemble.tokens.extend(token, until)) {
            Some(token) => extend(ensemble, &token, lease, &mut proven).await,
            None => Ok(None),
        });
    }
    answers
}

/// Extends one lease. Returns `None` if the token does not hold the lock.
async fn extend(
    ensemble: &Ensemble,
    token: &LocalToken,
    lease: &Renewal<'_>,
    proven: &mut Vec<Arc<ManagedSession>>,
) -> Result<Option<Renewed>, Fault> {
    let Some(mut session) = token.sent().session.clone() else { return Ok(None) };
    let mut live = session.live().await?;
    if lease_of(live.timeout) < lease.ttl {
        session = ensemble.session_for(lease.ttl)?;
        live = ensemble.live(&session, lease.ttl).await?;
    }
    let is_proven = proven.iter().any(|other| Arc::ptr_eq(other, &session));
    let answer = match is_proven && !lease.draw {
        true => live.client.data(&token.holder).await.map(|(_, stat)| stat),
        false => live.client.set_data(&token.holder, &holder_data(lease.ttl)).await,
    };
    let stat = match answer {
        Ok(stat) => stat,
        Err(ZooKeeperError::NoNode) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !is_proven {
        proven.push(session.clone());
    }
    let contended = token.sent().contended;
    let fence = match stat.ephemeral_owner == live.id {
        true => Some(live.fence(stat.mzxid)),
        false => move_to(token, &session, &live, lease.ttl).await?,
    };
    Ok(fence.map(|fence| Renewed { contended, fence: lease.draw.then_some(fence) }))
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

/// Gives a lock from a token that holds it exclusively to one that shares it. Idempotent. After an error either token
/// may hold the lock.
pub(crate) async fn exchange(ensemble: &Arc<Ensemble>, swap: &Swap<'_>) -> Result<Reply, Fault> {
    let directory = ensemble.directory(swap.name)?;
    let (tokens, reads) = (&ensemble.tokens, swap.most == u32::MAX);
    let make =
        |token, exclusive| LocalToken::new(directory.clone(), swap.name, token, exclusive, reads);
    let old = tokens.get_or_insert(swap.old, true, || make(swap.old, true));
    let new = tokens.get_or_insert(swap.new, true, || make(swap.new, false));
    let session = ensemble.session_for(swap.ttl)?;
    new.sent().session = Some(session.clone());
    let live = ensemble.live(&session, swap.ttl).await?;
    for _ in 0..TRIES {
        if let Some(reply) = exchange_once(ensemble, &old, &new, &live, swap.ttl).await? {
            if let Reply::Granted(Granted { contended, .. }) = reply {
                old.sent().gone = true;
                tokens.forget(&old);
                watches::begin_lease(ensemble, &new, live, swap.ttl, contended);
            }
            return Ok(reply);
        }
    }
    Err(Fault::other("the lock changes too fast to be looked at"))
}

/// Makes one attempt to exchange a token. Returns `None` if somebody else was let in meanwhile.
async fn exchange_once(
    ensemble: &Ensemble,
    old: &LocalToken,
    new: &LocalToken,
    live: &LiveSession,
    ttl: Duration,
) -> Result<Option<Reply>, Fault> {
    let version = live.client.data(&new.directory);
    let children = ensemble.children(live, &new.directory);
    let version = match version.await {
        Ok((_, stat)) => stat.version,
        Err(ZooKeeperError::NoNode) => return Ok(Some(Reply::NotHeld)),
        Err(error) => return Err(error.into()),
    };
    let children = children.await?;
    let contended = !children.queue.is_empty();
    let granted = |fence| Some(Reply::Granted(Granted { fence, contended }));
    if children.holds(&new.text) {
        let stat = live.client.set_data(&new.holder, &holder_data(ttl)).await?;
        return Ok(granted(live.fence(stat.mzxid)));
    }
    if !children.holds(&old.text) {
        return Ok(Some(Reply::NotHeld));
    }
    let multi = live
        .client
        .multi()
        .increment_version(&new.directory, Some(version))
        .delete(&old.holder)
        .create(&new.holder, &holder_data(ttl), CreateMode::Ephemeral);
    let exchanged = {
        if new.is_gone() {
            return Ok(Some(Reply::GivenUp));
        }
        live.client.commit(multi)
    };
    match exchanged.await {
        Ok(stats) => live.fence_of(&stats).map(granted),
        Err(MultiError::Change(_)) => Ok(None),
        Err(error) => Err(error.error().into()),
    }
}
