//! The state of one lock in one process, and the queries on it.

use std::collections::VecDeque;
use std::time::Duration;

use super::batch::{Batch, Stage};
use super::claim::{Claim, Claims};
use super::holder::LocalHolder;
use super::request::{Denied, Freeing, Kinds, Loss, Position};
use super::shell::{Closing, Shell};
use crate::clock::Moment;
use crate::store::Limit;

/// The callers of one process that wait for one lock or hold it, and their tokens.
///
/// - Batches stand in order of arrival. A caller that arrives joins the last one, or for permits one of the last, as
///   many as there are permits (R1). So no caller overtakes another one that waits here (I7).
/// - Each token is in the line from its issue until its release is left to the shell or to the caller (I3). Only the
///   token of an attempt outside the line is its caller's alone until it is granted.
/// - The line does nothing by itself. Its user calls [`run`](Self::run) when it is [`due`](Self::due).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line<K: Kinds> {
    /// The first batch. `None` only if there is no other. Most lines have one batch, which needs no list. It is
    /// boxed because a line moves within its map, and a batch within its line.
    first: Option<Box<Batch<K>>>,
    /// The batches behind the first one.
    rest: VecDeque<Box<Batch<K>>>,
    /// The leases of callers that did not wait and took the lock outside the line.
    pub(super) aside: Vec<Aside<K>>,
    /// The lost leases that their holders have not given back.
    pub(super) lost: Vec<LostLease<K>>,
}

/// A lease that was taken outside the line, by a caller that did not wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aside<K: Kinds> {
    /// A number like that of a batch, which names this lease in a position.
    pub batch: u64,
    /// The claim of the lease.
    pub claim: Claim<K>,
}

/// A lease that was lost, until its holder gives it back. Its token is released then, by the last such holder (R10).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LostLease<K: Kinds> {
    /// The number of the batch that the lease was in.
    pub batch: u64,
    /// The token to be released when its last holder gives the lease back.
    pub token: K::Token,
    /// The end of the lease.
    pub deadline: Moment,
    /// The holder that lost it.
    pub holder: LocalHolder<K>,
    /// The end of the longest `min_hold` of other holders by the same token.
    pub free_from: Option<Moment>,
    /// The reason for the loss.
    pub loss: Loss,
}

impl<K: Kinds> Default for Line<K> {
    fn default() -> Self {
        Self { first: None, rest: VecDeque::new(), aside: Vec::new(), lost: Vec::new() }
    }
}

