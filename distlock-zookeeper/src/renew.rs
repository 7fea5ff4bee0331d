//! What goes on while a lock is held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::{Granted, Reply, data, granted};
use crate::client::MultiError;
use crate::ensemble::{Ensemble, Inner, Message, lease_of};
use crate::fault::Fault;
use crate::nodes::LockChildren;
use crate::session::{LiveSession, ManagedSession, either};
use crate::waiters::LocalToken;
use crate::wire::{CreateMode, ZooKeeperError};

/// A lock that is given back sooner is not watched over.
const SHORT: Duration = Duration::from_millis(5);
/// How often an exchange is tried where others are let in meanwhile.
const TRIES: usize = 32;

/// A lease to extend.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// The token that has it.
    pub token: &'a str,
    /// To at least this.
    pub ttl: Duration,
    /// Draw a fencing token as well.
    pub draw: bool,
}

/// What is said to a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// Others wait.
    pub contended: bool,
    /// What was drawn.
    pub fence: Option<u64>,
}

/// A token for another one.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The name of the lock.
    pub name: &'a str,
    /// Has it alone.
    pub old: &'a str,
    /// Gets it, and does not keep others out.
    pub new: &'a str,
    /// How many may hold the lock when it is let in.
    pub most: u32,
    /// For how long.
    pub ttl: Duration,
}

impl Ensemble {
    /// Extends leases: for each whether it is the token's. The first of each session is written, which only a
    /// leader with a majority behind it answers, and only while the session lives: that one, and all that are read
    /// behind it, are good for their time from before this was called.
    pub async fn renew(&self, leases: &[Renewal<'_>]) -> Vec<Result<Option<Renewed>, Fault>> {
        let mut answers = Vec::with_capacity(leases.len());
        let mut proven: Vec<Arc<ManagedSession>> = Vec::new();
        for lease in leases {
            let Some(place) = self.inner.places.get(lease.token) else {
                answers.push(Ok(None));
                continue;
            };
            if !self.inner.places.keep(&place, Instant::now() + lease.ttl) {
                answers.push(Ok(None));
                continue;
            }
            answers.push(self.inner.extend(&place, lease, &mut proven).await);
        }
        answers
    }

    /// Gives a lock from a token that has it alone to one that does not keep others out. Idempotent.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked: either may have it.
    pub async fn exchange(&self, swap: &Swap<'_>) -> Result<Reply, Fault> {
        let inner = &self.inner;
        let directory = inner.directory(swap.name)?;
        let make = |token, alone| {
            LocalToken::new(directory.clone(), swap.name, token, alone, swap.most == u32::MAX)
        };
        let old = inner.places.asked(swap.old, true, || make(swap.old, true));
        let new = inner.places.asked(swap.new, true, || make(swap.new, false));
        let link = inner.link(swap.ttl)?;
        new.sent().link = Some(link.clone());
        let live = inner.live(&link, swap.ttl).await?;
        for _ in 0..TRIES {
            if let Some(reply) = inner.swap(&old, &new, &live, swap.ttl).await? {
                if let Reply::Granted(Granted { contended, .. }) = reply {
                    old.sent().gone = true;
                    inner.places.forget(&old);
                    inner.held(&new, live, swap.ttl, contended);
                }
                return Ok(reply);
            }
        }
        Err(Fault::other("the lock changes too fast to be looked at"))
    }
}

impl Inner {
    /// Has the lock given back when its lease is over, and watched over until then.
    pub(crate) fn held(
        self: &Arc<Self>,
        place: &Arc<LocalToken>,
        live: LiveSession,
        ttl: Duration,
        contended: bool,
    ) {
        self.places.keep(place, Instant::now() + ttl);
        place.sent().behind |= contended;
        let (inner, place) = (self.clone(), place.clone());
        self.handle.spawn(async move {
            tokio::time::sleep(SHORT).await;
            inner.watch_over(&place, &live).await;
        });
    }

    /// Tells of others that wait behind a holder, and of its end if that is not its own doing.
    async fn watch_over(&self, place: &LocalToken, live: &LiveSession) {
        while !place.is_gone() {
            let Ok(own) = live.client.watch(&place.holder).await else {
                // It may have been moved to a longer session in between, or the connection is lost.
                if !place.is_gone() {
                    self.tell(Message::Taken(&place.name, &place.token));
                }
                return;
            };
            if place.sent().behind {
                own.changed().await;
                continue;
            }
            let children = live.client.watch_children(&place.directory).await;
            let Ok((children, others)) = children else { return };
            let waits = |standing: &LockChildren| !standing.queue.is_empty();
            if waits(&LockChildren::of(children)) {
                place.sent().behind = true;
                self.tell(Message::Behind(&place.name, &place.token));
                own.changed().await;
            } else {
                either(own.changed(), others.changed()).await;
            }
        }
    }

