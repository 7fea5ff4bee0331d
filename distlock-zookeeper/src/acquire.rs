//! How a lock is taken and waited for.
//!
//! A lock that is not in use has no node. A caller that finds none makes it together with a node of its own,
//! which is then alone in it: one command, and of several only one can succeed. A caller that finds the lock
//! in use makes a node in its queue, and looks at those in front. The first of the queue exchanges that node
//! for one of a holder, on condition that no other was let in since it looked: every such exchange counts up
//! the version of the lock's node, which cannot be removed in between because the waiter's own node is in it.

use std::sync::Arc;
use std::time::Duration;

use crate::client::MultiError;
use crate::ensemble::{Ensemble, Inner};
use crate::fault::Fault;
use crate::nodes::{self, LockChildren};
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::wire::{CreateMode, NodeStat, ZooKeeperError};

/// How often it is looked again because something has changed in between.
const TRIES: usize = 32;

/// What a token wants.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that asks for it.
    pub token: &'a str,
    /// How many may hold the lock when it is let in; `u32::MAX` for any number.
    pub most: u32,
    /// For how long, without being renewed.
    pub ttl: Duration,
    /// Its place in the queue; 0 for one at the end.
    pub ticket: u64,
    /// It takes the lock or leaves nothing.
    pub is_try: bool,
}

/// The lock is the token's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The number of the transaction, above those of all before it.
    pub fence: u64,
    /// Others wait.
    pub contended: bool,
}

/// What is answered to a token that wants a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// It has it.
    Granted(Granted),
    /// It has not; if it is no try, it waits, and gets a message when there may be room.
    Waits {
        /// Its place.
        ticket: u64,
        /// How many are in front.
        rank: u64,
        /// How many are behind.
        behind: u64,
        /// It did not stand there before.
        added: bool,
    },
    /// The lock was not the token's that was to be exchanged.
    NotHeld,
    /// The token is being released.
    GivenUp,
}

/// What one look or one exchange comes to.
pub(crate) enum AcquireStep {
    Done(Reply),
    /// Something has changed: look again.
    Again,
}

impl Ensemble {
    /// Takes a lock that is free, or else has the token wait. Idempotent.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked: the token may have the lock, or wait for it.
    pub async fn acquire(&self, ask: &Ask<'_>) -> Result<Reply, Fault> {
        let inner = &self.inner;
        let place = inner.place(ask)?;
        let link = inner.link(ask.ttl).inspect_err(|_| inner.places.forget_try(&place))?;
        place.sent().link = Some(link.clone());
        let live = inner.live(&link, ask.ttl).await?;
        for _ in 0..TRIES {
            let step = match ask.is_try && place.alone {
                true => inner.try_alone(&place, &live, ask).await?,
                false => inner.stand(&place, &live, ask).await?,
            };
            match step {
                AcquireStep::Done(reply @ Reply::Granted(granted)) => {
                    inner.held(&place, live, ask.ttl, granted.contended);
                    return Ok(reply);
                }
                AcquireStep::Done(reply) => return Ok(reply),
                AcquireStep::Again => {}
            }
        }
        Err(Fault::other("the lock changes too fast to be looked at"))
    }
}

impl Inner {
    fn place(&self, ask: &Ask<'_>) -> Result<Arc<LocalToken>, Fault> {
        let directory = self.directory(ask.name)?;
        let (alone, reads) = (ask.most == 1, ask.most == u32::MAX);
        let place = || LocalToken::new(directory, ask.name, ask.token, alone, reads);
        Ok(self.places.asked(ask.token, !ask.is_try, place))
    }

    pub(crate) fn directory(&self, name: &str) -> Result<String, Fault> {
        let too_long =
            || Fault::unsupported("the key is too long: a node of ZooKeeper has 8000 bytes for it");
        nodes::directory(&self.shared.root, name).ok_or_else(too_long)
    }

