//! For the model: two lines that differ in names and in when they were begun only are one state.

use super::batch::{Batch, Stage};
use super::claim::{Claim, Renewal};
use super::holder::{Holder, Phase};
use super::line::Line;
use super::request::{Kinds, Place, Request};
use crate::clock::Moment;

/// Gives everything that is named or timed in a line another name or time.
pub trait Relabel<K: Kinds> {
    /// Every token.
    fn token(&mut self, token: &mut K::Token);
    /// Every seat.
    fn seat(&mut self, seat: &mut K::Seat);
    /// Every time.
    fn moment(&mut self, moment: &mut Moment);
    /// Every ticket and counter value; fencing tokens are `counter * TOKENS_PER_FENCE + n`.
    fn fence(&mut self, fence: &mut u64);
    /// Every fencing token; 0 for none yet.
    fn fencing_token(&mut self, token: &mut u64);
    /// The number of every batch.
    fn number(&mut self, number: &mut u64);
}

impl<K: Kinds> Line<K> {
    /// Visits all names and times. Callers' numbers in their batches become small ones: ask
    /// [`place_of`](Self::place_of) again afterwards.
    pub fn relabel(&mut self, with: &mut impl Relabel<K>) {
        self.renumber();
        for batch in self.batches_mut() {
            with.number(&mut batch.number);
            with.fence(&mut batch.ticket);
            batch.sealed_at.iter_mut().for_each(|at| with.moment(at));
            for waiting in batch.waiters.all_mut() {
                waiting.seat.iter_mut().for_each(|seat| with.seat(seat));
                relabel_request(&mut waiting.request, with);
            }
            match &mut batch.stage {
                Stage::Leading { token, leader, .. } => {
                    with.token(token);
                    leader.seat.iter_mut().for_each(|seat| with.seat(seat));
                    relabel_request(&mut leader.request, with);
                }
                Stage::Queued(queued) => {
                    with.token(&mut queued.token);
                    queued.instead_of.iter_mut().for_each(|token| with.token(token));
                    queued.lost.iter_mut().for_each(|token| with.token(token));
                    with.moment(&mut queued.look_at);
                    queued.taken_until.iter_mut().flatten().for_each(|at| with.moment(at));
                }
                Stage::Owned(claims) => claims.iter_mut().for_each(|claim| claim.relabel(with)),
            }
        }
        for aside in &mut self.aside {
            with.number(&mut aside.number);
            aside.claim.relabel(with);
        }
        for lost in &mut self.lost {
            with.number(&mut lost.number);
            with.token(&mut lost.token);
            with.moment(&mut lost.deadline);
            lost.free_from.iter_mut().for_each(|at| with.moment(at));
            lost.holder.relabel(with);
        }
    }

    /// The place of a caller that waits, tries or holds here, or has lost its lease.
    pub fn place_of(&self, seat: &K::Seat) -> Option<Place> {
        let holder = |number: u64, claim: &Claim<K>| {
            let holder = claim.holders.iter().find(|holder| holder.seat == *seat)?;
            Some(holder.place(number))
        };
        let in_batch = |batch: &Batch<K>| {
            if let Stage::Leading { leader, .. } = &batch.stage
                && leader.seat.as_ref() == Some(seat)
            {
                return Some(Place { batch: batch.number, at: leader.at });
            }
            let held = batch
                .claims()
                .and_then(|claims| claims.iter().find_map(|claim| holder(batch.number, claim)));
            held.or_else(|| {
                let at = batch.waiters.at_of(seat)?;
                Some(Place { batch: batch.number, at })
            })
        };
        let aside = || self.aside.iter().find_map(|aside| holder(aside.number, &aside.claim));
        let lost = || {
            let lost = self.lost.iter().find(|lost| lost.holder.seat == *seat)?;
            Some(lost.holder.place(lost.number))
        };
        self.batches().find_map(in_batch).or_else(aside).or_else(lost)
    }

    /// Callers' numbers, in their order, from 0.
    fn renumber(&mut self) {
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        for number in numbers {
            let Self { lost, .. } = self;
            let mut lost: Vec<i64> = lost
                .iter()
                .filter(|lost| lost.number == number)
                .map(|lost| lost.holder.at)
                .collect();
            let Some(batch) = self.numbered(number) else { continue };
            lost.extend(batch.numbers());
            lost.sort_unstable();
            lost.dedup();
            let small = |at: &mut i64| *at = lost.binary_search(at).map_or(*at, |n| n as i64);
            batch.renumber(&small);
            let (lowest, next) = batch.waiters.ends_mut();
            (*lowest, *next) = (0, lost.len() as i64);
            let gone = self.lost.iter_mut().filter(|lost| lost.number == number);
            gone.for_each(|lost| small(&mut lost.holder.at));
        }
    }
}

impl<K: Kinds> Batch<K> {
    fn numbers(&mut self) -> Vec<i64> {
        let mut numbers: Vec<i64> = self.waiters.all_mut().map(|waiting| waiting.at).collect();
        match &self.stage {
            Stage::Leading { leader, .. } => numbers.push(leader.at),
            Stage::Queued(_) => {}
            Stage::Owned(claims) => {
                let holders = claims.iter().flat_map(|claim| claim.holders.iter());
                numbers.extend(holders.map(|holder| holder.at));
            }
        }
        numbers
    }

    fn renumber(&mut self, small: &impl Fn(&mut i64)) {
        self.waiters.all_mut().for_each(|waiting| small(&mut waiting.at));
        match &mut self.stage {
            Stage::Leading { leader, .. } => small(&mut leader.at),
            Stage::Queued(_) => {}
            Stage::Owned(claims) => {
                for claim in claims.iter_mut() {
                    claim.holders.all_mut(|holder| small(&mut holder.at));
                }
            }
        }
    }
}

impl<K: Kinds> Claim<K> {
    fn relabel(&mut self, with: &mut impl Relabel<K>) {
        with.token(&mut self.token);
        self.exchange.iter_mut().for_each(|token| with.token(token));
        with.fence(&mut self.fence);
        with.fence(&mut self.last_fence);
        with.fence(&mut self.ticket);
        with.fencing_token(&mut self.issued);
        with.moment(&mut self.deadline);
        with.moment(&mut self.confirmed);
        with.moment(&mut self.joined);
        self.free_from.iter_mut().for_each(|at| with.moment(at));
        if let Renewal::Failed { retry_at, .. } = &mut self.renewal {
            with.moment(retry_at);
        }
        self.holders.all_mut(|holder| holder.relabel(with));
    }
}

impl<K: Kinds> Holder<K> {
    fn relabel(&mut self, with: &mut impl Relabel<K>) {
        with.seat(&mut self.seat);
        with.fencing_token(&mut self.fencing_token);
        relabel_request(&mut self.request, with);
        with.moment(&mut self.max);
        with.moment(&mut self.last);
        self.free_from.iter_mut().for_each(|at| with.moment(at));
        if let Phase::Offered { until } | Phase::Part { until } = &mut self.phase {
            with.moment(until);
        }
    }
}

fn relabel_request<K: Kinds>(request: &mut Request, with: &mut impl Relabel<K>) {
    with.moment(&mut request.asked);
    with.moment(&mut request.wait_until);
    with.moment(&mut request.answer_by);
    request.part_until.iter_mut().for_each(|at| with.moment(at));
}
