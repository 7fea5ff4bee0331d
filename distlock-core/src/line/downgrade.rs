//! A holder that has the lock alone goes on as a reader, and only readers can get the lock in between.
//!
//! The store exchanges the owner token. Until it has answered, either of the two may own the lock, so the
//! claim is neither renewed nor handed on.

use std::time::Duration;

use super::acquire::issue;
use super::claim::deadline_of;
use super::{
    Batch, Claim, Exchanged, Grant, Holder, Kinds, Limit, Line, Loss, Place, RESERVATION, Renewal,
    Request, Shell, Stage,
};
use crate::clock::Moment;
use crate::store::Term;
use crate::store::term::padded;

/// A token that is to be exchanged at the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Exchange<K: Kinds> {
    /// Has the lock alone.
    pub old: K::Token,
    /// Is to have it with others that read.
    pub new: K::Token,
    /// On these terms.
    pub term: Term,
}

impl<K: Kinds> Line<K> {
    /// What to ask of the store for a holder that wants to go on as a reader; the same when it is asked
    /// again. `None` if it does not hold the lock alone (any more).
    pub fn downgrade<X: Shell<K>>(
        &mut self,
        place: Place,
        now: Moment,
        shell: &mut X,
    ) -> Option<Exchange<K>> {
        let claim = self.claim_at_mut(place).filter(|claim| claim.limit.is_alone())?;
        let holder = claim.holders.get(place.at)?;
        let request = Request { limit: Limit::READ, term: holder.left(now), ..holder.request };
        let term = request.stored_term(shell.needs_renewal());
        let old = claim.token.clone();
        let new = claim.exchange.get_or_insert_with(|| {
            let (token, _) = issue(RESERVATION, Limit::READ, now, shell);
            token
        });
        Some(Exchange { old, new: new.clone(), term })
    }

    /// The store has answered. Waiters behind the holder ask from their places now. `None` if the lease
    /// is lost.
    pub fn exchanged<X: Shell<K>>(
        &mut self,
        place: Place,
        exchange: &Exchange<K>,
        answer: Exchanged,
        now: Moment,
        shell: &mut X,
    ) -> Option<(Place, Grant)> {
        let Exchanged::Granted { fence, sent, contended } = answer else {
            self.taken_away(&exchange.old, Loss::Taken, now, shell);
            return None;
        };
        let is_it = |claim: &&mut Claim<K>| claim.exchange.as_ref() == Some(&exchange.new);
        let claim = self.claim_at_mut(place).filter(is_it)?;
        let ticket = claim.ticket;
        let grant = claim.goes_on(place.at, exchange, (fence, sent), shell.needs_renewal())?;
        let place = self.make_room(place, ticket, contended, now, shell).unwrap_or(place);
        // The first in the queue may be a reader as well, and would not be notified.
        if !shell.is_notified() {
            self.look();
        }
        Some((place, grant))
    }

    /// A batch reads from now on. Its waiters keep a batch and their place: then it is another one.
    fn make_room<X: Shell<K>>(
        &mut self,
        place: Place,
        ticket: u64,
        contended: bool,
        now: Moment,
        shell: &mut X,
    ) -> Option<Place> {
        let batch = self.numbered(place.batch)?;
        if contended {
            batch.seal(now);
        }
        batch.room = 0;
        if batch.waiters.next(now, shell).is_none() {
            (batch.limit, batch.ticket) = (Limit::READ, 0);
            return None;
        }
        let (number, claims) = (shell.number(), batch.claims()?.clone());
        batch.reenter(ticket, now, shell);
        let readers = Batch::new(number, Limit::READ, Stage::Owned(claims));
        self.insert_before(place.batch, Batch { sealed_at: Some(now), ..readers });
        Some(Place { batch: number, ..place })
    }
}

impl<K: Kinds> Claim<K> {
    /// It goes on under the new token, with which others may have the lock as well.
    fn goes_on(
        &mut self,
        at: i64,
        exchange: &Exchange<K>,
        (fence, sent): (u64, Moment),
        needs_renewal: bool,
    ) -> Option<Grant> {
        self.token = exchange.new.clone();
        self.limit = Limit::READ;
        self.exchange = None;
        (self.fence, self.ticket) = (self.fence.max(fence), fence);
        self.last_fence = self.last_fence.max(fence);
        // What the old token had is gone, also if it was longer.
        self.deadline = deadline_of(sent, &exchange.term, needs_renewal);
        (self.confirmed, self.term) = (sent, exchange.term);
        self.renewal = Renewal::Idle;
        let fencing_token = self.issue()?;
        let end = self.deadline;
        self.holders.change(at, |holder| {
            holder.request.limit = Limit::READ;
            holder.fencing_token = fencing_token;
            holder.grant(end)
        })
    }
}

impl<K: Kinds> Holder<K> {
    /// What is left of its terms.
    fn left(&self, now: Moment) -> Term {
        let term = self.request.term;
        let ttl = match term.renewed {
            true => self.capped(term.ttl, now),
            false => padded(self.last.since(now)).min(term.ttl),
        };
        let kept = self.free_from.map(|free_from| free_from.since(now));
        let min_hold = kept.filter(|kept| *kept > Duration::ZERO);
        Term { ttl, max_hold: None, min_hold, ..term }
    }
}