    /// A try of a token that is to be alone. No other one can be in a node that was just made.
    async fn try_alone(
        self: &Arc<Self>,
        place: &LocalToken,
        live: &LiveSession,
        ask: &Ask<'_>,
    ) -> Result<AcquireStep, Fault> {
        if let Some(granted) = self.make(place, live, ask, false).await? {
            return Ok(granted);
        }
        let standing = match live.client.children(&place.directory).await {
            Ok(children) => LockChildren::of(children),
            Err(ZooKeeperError::NoNode) => return Ok(AcquireStep::Again),
            Err(error) => return Err(Fault::of(error)),
        };
        if standing.holds(ask.token) {
            return confirm(place, live, ask, !standing.queue.is_empty()).await;
        }
        if !standing.is_empty() {
            self.places.forget_try(place);
            let (ticket, rank, behind) = (0, 0, 0);
            return Ok(AcquireStep::Done(Reply::Waits { ticket, rank, behind, added: false }));
        }
        // Of holders that died.
        Ok(self.make(place, live, ask, true).await?.unwrap_or(AcquireStep::Again))
    }

    /// Makes the lock's node and the holder's in it; `None` if the lock is in use.
    pub(crate) async fn make(
        &self,
        place: &LocalToken,
        live: &LiveSession,
        ask: &Ask<'_>,
        anew: bool,
    ) -> Result<Option<AcquireStep>, Fault> {
        let mut multi = live.client.multi();
        if anew {
            multi = multi.delete(&place.directory);
        }
        let multi = multi
            .create(&place.directory, &[], CreateMode::Container)
            .create(&place.holder, &data(ask.ttl), CreateMode::Ephemeral)
            .increment_version(&place.directory, None);
        let made = {
            let sent = place.sent();
            if sent.gone {
                return Ok(Some(AcquireStep::Done(Reply::GivenUp)));
            }
            live.client.commit(multi)
        };
        match made.await {
            Ok(results) => Ok(Some(AcquireStep::Done(granted(live, &results, false)?))),
            Err(MultiError::Change(ZooKeeperError::NodeExists | ZooKeeperError::NotEmpty)) => {
                Ok(None)
            }
            Err(MultiError::Change(ZooKeeperError::NoNode)) if anew => Ok(Some(AcquireStep::Again)),
            // The root was removed.
            Err(MultiError::Change(ZooKeeperError::NoNode)) => {
                let made = live.client.make_path(&self.shared.root).await;
                made.map(|()| Some(AcquireStep::Again)).map_err(Fault::of)
            }
            Err(error) => Err(Fault::of(error.error())),
        }
    }
}

/// A holder's node is there: whether its session lasts is for the leader to say, in answer to a write.
pub(crate) async fn confirm(
    place: &LocalToken,
    live: &LiveSession,
    ask: &Ask<'_>,
    contended: bool,
) -> Result<AcquireStep, Fault> {
    let confirmed = {
        if place.is_gone() {
            return Ok(AcquireStep::Done(Reply::GivenUp));
        }
        live.client.set_data(&place.holder, &data(ask.ttl))
    };
    match confirmed.await {
        Ok(NodeStat { mzxid, ephemeral_owner, .. }) if ephemeral_owner == live.id => {
            let fence = live.fence(mzxid);
            Ok(AcquireStep::Done(Reply::Granted(Granted { fence, contended })))
        }
        // Of a session that is about to expire.
        Ok(_) => Err(Fault::other("the lock is held by an earlier session of this process")),
        Err(ZooKeeperError::NoNode) => Ok(AcquireStep::Again),
        Err(error) => Err(Fault::of(error)),
    }
}

/// What a holder's node says: for how long it is held.
pub(crate) fn data(ttl: Duration) -> Vec<u8> {
    ttl.as_millis().to_string().into_bytes()
}

/// What the lock's node says after it was counted up.
pub(crate) fn granted(
    live: &LiveSession,
    results: &[NodeStat],
    contended: bool,
) -> Result<Reply, Fault> {
    let Some(stat) = results.last() else {
        return Err(Fault::other("an unexpected answer"));
    };
    Ok(Reply::Granted(Granted { fence: live.fence(stat.mzxid), contended }))
}

pub(crate) fn gone_already(error: ZooKeeperError) -> Result<(), ZooKeeperError> {
    if error == ZooKeeperError::NoNode { Ok(()) } else { Err(error) }
}