impl<K: Kinds> Line<K> {
    /// Returns whether nothing is left in the line, so that it can be dropped.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.aside.is_empty() && self.lost.is_empty()
    }

    /// Returns whether the line has no batch: the next caller that arrives leads (R1).
    pub fn is_vacant(&self) -> bool {
        self.first.is_none()
    }

    /// Returns when to call [`run`](Self::run) next: at once if that moment has passed.
    #[inline]
    pub fn due(&self) -> Moment {
        if self.rest.is_empty() && self.aside.is_empty() {
            return self.first.as_ref().map_or(Moment::NEVER, |first| first.due());
        }
        let batches = self.batches().map(Batch::due);
        let aside = self.aside.iter().map(|aside| aside.claim.due(false));
        batches.chain(aside).min().unwrap_or(Moment::NEVER)
    }

    /// Returns the batches, the first one first.
    pub fn batches(&self) -> impl DoubleEndedIterator<Item = &Batch<K>> {
        self.first.iter().chain(&self.rest).map(Box::as_ref)
    }

    /// Returns the batches, the first one first.
    pub(super) fn batches_mut(&mut self) -> impl Iterator<Item = &mut Batch<K>> {
        self.first.iter_mut().chain(&mut self.rest).map(Box::as_mut)
    }

    /// Returns the first batch.
    pub(super) fn first_mut(&mut self) -> Option<&mut Batch<K>> {
        self.first.as_deref_mut()
    }

    /// Returns the last batch.
    pub(super) fn last(&self) -> Option<&Batch<K>> {
        self.rest.back().or(self.first.as_ref()).map(Box::as_ref)
    }

    /// Returns the last batch.
    pub(super) fn last_mut(&mut self) -> Option<&mut Batch<K>> {
        self.rest.back_mut().or(self.first.as_mut()).map(Box::as_mut)
    }

    /// Adds a batch behind all others.
    #[inline]
    pub(super) fn push(&mut self, batch: Batch<K>) {
        let batch = Box::new(batch);
        match self.first {
            None => self.first = Some(batch),
            Some(_) => self.rest.push_back(batch),
        }
    }

    /// Adds a batch before the one with this number, which is in the line.
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

    /// Returns the batch with this number.
    #[inline]
    pub(super) fn batch_mut(&mut self, number: u64) -> Option<&mut Batch<K>> {
        match &mut self.first {
            Some(first) if first.number == number => Some(first),
            _ => self.rest.iter_mut().map(Box::as_mut).find(|batch| batch.number == number),
        }
    }

    /// Returns the batch that asks for the lock or owns it with a token for which `is` holds.
    pub(super) fn batch_of_token(
        &mut self,
        is: impl Fn(&K::Token) -> bool,
    ) -> Option<&mut Batch<K>> {
        self.batches_mut().find(|batch| batch.is_of(&is))
    }

    /// Removes the batch with this number.
    #[inline]
    pub(super) fn remove_batch(&mut self, number: u64) -> Option<Box<Batch<K>>> {
        if self.first.as_ref().is_some_and(|first| first.number == number) {
            let next = self.rest.pop_front();
            return std::mem::replace(&mut self.first, next);
        }
        let index = self.rest.iter().position(|batch| batch.number == number)?;
        self.rest.remove(index)
    }

    /// Returns every claim that owns the lock.
    pub fn claims(&self) -> impl Iterator<Item = &Claim<K>> {
        let in_line = self.batches().filter_map(Batch::claims).flat_map(Claims::iter);
        in_line.chain(self.aside.iter().map(|aside| &aside.claim))
    }

    /// Returns every holder, with the token by which it holds the lock.
    pub fn held(&self) -> impl Iterator<Item = (&K::Token, &LocalHolder<K>)> {
        self.claims().flat_map(|claim| claim.holders.iter().map(|holder| (&claim.token, holder)))
    }

    /// Returns whether the line uses a token for which `is` holds, or will release it (R4). A token that no line knows
    /// is released as soon as the store sends a hint for it.
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

    /// Returns the lost leases that their holders have not given back.
    pub fn lost(&self) -> &[LostLease<K>] {
        &self.lost
    }

    /// Returns the claim by which the caller at a position holds the lock.
    pub fn claim_at(&self, position: Position) -> Option<&Claim<K>> {
        let batch = self.batches().find(|batch| batch.number == position.batch);
        let in_line = batch.and_then(Batch::claims).into_iter().flat_map(Claims::iter);
        let aside = self.aside.iter().filter(|aside| aside.batch == position.batch);
        let held = |claim: &&Claim<K>| claim.holders.get(position.at).is_some();
        in_line.chain(aside.map(|aside| &aside.claim)).find(held)
    }

    /// Returns the claim by which the caller at a position holds the lock.
    #[inline]
    pub(super) fn claim_at_mut(&mut self, position: Position) -> Option<&mut Claim<K>> {
        self.claim_where(position.batch, |claim| claim.holders.get(position.at).is_some())
    }

    /// Returns the claim at an index of a batch, or that of a lease outside the line, which has index 0.
    pub(super) fn claim_in(&mut self, number: u64, index: usize) -> Option<&mut Claim<K>> {
        let Self { first, rest, aside, .. } = self;
        match first.iter_mut().chain(rest).find(|batch| batch.number == number) {
            Some(batch) => batch.claims_mut()?.get_mut(index),
            None if index > 0 => None,
            None => {
                let mut aside = aside.iter_mut();
                aside.find(|aside| aside.batch == number).map(|aside| &mut aside.claim)
            }
        }
    }

    /// Returns the claim of a batch, or of a lease outside the line, for which `is` holds.
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
                let claim = aside.iter_mut().find(|aside| aside.batch == number);
                claim.map(|aside| &mut aside.claim).filter(|claim| is(claim))
            }
        }
    }

    /// Finds the claim of a token: the number of its batch, and the index in it, for
    /// [`claim_in`](Self::claim_in).
    pub(super) fn find(&self, token: &K::Token) -> Option<(u64, usize)> {
        let is = |claim: &Claim<K>| claim.token == *token;
        let in_line = self.batches().find_map(|batch| {
            let index = batch.claims()?.index_of(is)?;
            Some((batch.number, index))
        });
        in_line.or_else(|| {
            let aside = self.aside.iter().find(|aside| is(&aside.claim))?;
            Some((aside.batch, 0))
        })
    }

    /// Returns the claim of a token.
    pub(super) fn claim_mut(&mut self, token: &K::Token) -> Option<&mut Claim<K>> {
        let (number, index) = self.find(token)?;
        self.claim_in(number, index)
    }

    /// Removes a claim, and its batch if it has no other.
    pub(super) fn take_claim(&mut self, number: u64, index: usize) -> Option<Claim<K>> {
        let Some(batch) = self.batch_mut(number) else {
            let at = self.aside.iter().position(|aside| aside.batch == number)?;
            return Some(self.aside.swap_remove(at).claim);
        };
        if let Some(claim) = batch.claims_mut()?.take(index) {
            return Some(claim);
        }
        match self.remove_batch(number)?.stage {
            Stage::Owned(claims) => Some(claims.first),
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// Removes a claim like [`take_claim`](Self::take_claim), and returns its token as one to be released. Nearly every
    /// lock ends here, so the rest of the claim is dropped in place: it is large to move.
    #[inline]
    pub(super) fn free(
        &mut self,
        number: u64,
        index: usize,
        keep: Option<Duration>,
    ) -> Option<Freeing<K>> {
        let Some(batch) = self.batch_mut(number) else {
            return self.take_claim(number, index).map(|claim| claim.release(keep));
        };
        if let Some(claim) = batch.claims_mut()?.take(index) {
            return Some(claim.release(keep));
        }
        match self.remove_batch(number)?.stage {
            Stage::Owned(Claims { first: Claim { token, deadline, .. }, .. }) => {
                Some(Freeing { token, keep, deadline })
            }
            Stage::Leading { .. } | Stage::Queued(_) => None,
        }
    }

    /// Returns how many callers wait in the line.
    pub fn waiting(&self) -> usize {
        self.batches().map(|batch| batch.waiters.live()).sum()
    }

    /// Returns whether the caller that has just arrived at this position changes nothing else: several waited in its
    /// batch before, so the line is due when it was.
    #[inline]
    pub fn is_crowd(&self, position: Position) -> bool {
        let batch = self.batches().find(|batch| batch.number == position.batch);
        // The first waiter makes a difference: the engine takes an attempt over, and a lease is renewed more often.
        batch.is_some_and(|batch| !batch.limit.is_read() && batch.waiters.live() > 2)
    }

    /// Returns how long a lease in the line still lasts.
    pub fn remaining(&self, now: Moment) -> Option<Duration> {
        let claims = self.batches().filter_map(Batch::claims).flat_map(|claims| claims.iter());
        claims.map(|claim| claim.remaining(now)).find(|left| !left.is_zero())
    }

    /// Returns how long the holders of this process keep out one more caller with this limit, or `None` if they do
    /// not.
    pub fn remaining_for(&self, limit: Limit, now: Moment) -> Option<Duration> {
        let claims = || self.claims().filter(|claim| !claim.remaining(now).is_zero());
        if let Some(alone) = claims().find(|claim| claim.limit.is_alone()) {
            return Some(alone.remaining(now));
        }
        let first = claims().map(|claim| claim.remaining(now)).min();
        first.filter(|_| !limit.fits(claims().count()))
    }

    /// Returns the reason why a caller whose wait is over did not get the lock, or `None` if it is not known yet
    /// whether the lock is taken. If the caller's batch is gone without a reason, others had their turn.
    pub fn verdict(&self, position: Position, now: Moment) -> Option<Denied<K::Fault>> {
        match self.batches().find(|batch| batch.number == position.batch) {
            Some(batch) => batch.verdict(now),
            None => Some(Denied::Taken(None)),
        }
    }

    /// Returns the next caller to be served. Without an engine, that caller has to run the line when it is due.
    pub fn front(&self) -> Option<&K::Caller> {
        self.batches().find_map(|batch| batch.waiters.iter().next()).map(|(caller, _)| caller)
    }

    /// Removes a batch and releases its tokens (R8).
    pub(super) fn dissolve<X: Shell<K>>(&mut self, number: u64, shell: &mut X) {
        let Some(batch) = self.remove_batch(number) else { return };
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

impl<K: Kinds> LostLease<K> {
    /// Returns the end of the longest `min_hold` of this token's holders.
    pub(super) fn kept_until<X: Shell<K>>(&self, shell: &X) -> Option<Moment> {
        self.holder.kept_until(shell).max(self.free_from)
    }

    /// Returns the token as one to be released.
    pub(super) fn release<X: Shell<K>>(&self, now: Moment, shell: &X) -> Freeing<K> {
        let Self { token, deadline, .. } = self;
        let left = self.kept_until(shell).map(|until| until.since(now));
        let keep = left.filter(|left| !left.is_zero());
        Freeing { token: token.clone(), keep, deadline: *deadline }
    }

    /// Returns the end of this lease when its manager is closed.
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
        assert_eq!(line.remove_batch(2).map(|batch| batch.number), Some(2));
        assert!(line.remove_batch(2).is_none());
        assert_eq!(line.remove_batch(1).map(|batch| batch.number), Some(1));
        assert_eq!(line.first_mut().map(|batch| batch.number), Some(3));
        assert_eq!(line.remove_batch(3).map(|batch| batch.number), Some(3));
        assert!(line.is_empty());
    }
}
