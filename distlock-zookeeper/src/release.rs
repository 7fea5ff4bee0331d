//! How a lock is given back, and a place in its queue.

use std::time::{Duration, Instant};

use crate::acquire::gone_already;
use crate::client::MultiError;
use crate::ensemble::{Ensemble, Inner};
use crate::fault::Fault;
use crate::nodes::LockChildren;
use crate::session::LiveSession;
use crate::waiters::LocalToken;
use crate::wire::ZooKeeperError;

/// After that a release that was given up is gone on with: of a token that waits, or whose lease has no known end.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// The lock was the token's.
    pub was_held: bool,
    /// It is kept, and others wait for it.
    pub awaited: bool,
}

impl Ensemble {
    /// Frees a lock, or keeps it for so long; takes the token out of the queue. Idempotent. Nothing that was
    /// sent for the token can still take effect when it is answered.
    ///
    /// # Errors
    ///
    /// Where the servers could not be asked.
    pub async fn release(
        &self,
        name: &str,
        token: &str,
        keep: Option<Duration>,
    ) -> Result<Freed, Fault> {
        let Some(place) = self.inner.places.get(token) else {
            return self.inner.free_stray(name, token).await;
        };
        self.inner.places.leave(&place, Instant::now() + GIVEN_UP);
        match keep {
            Some(keep) => self.inner.keep(&place, keep).await,
            None => {
                let was_held = self.inner.free(&place).await?;
                Ok(Freed { was_held, awaited: false })
            }
        }
    }
}

impl Inner {
    /// Removes all nodes of a token; whether it held the lock.
    pub(crate) async fn free(&self, place: &LocalToken) -> Result<bool, Fault> {
        let (link, may_wait, number, behind) = {
            let mut sent = place.sent();
            sent.gone = true;
            (sent.link.clone(), sent.may_wait, sent.number, sent.behind)
        };
        // Before the holder's node: an exchange of the two that is still on its way, in whatever session, comes to
        // nothing once the one in the queue is gone. The other way round it could make the holder's node in between.
        if may_wait {
            let waits = self.waiting.live().await?;
            self.leave(place, &waits, number).await?;
        }
        let was_held = match link {
            Some(link) => free_held(place, &link.live().await?, behind).await?,
            None => false,
        };
        self.places.forget(place);
        Ok(was_held)
    }

    /// Removes the nodes in the queue.
    async fn leave(
        &self,
        place: &LocalToken,
        waits: &LiveSession,
        number: Option<i32>,
    ) -> Result<(), Fault> {
        if let Some(number) = number {
            let left = waits.client.delete(&place.waits_at(number)).await;
            return left.or_else(gone_already).map_err(Fault::of);
        }
        let standing = self.standing(waits, &place.directory).await?;
        for waiter in standing.queue.iter().filter(|waiter| waiter.token == place.token) {
            let path = format!("{}/{}", place.directory, waiter.node);
            let left = waits.client.delete(&path).await;
            left.or_else(gone_already).map_err(Fault::of)?;
        }
        Ok(())
    }

    /// Removes the nodes of a token of another process, or of one that was given back before.
    async fn free_stray(&self, name: &str, token: &str) -> Result<Freed, Fault> {
        let directory = self.directory(name)?;
        let live = self.waiting.live().await?;
        let standing = self.standing(&live, &directory).await?;
        let mut was_held = false;
        for holder in standing.holders.iter().filter(|holder| holder.token == token) {
            match live.client.delete(&format!("{directory}/{}", holder.node)).await {
                Ok(()) => was_held = true,
                Err(error) => gone_already(error).map_err(Fault::of)?,
            }
        }
        for waiter in standing.queue.iter().filter(|waiter| waiter.token == token) {
            let left = live.client.delete(&format!("{directory}/{}", waiter.node)).await;
            left.or_else(gone_already).map_err(Fault::of)?;
        }
        Ok(Freed { was_held, awaited: false })
    }

    /// Keeps a lock that its last holder is done with.
    async fn keep(&self, place: &LocalToken, keep: Duration) -> Result<Freed, Fault> {
        let sent = Instant::now();
        let live = self.waiting.live().await?;
        let (may_wait, number) = {
            let sent = place.sent();
            (sent.may_wait, sent.number)
        };
        if may_wait {
            self.leave(place, &live, number).await?;
        }
        let standing = self.standing(&live, &place.directory).await?;
        let was_held = standing.holds(&place.token);
        let awaited = was_held && !standing.queue.is_empty();
        match was_held {
            // Where others wait it is released a little earlier.
            true => {
                let spare = Duration::from_millis(if awaited { 100 } else { 0 });
                self.places.keep_last(place, sent + keep + spare);
            }
            false => self.places.forget(place),
        }
        Ok(Freed { was_held, awaited })
    }

    /// The current holders and waiters.
    pub(crate) async fn standing(
        &self,
        live: &LiveSession,
        directory: &str,
    ) -> Result<LockChildren, Fault> {
        let synced = live.client.sync(&self.shared.root);
        let children = live.client.children(directory);
        synced.await.map_err(Fault::of)?;
        match children.await {
            Ok(children) => Ok(LockChildren::of(children)),
            Err(ZooKeeperError::NoNode) => Ok(LockChildren::default()),
            Err(error) => Err(Fault::of(error)),
        }
    }
}

/// Removes a holder's node, and with it the lock's where no other use of it is seen.
async fn free_held(place: &LocalToken, live: &LiveSession, behind: bool) -> Result<bool, Fault> {
    if place.alone && !behind {
        let multi = live.client.multi().delete(&place.holder).delete(&place.directory);
        match live.client.commit(multi).await {
            Ok(_) => return Ok(true),
            Err(MultiError::Change(ZooKeeperError::NoNode)) => {
                return Ok(false);
            }
            // Others wait.
            Err(MultiError::Change(ZooKeeperError::NotEmpty)) => {}
            Err(error) => return Err(Fault::of(error.error())),
        }
    }
    match live.client.delete(&place.holder).await {
        Ok(()) => Ok(true),
        Err(ZooKeeperError::NoNode) => Ok(false),
        Err(error) => Err(Fault::of(error)),
    }
}
