//! How a lock is waited for; see `acquire`.

use std::sync::Arc;

use crate::acquire::{AcquireStep, Ask, Reply, confirm, data, gone_already, granted};
use crate::client::MultiError;
use crate::ensemble::{Inner, Message};
use crate::fault::Fault;
use crate::nodes::{self, LockChildren};
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::wire::{CreateMode, ZooKeeperError};

/// The holders and waiters, and how often a token was let in so far.
struct QueueView {
    version: i32,
    standing: LockChildren,
    added: bool,
}

impl Inner {
    /// Stands in the queue, and takes the lock if it is the first there and fits.
    pub(crate) async fn stand(
        self: &Arc<Self>,
        place: &Arc<LocalToken>,
        live: &LiveSession,
        ask: &Ask<'_>,
    ) -> Result<AcquireStep, Fault> {
        let waits = self.waiting.live().await?;
        let Some(look) = self.look(place, &waits, ask).await? else {
            return Ok(self.make(place, live, ask, false).await?.unwrap_or(AcquireStep::Again));
        };
        let QueueView { version, standing, added } = look;
        if standing.holds(ask.token) {
            return confirm(place, live, ask, !standing.queue.is_empty()).await;
        }
        let Some(rank) = standing.rank(ask.token) else {
            // It was lost with the session, or is not to be seen at this server yet.
            place.sent().number = None;
            return Ok(AcquireStep::Again);
        };
        let number = standing.queue[rank].number;
        place.sent().number = Some(number);
        if rank == 0 && standing.fits(ask.most) {
            return self.take(place, live, ask, version, &standing).await;
        }
        if ask.is_try {
            return self.give_up(place, &waits, number).await;
        }
        let in_front: Vec<_> = match rank {
            0 => standing.holders.iter().map(|holder| &holder.node).collect(),
            rank => vec![&standing.queue[rank - 1].node],
        };
        for node in in_front {
            if !self.watch(place, &waits, node).await? {
                return Ok(AcquireStep::Again);
            }
        }
        let behind = standing.behind(rank) as u64;
        let (ticket, rank) = (nodes::ticket(number), rank as u64);
        Ok(AcquireStep::Done(Reply::Waits { ticket, rank, behind, added }))
    }

    /// Makes a node in the queue unless it is there, and looks; `None` if the lock is not in use.
    async fn look(
        &self,
        place: &LocalToken,
        waits: &LiveSession,
        ask: &Ask<'_>,
    ) -> Result<Option<QueueView>, Fault> {
        let known = place.sent().number;
        let at = known.or(nodes::number_at(ask.ticket)).map(|number| place.waits_at(number));
        let client = &waits.client;
        let (own, asked_for, synced, data, children) = {
            let mut sent = place.sent();
            if sent.gone {
                return Err(Fault::other("it was given up"));
            }
            // One whose answer was lost is found by its token.
            let in_doubt = sent.may_wait && sent.number.is_none();
            let own = match &at {
                _ if in_doubt || known.is_some() => None,
                Some(path) => Some(client.create(path, &[], CreateMode::Ephemeral)),
                None => Some(client.create(&place.waiter, &[], CreateMode::EphemeralSequential)),
            };
            sent.may_wait = true;
            sent.asked_for += u64::from(own.is_some());
            // The server may be another one than that which made it, and not have heard of it yet.
            let synced = in_doubt.then(|| client.sync(&self.shared.root));
            let (data, children) =
                (client.data(&place.directory), client.children(&place.directory));
            (own, sent.asked_for, synced, data, children)
        };
        if let Some(synced) = synced {
            synced.await.map_err(Fault::of)?;
        }
        let Some(added) = added(place, own, asked_for).await? else { return Ok(None) };
        let stat = data.await.map(|(_, stat)| stat);
        let children = children.await.map(LockChildren::of);
        let looked = stat.and_then(|stat| children.map(|standing| (stat.version, standing)));
        let (version, standing) = match looked {
            Ok(looked) => looked,
            Err(ZooKeeperError::NoNode) => {
                place.sent().stood_nowhere(asked_for);
                return Ok(None);
            }
            Err(error) => return Err(Fault::of(error)),
        };
        let is_there = standing.holds(ask.token) || standing.rank(ask.token).is_some();
        if known.is_none() && !is_there {
            // What was in doubt did not happen.
            place.sent().stood_nowhere(asked_for);
        }
        Ok(Some(QueueView { version, standing, added }))
    }

