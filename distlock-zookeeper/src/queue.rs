//! How a lock is waited for; see `acquire`.

use std::future::Future;
use std::sync::Arc;

use crate::acquire::{Ask, Reply, Step, confirm, gone_already};
use crate::client::{Client, Refused, Watcher};
use crate::ensemble::{Inner, Message};
use crate::fault::Fault;
use crate::nodes::Standing;
use crate::places::{Next, Place};
use crate::session::Live;
use crate::wire::{Error, Mode, Stat};

/// Who stands where, and how often somebody was let in so far.
struct Look {
    /// Which one it is of the token's.
    number: u64,
    version: i32,
    standing: Standing,
    added: bool,
    /// What was asked behind it: whether the waiter in front holds the lock by now.
    ahead: Option<Ahead>,
}

/// The node of a holder that was guessed to be there, and what tells of its end if it is.
struct Ahead {
    node: String,
    watched: Result<Watcher, Error>,
}

impl Inner {
    /// Stands in the queue, and takes the lock if it is the first there and fits.
    pub(crate) async fn stand(
        self: &Arc<Self>,
        place: &Arc<Place>,
        live: &Live,
        ask: &Ask<'_>,
    ) -> Result<Step, Fault> {
        if let Some(taken) = self.take_next(place, live, ask) {
            return taken.await;
        }
        let waits = self.waiting.live().await?;
        let Some(look) = self.look(place, &waits, ask).await? else {
            return Ok(self.make(place, live, ask, false).await?.unwrap_or(Step::Again));
        };
        let standing = &look.standing;
        if standing.holds(ask.token) {
            return confirm(place, live, ask, !standing.queue.is_empty()).await;
        }
        let Some(rank) = standing.rank(ask.token) else {
            // It was lost with the session, or is not to be seen at this server yet.
            place.sent().number = None;
            return Ok(Step::Again);
        };
        let number = standing.queue[rank].number;
        place.sent().number = Some(number);
        if rank == 0 && standing.fits(ask.most) {
            return self.take(place, live, ask, look.version, standing).await;
        }
        if ask.is_try {
            return self.give_up(place, &waits, number).await;
        }
        let behind = standing.behind(rank) as u64;
        let added = look.added;
        if !self.wait_behind(place, &waits, look, rank).await? {
            return Ok(Step::Again);
        }
        let (ticket, rank) = (number + 1, rank as u64);
        Ok(Step::Done(Reply::Waits { ticket, rank, behind, added }))
    }

    /// Makes a node in the queue unless it is there, and looks; `None` if the lock is not in use.
    async fn look(
        &self,
        place: &Place,
        waits: &Live,
        ask: &Ask<'_>,
    ) -> Result<Option<Look>, Fault> {
        let known = place.sent().number;
        let at = ask.ticket.checked_sub(1).map(|number| place.waits_at(number));
        let client = &waits.client;
        let (own, asked_for, number, seen, ahead) = {
            let mut sent = place.sent();
            if sent.gone {
                return Err(Fault::other("it was given up"));
            }
            // One whose answer was lost is found by its token.
            let in_doubt = sent.may_wait && sent.number.is_none();
            let stands = known.is_some() || in_doubt;
            let own = (!stands).then(|| stand_in(client, place, at.as_deref()));
            sent.may_wait = true;
            sent.asked_for += u64::from(own.is_some());
            // What was seen before is of no use to a place that is put back.
            (sent.looks, sent.next) = (sent.looks + 1, None);
            let seen = client.children_and_stat(&place.directory);
            let ahead = sent.ahead().map(|node| {
                let watched = client.watch(&format!("{}/{node}", place.directory));
                (node, watched)
            });
            (own, sent.asked_for, sent.looks, seen, ahead)
        };
        let added = match own {
            None => Ok(false),
            Some(own) => own.await.map(|number| {
                place.sent().number = number;
                true
            }),
        };
        let added = if added == Err(Error::NodeExists) { Ok(false) } else { added };
        let seen = match added {
            Ok(added) => seen.await.map(|(children, stat)| (added, Standing::of(children), stat)),
            Err(error) => Err(error),
        };
        let (added, standing, Stat { version, .. }) = match seen {
            Ok(seen) => seen,
            Err(Error::NoNode) => {
                place.sent().stood_nowhere(asked_for);
                return Ok(None);
            }
            Err(error) => return Err(Fault::of(error)),
        };
        if known.is_none() && !standing.holds(ask.token) && standing.rank(ask.token).is_none() {
            // What was in doubt did not happen.
            place.sent().stood_nowhere(asked_for);
        }
        let ahead = match ahead {
            Some((node, watched)) => Some(Ahead { node, watched: watched.await }),
            None => None,
        };
        Ok(Some(Look { number, version, standing, added, ahead }))
    }

