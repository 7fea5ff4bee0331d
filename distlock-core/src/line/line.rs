//! What a lock is to this process that is held or waited for here.

use std::collections::VecDeque;
use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims};
use super::holder::Holder;
use super::request::{Denied, Freeing, Kinds, Loss, Place};
use super::shell::{Closing, Shell};
use crate::clock::Moment;
use crate::store::Limit;

/// A lock's batches in order of arrival, of which only the last may still be open, and those leases
/// that are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line<K: Kinds> {
    /// `None` only if there is no other either: most lines have one, which needs no list. On the heap,
    /// as a line moves in its map, and a batch in its line.
    first: Option<Box<Batch<K>>>,
    rest: VecDeque<Box<Batch<K>>>,
    /// Taken past the line, by callers that did not wait.
    pub(super) aside: Vec<Aside<K>>,
    /// Lost in the hand of a holder that has not let go.
    pub(super) lost: Vec<Lost<K>>,
}

/// A lease that was taken past the line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aside<K: Kinds> {
    /// In place of a batch's.
    pub number: u64,
    /// What it holds.
    pub claim: Claim<K>,
}

/// A lease that has ended, while its holder does not know or is not done.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lost<K: Kinds> {
    /// The batch it was in.
    pub number: u64,
    /// Which has to be released when the holder lets go.
    pub token: K::Token,
    /// Until when it was ours.
    pub deadline: Moment,
    /// The caller that held it.
    pub holder: Holder<K>,
    /// `min_hold` of others that had the lock by the same token: it is not to be free before this.
    pub free_from: Option<Moment>,
    /// Why it is not ours any more.
    pub loss: Loss,
}

impl<K: Kinds> Default for Line<K> {
    fn default() -> Self {
        Self { first: None, rest: VecDeque::new(), aside: Vec::new(), lost: Vec::new() }
    }
}

