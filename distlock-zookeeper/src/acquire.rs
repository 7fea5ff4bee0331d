//! Acquiring a lock, and waiting for it.
//!
//! A lock that is not in use has no node. A caller that finds none creates the lock's node together with its own
//! holder's node in it, and so has the lock exclusively. This is one command, so only one of several callers
//! succeeds. A caller that finds the lock in use creates a node in its queue, and looks at the nodes before it. The
//! first waiter of the queue exchanges its node for a holder's node, on condition that nobody else was let in since
//! it looked. Each exchange increments the version of the lock's node for that purpose. The lock's node cannot be
//! removed in between, because the waiter's own node is in it.

use std::sync::Arc;
use std::time::Duration;

use crate::client::MultiError;
use crate::ensemble::Ensemble;
use crate::fault::Fault;
use crate::nodes::{self, LockChildren, holder_data};
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::watches;
use crate::wire::{CreateMode, NodeStat, ZooKeeperError};

/// The number of attempts for a lock that changes while it is looked at.
const TRIES: usize = 32;

/// A request to acquire a lock.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// The token that asks for it.
    pub token: &'a str,
    /// The number of holders that the lock may then have; `u32::MAX` for any number.
    pub most: u32,
    /// The length of the lease.
    pub ttl: Duration,
    /// The token's place in the queue; 0 for a new one at the end.
    pub ticket: u64,
    /// The request is a try, which leaves nothing if it fails.
    pub is_try: bool,
}

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The number of the transaction, which is above those of all earlier ones.
    pub fence: u64,
    /// Others wait.
    pub contended: bool,
}

/// The answer to a request to acquire a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The token holds the lock.
    Granted(Granted),
    /// The token does not hold the lock. Unless the request was a try, the token waits, and gets a message when it may
    /// be let in.
    Waits {
        /// The token's place in the queue.
        ticket: u64,
        /// The number of waiters before it.
        rank: u64,
        /// The number of waiters after it.
        behind: u64,
        /// The token was not in the queue before.
        added: bool,
    },
    /// The token that was to be exchanged does not hold the lock.
    NotHeld,
    /// The token is being released.
    GivenUp,
}

impl Reply {
    /// The answer to a try for a lock in use.
    const IN_USE: Self = Self::Waits { ticket: 0, rank: 0, behind: 0, added: false };
}

/// The result of one attempt.
enum AcquireStep {
    Done(Reply),
    /// The lock has changed in between: look again.
    Again,
}

/// The holders and waiters of a lock when a token of its queue looked at it.
struct QueueView {
    /// The version of the lock's node, which every new holder increments.
    version: i32,
    children: LockChildren,
    /// The token was not in the queue before.
    added: bool,
}

/// A request to acquire a lock, with the session that its holder's node belongs to.
struct Acquisition<'a> {
    ensemble: &'a Arc<Ensemble>,
    token: &'a Arc<LocalToken>,
    live: LiveSession,
    ask: &'a Ask<'a>,
}

/// Acquires a lock that is free, or else makes the token wait. Idempotent. After an error the token may hold the lock
/// or wait for it.
pub(crate) async fn acquire(ensemble: &Arc<Ensemble>, ask: &Ask<'_>) -> Result<Reply, Fault> {
    let directory = ensemble.directory(ask.name)?;
    let (exclusive, reads) = (ask.most == 1, ask.most == u32::MAX);
    let new = || LocalToken::new(directory, ask.name, ask.token, exclusive, reads);
    let token = ensemble.tokens.get_or_insert(ask.token, !ask.is_try, new);
    let session = ensemble.session_for(ask.ttl);
    let session = session.inspect_err(|_| ensemble.tokens.forget_try(&token))?;
    token.sent().session = Some(session.clone());
    let live = ensemble.live(&session, ask.ttl).await?;
    let acquisition = Acquisition { ensemble, token: &token, live, ask };
    for _ in 0..TRIES {
        let step = match ask.is_try && token.exclusive {
            true => acquisition.try_exclusive().await?,
            false => acquisition.enter_queue().await?,
        };
        match step {
            AcquireStep::Done(reply @ Reply::Granted(granted)) => {
                watches::begin_lease(
                    ensemble,
                    &token,
                    acquisition.live,
                    ask.ttl,
                    granted.contended,
                );
                return Ok(reply);
            }
            AcquireStep::Done(reply) => return Ok(reply),
            AcquireStep::Again => {}
        }
    }
    Err(Fault::other("the lock changes too fast to be looked at"))
}