    /// A try that has failed leaves nothing, unless the token waits by now.
    async fn give_up(
        &self,
        place: &LocalToken,
        waits: &LiveSession,
        number: i32,
    ) -> Result<AcquireStep, Fault> {
        let left = {
            let mut sent = place.sent();
            let left = (!sent.stays).then(|| waits.client.delete(&place.waits_at(number)));
            if left.is_some() {
                // Until that is answered it may stand there: its release looks for it.
                sent.number = None;
            }
            left.map(|left| (left, sent.asked_for))
        };
        if let Some((left, asked_for)) = left {
            left.await.or_else(gone_already).map_err(Fault::of)?;
            place.sent().stood_nowhere(asked_for);
            self.places.forget_try(place);
        }
        let (ticket, rank, behind) = (0, 0, 0);
        Ok(AcquireStep::Done(Reply::Waits { ticket, rank, behind, added: false }))
    }

    /// Exchanges the node in the queue for one of a holder, unless another was let in since the look.
    async fn take(
        &self,
        place: &LocalToken,
        live: &LiveSession,
        ask: &Ask<'_>,
        version: i32,
        standing: &LockChildren,
    ) -> Result<AcquireStep, Fault> {
        let waiter = format!("{}/{}", place.directory, standing.queue[0].node);
        let multi = live
            .client
            .multi()
            .increment_version(&place.directory, Some(version))
            .delete(&waiter)
            .create(&place.holder, &data(ask.ttl), CreateMode::Ephemeral);
        let taken = {
            let sent = place.sent();
            if sent.gone {
                return Ok(AcquireStep::Done(Reply::GivenUp));
            }
            live.client.commit(multi)
        };
        match taken.await {
            Ok(results) => {
                place.sent().stands_nowhere();
                Ok(AcquireStep::Done(granted(live, &results, standing.queue.len() > 1)?))
            }
            Err(MultiError::Change(_)) => Ok(AcquireStep::Again),
            Err(error) => Err(Fault::of(error.error())),
        }
    }

    /// Has the token told when a node is gone; false if it is already.
    async fn watch(
        self: &Arc<Self>,
        place: &Arc<LocalToken>,
        waits: &LiveSession,
        node: &str,
    ) -> Result<bool, Fault> {
        if place.sent().watched.contains(node) {
            return Ok(true);
        }
        let path = format!("{}/{node}", place.directory);
        let watcher = match waits.client.watch(&path).await {
            Ok(watcher) => watcher,
            Err(ZooKeeperError::NoNode) => return Ok(false),
            Err(error) => return Err(Fault::of(error)),
        };
        // Not before: the future that waits for that answer may be dropped.
        place.sent().watched.insert(node.to_owned());
        let (inner, place, node) = (self.clone(), place.clone(), node.to_owned());
        self.handle.spawn(async move {
            watcher.changed().await;
            place.sent().watched.remove(&node);
            if !place.is_gone() {
                inner.tell(Message::Room(&place.name, &place.token));
            }
        });
        Ok(true)
    }
}

/// Whether a node in the queue was made now; `None` if the lock is not in use.
async fn added(
    place: &LocalToken,
    own: Option<impl Future<Output = Result<String, ZooKeeperError>>>,
    asked_for: u64,
) -> Result<Option<bool>, Fault> {
    let Some(own) = own else { return Ok(Some(false)) };
    match own.await {
        Ok(path) => {
            place.sent().number = nodes::number_of(&path);
            Ok(Some(true))
        }
        Err(ZooKeeperError::NodeExists) => Ok(Some(false)),
        Err(ZooKeeperError::NoNode) => {
            place.sent().stood_nowhere(asked_for);
            Ok(None)
        }
        Err(error) => Err(Fault::of(error)),
    }
}