impl<K: Kinds> Line<K> {
    /// Nothing is left of it, and it can be forgotten.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.aside.is_empty() && self.lost.is_empty()
    }

    /// No caller here has or wants the lock in turn: the next arrival leads.
    pub fn is_vacant(&self) -> bool {
        self.first.is_none()
    }

    /// When [`run`](Self::run) is to be called next: at once if that is past.
    #[inline]
    pub fn due(&self) -> Moment {
        if self.rest.is_empty() && self.aside.is_empty() {
            return self.first.as_ref().map_or(Moment::NEVER, |first| first.due());
        }
        let batches = self.batches().map(Batch::due);
        let aside = self.aside.iter().map(|aside| aside.claim.due(false));
        batches.chain(aside).min().unwrap_or(Moment::NEVER)
    }

    /// Its batches, the first one in front.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = &Batch<K>> {
        self.first.iter().chain(&self.rest).map(Box::as_ref)
    }

    pub(super) fn batches_mut(&mut self) -> impl Iterator<Item = &mut Batch<K>> {
        self.first.iter_mut().chain(&mut self.rest).map(Box::as_mut)
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Batch<K>> {
        self.first.as_deref_mut()
    }

    pub(super) fn last(&self) -> Option<&Batch<K>> {
        self.rest.back().or(self.first.as_ref()).map(Box::as_ref)
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Batch<K>> {
        self.rest.back_mut().or(self.first.as_mut()).map(Box::as_mut)
    }

    #[inline]
    pub(super) fn push(&mut self, batch: Batch<K>) {
        let batch = Box::new(batch);
        match self.first {
            None => self.first = Some(batch),
            Some(_) => self.rest.push_back(batch),
        }
    }

    pub(super) fn insert_before(&mut self, number: u64, batch: Batch<K>) {
        let batch = Box::new(batch);
        match self.rest.iter().position(|other| other.number == number) {
            Some(index) => self.rest.insert(index, batch),
            None => {
                if let Some(first) = self.first.replace(batch) {
                    self.rest.push_front(first);
                }
            }
        }
    }

    #[inline]
    pub(super) fn numbered(&mut self, number: u64) -> Option<&mut Batch<K>> {
        match &mut self.first {
            Some(first) if first.number == number => Some(first),
            _ => self.rest.iter_mut().map(Box::as_mut).find(|batch| batch.number == number),
        }
    }

    pub(super) fn of_token(&mut self, is: impl Fn(&K::Token) -> bool) -> Option<&mut Batch<K>> {
        self.batches_mut().find(|batch| batch.is_of(&is))
    }

    #[inline]
    pub(super) fn take_out(&mut self, number: u64) -> Option<Box<Batch<K>>> {
        if self.first.as_ref().is_some_and(|first| first.number == number) {
            let next = self.rest.pop_front();
            return std::mem::replace(&mut self.first, next);
        }
        let index = self.rest.iter().position(|batch| batch.number == number)?;
        self.rest.remove(index)
    }

    /// Every claim that owns the lock.
    pub fn claims(&self) -> impl Iterator<Item = &Claim<K>> {
        let in_line = self.batches().filter_map(Batch::claims).flat_map(Claims::iter);
        in_line.chain(self.aside.iter().map(|aside| &aside.claim))
    }

    /// Every lease that is held, with its token.
    pub fn held(&self) -> impl Iterator<Item = (&K::Token, &Holder<K>)> {
        self.claims().flat_map(|claim| claim.holders.iter().map(|holder| (&claim.token, holder)))
    }

    /// R4: whether a call of this process uses this token, or the line will release it in time. A token that
    /// the line does not know is released as soon as the store asks for it.
    pub fn knows(&self, is: impl Fn(&K::Token) -> bool) -> bool {
        let is = &is;
        let or = |token: &Option<K::Token>| token.as_ref().is_some_and(is);
        self.batches().any(|batch| match &batch.stage {
            Stage::Leading { token, .. } => is(token),
            Stage::Queued(queued) => {
                is(&queued.token) || or(&queued.instead_of) || or(&queued.lost)
            }
            Stage::Owned(_) => false,
        }) || self.claims().any(|claim| is(&claim.token) || or(&claim.exchange))
            || self.lost.iter().any(|lost| is(&lost.token))
    }

    #[cfg(feature = "model")]
    /// Every lease that was lost in the hand of a holder that has not let go.
    pub fn lost(&self) -> &[Lost<K>] {
        &self.lost
    }

    /// The claim that is held at a place.
    pub fn claim_at(&self, place: Place) -> Option<&Claim<K>> {
        let batch = self.batches().find(|batch| batch.number == place.batch);
        let in_line = batch.and_then(Batch::claims).into_iter().flat_map(Claims::iter);
        let aside = self.aside.iter().filter(|aside| aside.number == place.batch);
        let held = |claim: &&Claim<K>| claim.holders.get(place.at).is_some();
        in_line.chain(aside.map(|aside| &aside.claim)).find(held)
    }

    #[inline]
    pub(super) fn claim_at_mut(&mut self, place: Place) -> Option<&mut Claim<K>> {
        self.claim_where(place.batch, |claim| claim.holders.get(place.at).is_some())
    }

    /// One of the claims by which a batch owns the lock, or the one that stands for it past the line.
    pub(super) fn claim_in(&mut self, number: u64, index: usize) -> Option<&mut Claim<K>> {
        let Self { first, rest, aside, .. } = self;
        match first.iter_mut().chain(rest).find(|batch| batch.number == number) {
            Some(batch) => batch.claims_mut()?.get_mut(index),
            None if index > 0 => None,
            None => {
                let mut aside = aside.iter_mut();
                aside.find(|aside| aside.number == number).map(|aside| &mut aside.claim)
            }
        }
    }

    #[inline]
    fn claim_where(
        &mut self,
        number: u64,
        is: impl Fn(&Claim<K>) -> bool,
    ) -> Option<&mut Claim<K>> {
        let Self { first, rest, aside, .. } = self;
        let batch = match first {
            Some(first) if first.number == number => Some(first),
            _ => rest.iter_mut().find(|batch| batch.number == number),
        };
        match batch {
            Some(batch) => batch.claims_mut()?.find_mut(is),
            None => {
                let claim = aside.iter_mut().find(|aside| aside.number == number);
                claim.map(|aside| &mut aside.claim).filter(|claim| is(claim))
            }
        }
    }

    /// Where the claim of a token is: in a batch, or in place of one, and which of its claims.
    pub(super) fn find(&self, token: &K::Token) -> Option<(u64, usize)> {
        let is = |claim: &Claim<K>| claim.token == *token;
        let in_line = self.batches().find_map(|batch| {
            let index = batch.claims()?.index_of(is)?;
            Some((batch.number, index))
        });
        in_line.or_else(|| {
            let aside = self.aside.iter().find(|aside| is(&aside.claim))?;
            Some((aside.number, 0))
        })
    }

    /// The claim of a token, in its batch if it is in one.
    pub(super) fn claim_mut(&mut self, token: &K::Token) -> Option<&mut Claim<K>> {
        let (number, index) = self.find(token)?;
        self.claim_in(number, index)
    }

    /// Takes a claim out, and its batch or what stands for one if it has no other.
    pub(super) fn take_claim(&mut self, number: u64, index: usize) -> Option<Claim<K>> {
        let Some(batch) = self.numbered(number) else {
            let at = self.aside.iter().position(|aside| aside.number == number)?;
            return Some(self.aside.swap_remove(at).claim);
        };
        if let Some(claim) = batch.claims_mut()?.take(index) {
            return Some(claim);
        }
        match self.take_out(number)?.stage {
            Stage::Owned(claims) => Some(claims.first),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// The same to have it released. Nothing of it is moved but its token: nearly every lock ends here.
    #[inline]
    pub(super) fn free(
        &mut self,
        number: u64,
        index: usize,
        keep: Option<Duration>,
    ) -> Option<Freeing<K>> {
        let Some(batch) = self.numbered(number) else {
            return self.take_claim(number, index).map(|claim| claim.release(keep));
        };
        if let Some(claim) = batch.claims_mut()?.take(index) {
            return Some(claim.release(keep));
        }
        match self.take_out(number)?.stage {
            Stage::Owned(Claims { first: Claim { token, deadline, .. }, .. }) => {
                Some(Freeing { token, keep, deadline })
            }
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// How many callers wait in it.
    pub fn waiting(&self) -> usize {
        self.batches().map(|batch| batch.waiters.live()).sum()
    }

    /// A caller that has just come to this place stands behind others in a batch that is about one thing at a time:
    /// when the line is due is what it was.
    #[inline]
    pub fn is_crowd(&self, place: Place) -> bool {
        let batch = self.batches().find(|batch| batch.number == place.batch);
        // With the second one the engine takes a try over, and a lease is renewed more often.
        batch.is_some_and(|batch| !batch.limit.is_read() && batch.waiters.live() > 2)
    }

    /// How much is left of the lease of a holder in the line.
    pub fn remaining(&self, now: Moment) -> Option<Duration> {
        let claims = self.batches().filter_map(Batch::claims).flat_map(|claims| claims.iter());
        claims.map(|claim| claim.remaining(now)).find(|left| !left.is_zero())
    }

    /// How long it takes until one more with this limit could hold the lock, as far as those of this
    /// process have it; `None` if it could now.
    pub fn remaining_for(&self, limit: Limit, now: Moment) -> Option<Duration> {
        let claims = || self.claims().filter(|claim| !claim.remaining(now).is_zero());
        if let Some(alone) = claims().find(|claim| claim.limit.is_alone()) {
            return Some(alone.remaining(now));
        }
        let first = claims().map(|claim| claim.remaining(now)).min();
        first.filter(|_| !limit.fits(claims().count()))
    }

    /// Why a caller whose wait is over did not get the lock; `None` if it is not known yet
    /// whether it is taken. If its batch is gone without a reason for the caller, others had their turn.
    pub fn verdict(&self, place: Place, now: Moment) -> Option<Denied<K::Fault>> {
        match self.batches().find(|batch| batch.number == place.batch) {
            Some(batch) => batch.verdict(now),
            None => Some(Denied::Taken(None)),
        }
    }

    /// The caller that has to look at the line in time, where no engine does: the next one to be served.
    pub fn front(&self) -> Option<&K::Seat> {
        self.batches().find_map(|batch| batch.waiters.iter().next()).map(|(seat, _)| seat)
    }

    /// R8: takes a batch out that does not own the lock, and its token out of the store's queue.
    pub(super) fn dissolve<X: Shell<K>>(&mut self, number: u64, shell: &mut X) {
        let Some(batch) = self.take_out(number) else { return };
        let token = match batch.stage {
            Stage::Queued(queued) => {
                if let Some(old) = queued.instead_of {
                    shell.release(old, None);
                }
                queued.token
            }
            Stage::Leading { token, .. } => token,
            Stage::Owned(claims) => {
                return claims.into_all().for_each(|claim| shell.release(claim.token, None));
            }
        };
        shell.release(token, None);
    }
}

impl<K: Kinds> Lost<K> {
    /// `min_hold` of its holder and of others by the same token.
    pub(super) fn kept_until<X: Shell<K>>(&self, shell: &X) -> Option<Moment> {
        self.holder.kept_until(shell).max(self.free_from)
    }

    pub(super) fn release<X: Shell<K>>(&self, now: Moment, shell: &X) -> Freeing<K> {
        let Self { token, deadline, .. } = self;
        let left = self.kept_until(shell).map(|until| until.since(now));
        let keep = left.filter(|left| !left.is_zero());
        Freeing { token: token.clone(), keep, deadline: *deadline }
    }

    pub(super) fn closing<X: Shell<K>>(&self, now: Moment, shell: &X) -> Closing<K> {
        let was_held = self.loss == Loss::Closed;
        Closing::Free { release: self.release(now, shell), was_held }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bench::{Plain, queued};
    use super::*;

    #[test]
    fn batches_leave_a_line_in_any_order() {
        let mut line = Line::<Plain>::default();
        for number in [1, 2, 3] {
            line.push(queued(number));
        }
        assert_eq!(line.take_out(2).map(|batch| batch.number), Some(2));
        assert!(line.take_out(2).is_none());
        assert_eq!(line.take_out(1).map(|batch| batch.number), Some(1));
        assert_eq!(line.first_mut().map(|batch| batch.number), Some(3));
        assert_eq!(line.take_out(3).map(|batch| batch.number), Some(3));
        assert!(line.is_empty());
    }
}
