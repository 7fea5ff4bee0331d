//! Renaming of everything in a line, by which the model takes lines that differ in names and times only for one
//! state.
//!
//! The product never calls this. It stands beside the line and not in the model because it changes private fields,
//! and because a new field of the line is more easily forgotten elsewhere. What follows from the names, like the
//! bounds over several readers, is computed again.

use super::batch::{Batch, Stage};
use super::claim::{Claim, RenewalState};
use super::holder::{LocalHolder, Phase};
use super::request::{Kinds, Position, Request};
use super::state::Line;
use crate::clock::Moment;

/// A renaming of everything that is named or timed in a line.
pub trait Relabel<K: Kinds> {
    /// Renames a token.
    fn token(&mut self, token: &mut K::Token);
    /// Renames a caller.
    fn caller(&mut self, caller: &mut K::Caller);
    /// Moves a time.
    fn moment(&mut self, moment: &mut Moment);
    /// Renumbers a ticket or counter value. Fencing tokens are `counter * TOKENS_PER_FENCE + n`.
    fn fence(&mut self, fence: &mut u64);
    /// Renumbers a fencing token; 0 stands for none yet.
    fn fencing_token(&mut self, token: &mut u64);
    /// Renumbers a batch.
    fn number(&mut self, number: &mut u64);
}

/// Renames everything in a line. Callers' numbers in their batches become small ones, so their positions change: ask
/// [`position_of`] again afterwards.
pub fn relabel<K: Kinds>(line: &mut Line<K>, with: &mut impl Relabel<K>) {
    renumber(line);
    for batch in line.batches_mut() {
        with.number(&mut batch.number);
        with.fence(&mut batch.ticket);
        batch.sealed_at.iter_mut().for_each(|at| with.moment(at));
        for waiter in batch.waiters.all_mut() {
            waiter.caller.iter_mut().for_each(|caller| with.caller(caller));
            relabel_request(&mut waiter.request, with);
        }
        relabel_stage(&mut batch.stage, with);
    }
    for aside in &mut line.aside {
        with.number(&mut aside.batch);
        relabel_claim(&mut aside.claim, with);
    }
    for lost in &mut line.lost {
        with.number(&mut lost.batch);
        with.token(&mut lost.token);
        with.moment(&mut lost.deadline);
        lost.free_from.iter_mut().for_each(|at| with.moment(at));
        relabel_holder(&mut lost.holder, with);
    }
}

/// Returns the position of a caller that tries, waits or holds the lock, or has lost its lease and not given it back.
pub fn position_of<K: Kinds>(line: &Line<K>, caller: &K::Caller) -> Option<Position> {
    let holder = |number: u64, claim: &Claim<K>| {
        let holder = claim.holders.iter().find(|holder| holder.caller == *caller)?;
        Some(holder.position(number))
    };
    let in_batch = |batch: &Batch<K>| {
        if let Stage::Leading { leader, .. } = &batch.stage
            && leader.caller.as_ref() == Some(caller)
        {
            return Some(Position { batch: batch.number, at: leader.at });
        }
        let held = batch
            .claims()
            .and_then(|claims| claims.iter().find_map(|claim| holder(batch.number, claim)));
        held.or_else(|| {
            let at = batch.waiters.at_of(caller)?;
            Some(Position { batch: batch.number, at })
        })
    };
    let aside = || line.aside.iter().find_map(|aside| holder(aside.batch, &aside.claim));
    let lost = || {
        let lost = line.lost.iter().find(|lost| lost.holder.caller == *caller)?;
        Some(lost.holder.position(lost.batch))
    };
    line.batches().find_map(in_batch).or_else(aside).or_else(lost)
}

/// Numbers the callers of each batch from 0, in their order.
fn renumber<K: Kinds>(line: &mut Line<K>) {
    let batches: Vec<u64> = line.batches().map(|batch| batch.number).collect();
    for number in batches {
        let lost = line.lost.iter().filter(|lost| lost.batch == number);
        let mut all: Vec<i64> = lost.map(|lost| lost.holder.at).collect();
        let Some(batch) = line.batch_mut(number) else { continue };
        for_each_number(batch, |at| all.push(*at));
        all.sort_unstable();
        all.dedup();
        let small = |at: &mut i64| *at = all.binary_search(at).map_or(*at, |n| n as i64);
        for_each_number(batch, small);
        let (lowest, next) = batch.waiters.ends_mut();
        (*lowest, *next) = (0, all.len() as i64);
        let lost = line.lost.iter_mut().filter(|lost| lost.batch == number);
        lost.for_each(|lost| small(&mut lost.holder.at));
    }
}

/// Visits the number of every caller in a batch.
fn for_each_number<K: Kinds>(batch: &mut Batch<K>, mut visit: impl FnMut(&mut i64)) {
    batch.waiters.all_mut().for_each(|waiter| visit(&mut waiter.at));
    match &mut batch.stage {
        Stage::Leading { leader, .. } => visit(&mut leader.at),
        Stage::Queued(_) => {}
        Stage::Owned(claims) => {
            for claim in claims.iter_mut() {
                claim.holders.all_mut(|holder| visit(&mut holder.at));
            }
        }
    }
}

fn relabel_stage<K: Kinds>(stage: &mut Stage<K>, with: &mut impl Relabel<K>) {
    match stage {
        Stage::Leading { token, leader, .. } => {
            with.token(token);
            leader.caller.iter_mut().for_each(|caller| with.caller(caller));
            relabel_request(&mut leader.request, with);
        }
        Stage::Queued(queued) => {
            with.token(&mut queued.token);
            queued.instead_of.iter_mut().for_each(|token| with.token(token));
            queued.lost.iter_mut().for_each(|token| with.token(token));
            with.moment(&mut queued.look_at);
            queued.taken_until.iter_mut().flatten().for_each(|at| with.moment(at));
        }
        Stage::Owned(claims) => claims.iter_mut().for_each(|claim| relabel_claim(claim, with)),
    }
}

fn relabel_claim<K: Kinds>(claim: &mut Claim<K>, with: &mut impl Relabel<K>) {
    with.token(&mut claim.token);
    claim.exchange.iter_mut().for_each(|token| with.token(token));
    with.fence(&mut claim.fence);
    with.fence(&mut claim.last_fence);
    with.fence(&mut claim.ticket);
    with.fencing_token(&mut claim.issued);
    with.moment(&mut claim.deadline);
    with.moment(&mut claim.confirmed);
    with.moment(&mut claim.joined);
    claim.free_from.iter_mut().for_each(|at| with.moment(at));
    if let RenewalState::Failed { retry_at, .. } = &mut claim.renewal {
        with.moment(retry_at);
    }
    claim.holders.all_mut(|holder| relabel_holder(holder, with));
}

fn relabel_holder<K: Kinds>(holder: &mut LocalHolder<K>, with: &mut impl Relabel<K>) {
    with.caller(&mut holder.caller);
    with.fencing_token(&mut holder.fencing_token);
    relabel_request(&mut holder.request, with);
    with.moment(&mut holder.max);
    with.moment(&mut holder.last);
    holder.free_from.iter_mut().for_each(|at| with.moment(at));
    if let Phase::Offered { until } | Phase::Part { until } = &mut holder.phase {
        with.moment(until);
    }
}

fn relabel_request<K: Kinds>(request: &mut Request, with: &mut impl Relabel<K>) {
    with.moment(&mut request.asked);
    with.moment(&mut request.wait_until);
    with.moment(&mut request.answer_by);
    request.part_until.iter_mut().for_each(|at| with.moment(at));
}