    async fn extend(
        &self,
        place: &Arc<LocalToken>,
        lease: &Renewal<'_>,
        proven: &mut Vec<Arc<ManagedSession>>,
    ) -> Result<Option<Renewed>, Fault> {
        let Some(mut link) = place.sent().link.clone() else { return Ok(None) };
        let mut live = link.live().await?;
        if lease_of(live.timeout) < lease.ttl {
            link = self.link(lease.ttl)?;
            live = self.live(&link, lease.ttl).await?;
        }
        let is_proven = proven.iter().any(|other| Arc::ptr_eq(other, &link));
        let answer = match is_proven && !lease.draw {
            true => live.client.data(&place.holder).await.map(|(_, stat)| stat),
            false => live.client.set_data(&place.holder, &data(lease.ttl)).await,
        };
        let stat = match answer {
            Ok(stat) => stat,
            Err(ZooKeeperError::NoNode) => return Ok(None),
            Err(error) => return Err(Fault::of(error)),
        };
        if !is_proven {
            proven.push(link.clone());
        }
        let contended = place.sent().behind;
        if stat.ephemeral_owner == live.id {
            return Ok(Some(Renewed {
                contended,
                fence: lease.draw.then(|| live.fence(stat.mzxid)),
            }));
        }
        let fence = self.move_to(place, &link, &live, lease.ttl).await?;
        Ok(fence.map(|fence| Renewed { contended, fence: lease.draw.then_some(fence) }))
    }

    /// Moves a lock to another session of this process, without a gap in between.
    async fn move_to(
        &self,
        place: &Arc<LocalToken>,
        link: &Arc<ManagedSession>,
        live: &LiveSession,
        ttl: Duration,
    ) -> Result<Option<u64>, Fault> {
        let multi = live.client.multi().delete(&place.holder);
        let multi = multi.create(&place.holder, &data(ttl), CreateMode::Ephemeral);
        let multi = multi.increment_version(&place.directory, None);
        let moved = {
            let mut sent = place.sent();
            if sent.gone {
                return Ok(None);
            }
            sent.link = Some(link.clone());
            live.client.commit(multi)
        };
        match moved.await {
            Ok(results) => match granted(live, &results, false)? {
                Reply::Granted(Granted { fence, .. }) => Ok(Some(fence)),
                _ => Ok(None),
            },
            Err(MultiError::Change(ZooKeeperError::NoNode)) => Ok(None),
            Err(error) => Err(Fault::of(error.error())),
        }
    }

    /// `None` where others were let in meanwhile.
    async fn swap(
        &self,
        old: &LocalToken,
        new: &LocalToken,
        live: &LiveSession,
        ttl: Duration,
    ) -> Result<Option<Reply>, Fault> {
        let version = live.client.data(&new.directory);
        let standing = self.standing(live, &new.directory);
        let version = match version.await {
            Ok((_, stat)) => stat.version,
            Err(ZooKeeperError::NoNode) => return Ok(Some(Reply::NotHeld)),
            Err(error) => return Err(Fault::of(error)),
        };
        let standing = standing.await?;
        let contended = !standing.queue.is_empty();
        if standing.holds(&new.token) {
            let stat = live.client.set_data(&new.holder, &data(ttl)).await;
            let stat = stat.map_err(Fault::of)?;
            let fence = live.fence(stat.mzxid);
            return Ok(Some(Reply::Granted(Granted { fence, contended })));
        }
        if !standing.holds(&old.token) {
            return Ok(Some(Reply::NotHeld));
        }
        let multi = live
            .client
            .multi()
            .increment_version(&new.directory, Some(version))
            .delete(&old.holder)
            .create(&new.holder, &data(ttl), CreateMode::Ephemeral);
        let swapped = {
            if new.is_gone() {
                return Ok(Some(Reply::GivenUp));
            }
            live.client.commit(multi)
        };
        match swapped.await {
            Ok(results) => granted(live, &results, contended).map(Some),
            Err(MultiError::Change(_)) => Ok(None),
            Err(error) => Err(Fault::of(error.error())),
        }
    }
}