impl Acquisition<'_> {
    /// Tries to acquire a lock exclusively. A lock whose node was just created has no other holder.
    async fn try_exclusive(&self) -> Result<AcquireStep, Fault> {
        if let Some(step) = self.create_lock(false).await? {
            return Ok(step);
        }
        let children = match self.live.client.children(&self.token.directory).await {
            Ok(children) => LockChildren::of(children),
            Err(ZooKeeperError::NoNode) => return Ok(AcquireStep::Again),
            Err(error) => return Err(error.into()),
        };
        if children.holds(self.ask.token) {
            return self.confirm(!children.queue.is_empty()).await;
        }
        if !children.is_empty() {
            self.ensemble.tokens.forget_try(self.token);
            return Ok(AcquireStep::Done(Reply::IN_USE));
        }
        // The node was left by holders that died.
        Ok(self.create_lock(true).await?.unwrap_or(AcquireStep::Again))
    }

    /// Creates the lock's node with the holder's node in it, and returns `None` if the lock is in use. With `replace`
    /// it deletes an empty node of the lock first.
    async fn create_lock(&self, replace: bool) -> Result<Option<AcquireStep>, Fault> {
        let Self { token, live, .. } = self;
        let mut multi = live.client.multi();
        if replace {
            multi = multi.delete(&token.directory);
        }
        let multi = multi
            .create(&token.directory, &[], CreateMode::Container)
            .create(&token.holder, &holder_data(self.ask.ttl), CreateMode::Ephemeral)
            .increment_version(&token.directory, None);
        let created = {
            let sent = token.sent();
            if sent.gone {
                return Ok(Some(AcquireStep::Done(Reply::GivenUp)));
            }
            live.client.commit(multi)
        };
        match created.await {
            Ok(stats) => Ok(Some(self.granted(&stats, false)?)),
            Err(MultiError::Change(ZooKeeperError::NodeExists | ZooKeeperError::NotEmpty)) => {
                Ok(None)
            }
            Err(MultiError::Change(ZooKeeperError::NoNode)) if replace => {
                Ok(Some(AcquireStep::Again))
            }
            // Somebody has removed the root.
            Err(MultiError::Change(ZooKeeperError::NoNode)) => {
                live.client.make_path(&self.ensemble.config.root).await?;
                Ok(Some(AcquireStep::Again))
            }
            Err(error) => Err(error.error().into()),
        }
    }

    /// Puts the token into the queue, and acquires the lock if the token is the first there and fits.
    async fn enter_queue(&self) -> Result<AcquireStep, Fault> {
        let Self { token, ask, .. } = self;
        let waits = self.ensemble.waiting.live().await?;
        let Some(view) = self.view_queue(&waits).await? else {
            return Ok(self.create_lock(false).await?.unwrap_or(AcquireStep::Again));
        };
        let QueueView { version, children, added } = view;
        if children.holds(ask.token) {
            return self.confirm(!children.queue.is_empty()).await;
        }
        let Some(rank) = children.rank(ask.token) else {
            // The node was lost with its session, or this server has not seen it yet.
            token.sent().number = None;
            return Ok(AcquireStep::Again);
        };
        let number = children.queue[rank].number;
        token.sent().number = Some(number);
        if rank == 0 && children.fits(ask.most) {
            return self.take_first(version, &children).await;
        }
        if ask.is_try {
            return self.leave_queue(&waits, number).await;
        }
        let before: Vec<_> = match rank {
            0 => children.holders.iter().map(|holder| &holder.node).collect(),
            rank => vec![&children.queue[rank - 1].node],
        };
        for node in before {
            if !watches::watch_predecessor(self.ensemble, token, &waits, node).await? {
                return Ok(AcquireStep::Again);
            }
        }
        let behind = children.behind(rank) as u64;
        let (ticket, rank) = (nodes::ticket(number), rank as u64);
        Ok(AcquireStep::Done(Reply::Waits { ticket, rank, behind, added }))
    }

    /// Creates a node in the queue unless there is one, and reads the lock's nodes. Returns `None` if the lock is not
    /// in use.
    async fn view_queue(&self, waits: &LiveSession) -> Result<Option<QueueView>, Fault> {
        let Self { token, ask, .. } = self;
        let known = token.sent().number;
        let at = known.or(nodes::number_at(ask.ticket)).map(|number| token.waiter_node(number));
        let client = &waits.client;
        let (own, queued, synced, data, children) = {
            let mut sent = token.sent();
            if sent.gone {
                return Err(Fault::other("it was given up"));
            }
            // A node whose creation was not answered is found by its token.
            let in_doubt = sent.may_wait && sent.number.is_none();
            let own = match &at {
                _ if in_doubt || known.is_some() => None,
                Some(path) => Some(client.create(path, &[], CreateMode::Ephemeral)),
                None => Some(client.create(&token.waiter, &[], CreateMode::EphemeralSequential)),
            };
            sent.may_wait = true;
            sent.queued += u64::from(own.is_some());
            // Another server may have created the node, and this one may not have seen it yet.
            let synced = in_doubt.then(|| client.sync(&self.ensemble.config.root));
            let (data, children) =
                (client.data(&token.directory), client.children(&token.directory));
            (own, sent.queued, synced, data, children)
        };
        if let Some(synced) = synced {
            synced.await?;
        }
        let Some(added) = added(token, own, queued).await? else { return Ok(None) };
        let stat = data.await.map(|(_, stat)| stat);
        let children = children.await.map(LockChildren::of);
        let read = stat.and_then(|stat| children.map(|children| (stat.version, children)));
        let (version, children) = match read {
            Ok(read) => read,
            Err(ZooKeeperError::NoNode) => {
                token.sent().not_queued_by(queued);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let is_there = children.holds(ask.token) || children.rank(ask.token).is_some();
        if known.is_none() && !is_there {
            // The creation in doubt did not happen.
            token.sent().not_queued_by(queued);
        }
        Ok(Some(QueueView { version, children, added }))
    }

    /// Removes the node of a try that has failed, unless another command of the token waits by now.
    async fn leave_queue(&self, waits: &LiveSession, number: i32) -> Result<AcquireStep, Fault> {
        let left = {
            let mut sent = self.token.sent();
            let deleted = (!sent.stays).then(|| {
                // Until this is answered the node may exist, so a release has to search for it.
                sent.number = None;
                waits.client.delete(&self.token.waiter_node(number))
            });
            deleted.map(|deleted| (deleted, sent.queued))
        };
        if let Some((deleted, queued)) = left {
            deleted.await?;
            self.token.sent().not_queued_by(queued);
            self.ensemble.tokens.forget_try(self.token);
        }
        Ok(AcquireStep::Done(Reply::IN_USE))
    }

    /// Exchanges the first waiter's node for a holder's node, unless somebody else was let in since the look.
    async fn take_first(
        &self,
        version: i32,
        children: &LockChildren,
    ) -> Result<AcquireStep, Fault> {
        let Self { token, live, .. } = self;
        let waiter = format!("{}/{}", token.directory, children.queue[0].node);
        let multi = live
            .client
            .multi()
            .increment_version(&token.directory, Some(version))
            .delete(&waiter)
            .create(&token.holder, &holder_data(self.ask.ttl), CreateMode::Ephemeral);
        let taken = {
            let sent = token.sent();
            if sent.gone {
                return Ok(AcquireStep::Done(Reply::GivenUp));
            }
            live.client.commit(multi)
        };
        match taken.await {
            Ok(stats) => {
                token.sent().left_queue();
                self.granted(&stats, children.queue.len() > 1)
            }
            Err(MultiError::Change(_)) => Ok(AcquireStep::Again),
            Err(error) => Err(error.error().into()),
        }
    }

    /// Confirms a holder's node that exists already. Only the leader knows whether its session is still alive, and says
    /// so in the answer to a write.
    async fn confirm(&self, contended: bool) -> Result<AcquireStep, Fault> {
        let Self { token, live, .. } = self;
        let confirmed = {
            if token.is_gone() {
                return Ok(AcquireStep::Done(Reply::GivenUp));
            }
            live.client.set_data(&token.holder, &holder_data(self.ask.ttl))
        };
        match confirmed.await {
            Ok(stat) if stat.ephemeral_owner == live.id => self.granted(&[stat], contended),
            // That session is about to expire.
            Ok(_) => Err(Fault::other("the lock is held by an earlier session of this process")),
            Err(ZooKeeperError::NoNode) => Ok(AcquireStep::Again),
            Err(error) => Err(error.into()),
        }
    }

    fn granted(&self, stats: &[NodeStat], contended: bool) -> Result<AcquireStep, Fault> {
        let fence = self.live.fence_of(stats)?;
        Ok(AcquireStep::Done(Reply::Granted(Granted { fence, contended })))
    }
}

/// Returns whether a node was created in the queue just now, or `None` if the lock is not in use.
async fn added(
    token: &LocalToken,
    own: Option<impl Future<Output = Result<String, ZooKeeperError>>>,
    queued: u64,
) -> Result<Option<bool>, Fault> {
    let Some(own) = own else { return Ok(Some(false)) };
    match own.await {
        Ok(path) => {
            token.sent().number = nodes::number_of(&path);
            Ok(Some(true))
        }
        Err(ZooKeeperError::NodeExists) => Ok(Some(false)),
        Err(ZooKeeperError::NoNode) => {
            token.sent().not_queued_by(queued);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
