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

use distlock_core::clock::Moment;
use distlock_core::store::{Answer, Attempt, BackendKind, Entered, Entry, Fault, Owner, Term};

use crate::client::MultiError;
use crate::ensemble::Ensemble;
use crate::inspect::inspect;
use crate::nodes::{self, LockChildren, holder_data};
use crate::session::LiveSession;
use crate::waiters::{LocalToken, answered, sending};
use crate::watches;
use crate::wire::{CreateMode, NodeStat, ZooKeeperError};

/// The number of attempts for a lock that changes while it is looked at.
pub(crate) const TRIES: usize = 32;
/// The error after that many attempts.
pub(crate) const TOO_FAST: &str = "the lock changes too fast to be looked at";

/// The answer to a try for a lock in use.
const IN_USE: Entered =
    Entered::Queued { ticket: 0, remaining: None, rank: 0, behind: 0, added: false };

/// The result of one attempt.
enum AcquireStep {
    Done(Entered),
    /// The release of the token has begun, and nothing was sent.
    GivenUp,
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
    /// The length of the lease.
    ttl: Duration,
    /// The moment from which the lease counts.
    sent: Moment,
    /// The token's place in the queue; 0 for a new one at the end.
    ticket: u64,
    /// The request is a try, which leaves nothing if it fails.
    is_try: bool,
}

/// Acquires a lock that is free (R2).
pub(crate) async fn try_acquire(
    ensemble: &Arc<Ensemble>,
    attempt: &Attempt,
) -> Result<Answer, Fault> {
    let Attempt { owner, term, look } = attempt;
    // R2: the engine has sent this token since, and only the answer to that counts.
    if !owner.is_unsent() {
        return taken_over(ensemble, owner, *look).await;
    }
    if ensemble.contention.spares_a_try(attempt) {
        return Ok(Answer::Taken { remaining: None });
    }
    Ok(match acquire(ensemble, owner, *term, 0, true).await? {
        Entered::Granted { fence, sent, .. } => Answer::Granted { fence, sent },
        Entered::Queued { .. } => Answer::Taken { remaining: None },
    })
}

/// Answers a try whose token the engine has sent. The engine knows the fencing token.
async fn taken_over(ensemble: &Ensemble, owner: &Owner, look: bool) -> Result<Answer, Fault> {
    if !look {
        return Err(Fault::given_up());
    }
    let held = inspect(ensemble, owner.lock.stored()).await?;
    let is_own = held.is_some_and(|held| held.tokens().any(|token| *token == owner.token));
    Ok(match is_own {
        true => Answer::Granted { fence: 0, sent: owner.first_sent() },
        false => Answer::Taken { remaining: None },
    })
}

/// Acquires a lock that is free if the owner is the first waiter, or else puts the token into the queue (R3, R4, R11).
pub(crate) async fn enter(ensemble: &Arc<Ensemble>, entry: &Entry) -> Result<Entered, Fault> {
    let Entry { owner, term, ticket } = entry;
    let entered = acquire(ensemble, owner, *term, *ticket, false).await?;
    ensemble.contention.entered(&owner.lock, &entered);
    Ok(entered)
}

