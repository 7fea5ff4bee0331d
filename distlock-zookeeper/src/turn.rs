//! How the first of a queue takes the lock; see `acquire`.

use std::future::Future;

use crate::acquire::{Ask, Granted, Reply, Step, data, granted};
use crate::client::Refused;
use crate::ensemble::Inner;
use crate::fault::Fault;
use crate::nodes::Standing;
use crate::places::{Place, Sent};
use crate::session::Live;
use crate::wire::{Mode, Stat};

impl Inner {
    /// Exchanges the node in the queue for one of a holder, unless somebody was let in since it was looked.
    pub(crate) async fn take(
        &self,
        place: &Place,
        live: &Live,
        ask: &Ask<'_>,
        version: i32,
        standing: &Standing,
    ) -> Result<Step, Fault> {
        let taken = {
            let sent = place.sent();
            if sent.gone {
                return Ok(Step::Done(Reply::GivenUp));
            }
            let number = standing.queue[0].number;
            exchange(place, &sent, live, ask, version, number)
        };
        let reply = taken_with(place, live, taken.await, standing.holders.len())?;
        Ok(if standing.queue.len() > 1 { contended(reply) } else { reply })
    }

    /// The same without a look, where the only holder that the last one saw is gone; `None` where that is not so.
    pub(crate) fn take_next<'a>(
        &self,
        place: &'a Place,
        live: &'a Live,
        ask: &Ask<'_>,
    ) -> Option<impl Future<Output = Result<Step, Fault>> + Send + use<'a>> {
        let mut sent = place.sent();
        let version = sent.turn().filter(|_| !sent.gone)?;
        let taken = exchange(place, &sent, live, ask, version, sent.number?);
        Some(async move { taken_with(place, live, taken.await, 0) })
    }
}

/// Others were seen behind.
fn contended(step: Step) -> Step {
    match step {
        Step::Done(Reply::Granted(granted)) => {
            Step::Done(Reply::Granted(Granted { contended: true, ..granted }))
        }
        step => step,
    }
}

/// Sends it while what was sent for the token is locked: nothing of it is behind the token's release, and no place was
/// put back since that version was read.
fn exchange(
    place: &Place,
    _sent: &Sent,
    live: &Live,
    ask: &Ask<'_>,
    version: i32,
    number: u64,
) -> impl Future<Output = Result<Vec<Stat>, Refused>> + Send + use<> {
    let multi = live
        .client
        .multi()
        .count_up(&place.directory, Some(version))
        .delete(&place.waits_at(number))
        .create(&place.holder, &data(ask.ttl), Mode::Ephemeral);
    live.client.commit(multi)
}

/// What the exchange comes to beside so many holders.
fn taken_with(
    place: &Place,
    live: &Live,
    taken: Result<Vec<Stat>, Refused>,
    holders: usize,
) -> Result<Step, Fault> {
    match taken {
        Ok(results) => {
            place.sent().stands_nowhere();
            // Counted when its own node was still in the queue.
            let nodes =
                results.last().map_or(0, |stat| usize::try_from(stat.children).unwrap_or(0));
            Ok(Step::Done(granted(live, &results, nodes > holders + 1)?))
        }
        Err(Refused::Change(_)) => Ok(Step::Again),
        Err(error) => Err(Fault::of(error.error())),
    }
}