    /// A try that has failed leaves nothing, unless the token waits by now.
    async fn give_up(&self, place: &Place, waits: &Live, number: u64) -> Result<Step, Fault> {
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
        Ok(Step::Done(Reply::Waits { ticket, rank, behind, added: false }))
    }

    /// Has the token told when those are gone that it waits for; false if one is already.
    async fn wait_behind(
        self: &Arc<Self>,
        place: &Arc<Place>,
        waits: &Live,
        look: Look,
        rank: usize,
    ) -> Result<bool, Fault> {
        let Look { number, version, standing, mut ahead, .. } = look;
        let in_front: Vec<_> = match rank {
            0 => standing.holders.into_iter().map(|holder| holder.node).collect(),
            rank => vec![standing.queue[rank - 1].node.clone()],
        };
        {
            let mut sent = place.sent();
            if sent.looks == number {
                let next = |holder: &String| Next {
                    look: number,
                    version,
                    holder: holder.clone(),
                    is_gone: false,
                };
                sent.next = (rank == 0 && in_front.len() == 1).then(|| next(&in_front[0]));
                let front = rank.checked_sub(1).map(|at| standing.queue[at].clone());
                sent.in_front = front.filter(|front| place.alone && !front.reads);
            }
        }
        for node in in_front {
            let guessed = ahead.take_if(|ahead| ahead.node == node).map(|ahead| ahead.watched);
            if !self.watch(place, waits, node, number, guessed).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Has the token told when a node is gone; false if it is already.
    async fn watch(
        self: &Arc<Self>,
        place: &Arc<Place>,
        waits: &Live,
        node: String,
        look: u64,
        asked: Option<Result<Watcher, Error>>,
    ) -> Result<bool, Fault> {
        if place.sent().watched.contains(&node) {
            return Ok(true);
        }
        let asked = match asked {
            Some(asked) => asked,
            None => waits.client.watch(&format!("{}/{node}", place.directory)).await,
        };
        let watcher = match asked {
            Ok(watcher) => watcher,
            Err(Error::NoNode) => {
                place.sent().is_gone(&node, look);
                return Ok(false);
            }
            Err(error) => return Err(Fault::of(error)),
        };
        // Not before: whoever waits for that answer may be dropped.
        place.sent().watched.insert(node.clone());
        let (inner, place) = (self.clone(), place.clone());
        self.handle.spawn(async move {
            let is_gone = watcher.changed().await;
            let is_given_up = {
                let mut sent = place.sent();
                sent.watched.remove(&node);
                if is_gone {
                    sent.is_gone(&node, look);
                }
                sent.gone
            };
            if !is_given_up {
                inner.tell(Message::Room(&place.name, &place.token));
            }
        });
        Ok(true)
    }
}

/// Makes the token's node in the queue; its number, or none of one whose number was known. A place that is put back
/// counts up the version, so that whoever stood behind it does not take the lock without having seen it.
fn stand_in(
    client: &Client,
    place: &Place,
    at: Option<&str>,
) -> impl Future<Output = Result<Option<u64>, Error>> + Send + use<> {
    let made = match at {
        None => Ok(client.create(&place.waiter, &[], Mode::EphemeralSequential)),
        Some(path) => {
            let multi = client.multi().create(path, &[], Mode::Ephemeral);
            Err(client.commit(multi.count_up(&place.directory, None)))
        }
    };
    let number = at.and_then(number_of);
    async move {
        match made {
            Ok(made) => made.await.map(|path| number_of(&path)),
            Err(put_back) => put_back.await.map(|_| number).map_err(Refused::error),
        }
    }
}

fn number_of(path: &str) -> Option<u64> {
    path.rsplit('-').next()?.parse().ok()
}