/// Acquires a lock that is free, or else makes the token wait unless this is a try. Idempotent. After an error the
/// token may hold the lock or wait for it.
async fn acquire(
    ensemble: &Arc<Ensemble>,
    owner: &Arc<Owner>,
    term: Term,
    ticket: u64,
    is_try: bool,
) -> Result<Entered, Fault> {
    let ttl = term.stored_for();
    // The time for creating a session is no part of the lease.
    let session = ensemble.session_for(ttl)?;
    let live = ensemble.live(&session, ttl).await?;
    let sent = sending(owner, ttl)?;
    let directory = ensemble.directory(owner.lock.stored())?;
    let token = ensemble.tokens.get_or_insert(owner, !is_try, directory);
    token.sent().session = Some(session);
    let acquisition = Acquisition { ensemble, token: &token, live, ttl, sent, ticket, is_try };
    for _ in 0..TRIES {
        let step = match is_try && token.is_exclusive() {
            true => acquisition.try_exclusive().await?,
            false => acquisition.enter_queue().await?,
        };
        match step {
            AcquireStep::Done(entered) => {
                if let Entered::Granted { contended, .. } = entered {
                    watches::begin_lease(ensemble, &token, acquisition.live, ttl, contended);
                }
                answered(owner);
                return Ok(entered);
            }
            AcquireStep::GivenUp => {
                answered(owner);
                return Err(Fault::given_up());
            }
            AcquireStep::Again => {}
        }
    }
    Err(Fault::passing(BackendKind::Other, TOO_FAST))
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
        if children.holds(&self.token.owner.token) {
            return self.confirm(!children.queue.is_empty()).await;
        }
        if !children.is_empty() {
            self.ensemble.tokens.forget_try(self.token);
            return Ok(AcquireStep::Done(IN_USE));
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
            .create(&token.holder, &holder_data(self.ttl), CreateMode::Ephemeral)
            .increment_version(&token.directory, None);
        let created = {
            let sent = token.sent();
            if sent.gone {
                return Ok(Some(AcquireStep::GivenUp));
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
        let token = self.token;
        let waits = self.ensemble.waiting.live().await?;
        let Some(view) = self.view_queue(&waits).await? else {
            return Ok(self.create_lock(false).await?.unwrap_or(AcquireStep::Again));
        };
        let QueueView { version, children, added } = view;
        if children.holds(&token.owner.token) {
            return self.confirm(!children.queue.is_empty()).await;
        }
        let Some(rank) = children.rank(&token.owner.token) else {
            // The node was lost with its session, or this server has not seen it yet.
            token.sent().number = None;
            return Ok(AcquireStep::Again);
        };
        let number = children.queue[rank].number;
        token.sent().number = Some(number);
        if rank == 0 && children.fits(token.owner.limit.most()) {
            return self.take_first(version, &children).await;
        }
        if self.is_try {
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
        // No time remaining: only the servers know when a session ends, and they notify the next waiter.
        let remaining = None;
        Ok(AcquireStep::Done(Entered::Queued { ticket, remaining, rank, behind, added }))
    }

    /// Creates a node in the queue unless there is one, and reads the lock's nodes. Returns `None` if the lock is not
    /// in use.
    async fn view_queue(&self, waits: &LiveSession) -> Result<Option<QueueView>, Fault> {
        let token = self.token;
        let known = token.sent().number;
        let at = known.or(nodes::number_at(self.ticket)).map(|number| token.waiter_node(number));
        let client = &waits.client;
        let (own, queued, synced, data, children) = {
            let mut sent = token.sent();
            if sent.gone {
                return Err(Fault::given_up());
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
        let is_there =
            children.holds(&token.owner.token) || children.rank(&token.owner.token).is_some();
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
        Ok(AcquireStep::Done(IN_USE))
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
            .create(&token.holder, &holder_data(self.ttl), CreateMode::Ephemeral);
        let taken = {
            let sent = token.sent();
            if sent.gone {
                return Ok(AcquireStep::GivenUp);
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
                return Ok(AcquireStep::GivenUp);
            }
            live.client.set_data(&token.holder, &holder_data(self.ttl))
        };
        match confirmed.await {
            Ok(stat) if stat.ephemeral_owner == live.id => self.granted(&[stat], contended),
            // That session is about to expire.
            Ok(_) => {
                let words = "the lock is held by an earlier session of this process";
                Err(Fault::passing(BackendKind::Other, words))
            }
            Err(ZooKeeperError::NoNode) => Ok(AcquireStep::Again),
            Err(error) => Err(error.into()),
        }
    }

    fn granted(&self, stats: &[NodeStat], contended: bool) -> Result<AcquireStep, Fault> {
        let (fence, sent) = (self.live.fence_of(stats)?, self.sent);
        Ok(AcquireStep::Done(Entered::Granted { fence, sent, contended }))
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
