//! Arriving, the fast path, and answers of `acquire`: R1, R2, R3, R12, R13.

use super::{Batch, Holder, Stage, Turn, Waiter};
use crate::mutants::Mutant;
use crate::network::Command;
use crate::server::Acquired;
use crate::token::Token;

impl Turn<'_> {
    /// R1. Several keys begin with fast paths for all of them when the process knows none of them.
    pub(crate) fn call(&mut self, waiter: Waiter) {
        let keys = self.ask(waiter).keys.clone();
        let unknown = |key: &u8| self.process.keys[usize::from(*key)].batches.is_empty();
        if keys.len() > 1 && keys.iter().all(unknown) {
            for key in keys {
                self.arrive(key, waiter);
            }
        } else {
            self.arrive(keys[0], waiter);
        }
    }

    /// R1, one key.
    pub(crate) fn arrive(&mut self, key: u8, waiter: Waiter) {
        let patient = self.ask(waiter).patient;
        let lenient = self.cfg.is(Mutant::OwnedAdmits);
        let take_over = self.cfg.take_over;
        let Some(last) = self.batches(key).last_mut() else {
            return self.begin(key, waiter);
        };
        let room = !last.is_owned() || last.room > 0;
        let admits = !last.sealed || (last.grace > 0 && room) || lenient;
        if !patient {
            return;
        }
        if admits {
            if last.sealed && last.is_owned() {
                last.room = last.room.saturating_sub(1);
            }
            last.waiters.push(waiter);
            let leads = last.stage == Stage::Trying;
            let token = last.token;
            if leads && take_over {
                last.stage = Stage::Entering;
                last.waiters.iter_mut().for_each(|first| first.epoch = waiter.epoch);
                self.look(key, token);
            }
            return;
        }
        let place = self.batches(key).len();
        let (token, batch) = self.batch_of(vec![waiter], 0, false);
        self.batches(key).insert(place, batch);
        self.look(key, token);
    }

    /// A batch on its way in; the caller sends its `acquire`.
    fn batch_of(&mut self, waiters: Vec<Waiter>, ticket: u16, sealed: bool) -> (Token, Batch) {
        let token = self.token(self.cfg.claim);
        let stage = Stage::Entering;
        let (grace, room, suspect, unsent) = (0, 0, 0, false);
        (token, Batch { token, ticket, sealed, grace, room, suspect, waiters, stage, unsent })
    }

    /// No batch of this key yet: R2, or `acquire` where there is no fast path.
    fn begin(&mut self, key: u8, waiter: Waiter) {
        let (token, mut batch) = self.batch_of(vec![waiter], 0, false);
        let fast = self.cfg.fast_path;
        if fast {
            batch.stage = Stage::Trying;
            batch.unsent = self.cfg.take_over;
        }
        self.batches(key).push(batch);
        if !fast {
            self.look(key, token);
        } else if !self.cfg.take_over {
            let epoch = waiter.epoch;
            self.send_fast_path(key, token, epoch);
        }
    }

    /// Its place in the order of arrivals counts from here.
    pub(crate) fn send_fast_path(&mut self, key: u8, token: Token, epoch: u16) {
        let Some(batch) = self.batch(key, token) else { return };
        batch.unsent = false;
        batch.waiters.iter_mut().take(1).for_each(|waiter| waiter.epoch = epoch);
        let waiters = batch.waiters.clone();
        let (ttl, seen) = (self.ttl_of(&waiters), self.process.seen);
        self.send(Command::Take { key, token, ttl, seen });
    }

    /// Back in with the old place, at the old index (R6).
    pub(super) fn reenter(&mut self, key: u8, index: usize, batch: Batch) {
        let lost = self.cfg.is(Mutant::ReentryForgetsTicket);
        let ticket = match batch.lease() {
            _ if lost => 0,
            Some(lease) if batch.ticket == 0 => lease.fence,
            _ => batch.ticket,
        };
        let (token, mut again) = self.batch_of(batch.waiters, ticket, batch.sealed);
        for waiter in &mut again.waiters {
            waiter.tried = false;
        }
        self.batches(key).insert(index, again);
        self.look(key, token);
    }

    /// R2's answer.
    pub(super) fn on_taken(
        &mut self,
        key: u8,
        token: Token,
        taken: bool,
        fence: u16,
        seen: u16,
        age: u8,
    ) {
        if taken {
            let low = self.cfg.server_time && fence <= seen && !self.cfg.is(Mutant::NoFenceFloor);
            self.see(fence);
            let Some(batch) = self.batch(key, token) else { return };
            if batch.is_owned() {
                return;
            }
            if low {
                return self.start_over(key, token);
            }
            return self.own(key, token, fence, false, age);
        }
        let believes = self.cfg.is(Mutant::NilMeansBusy);
        let Some(batch) = self.batch(key, token) else { return };
        if batch.is_owned() && !believes {
            return;
        }
        let entering = batch.stage != Stage::Trying;
        let asks = &self.cfg.asks;
        let index = self.index(key, token).unwrap_or_default();
        let state = &mut self.process.keys[usize::from(key)];
        state.batches[index].waiters.retain(|waiter| asks[usize::from(waiter.ask)].patient);
        if believes && state.batches[index].waiters.is_empty() {
            // "Held elsewhere", so there is nothing to give back.
            state.batches.remove(index);
            return;
        }
        if state.batches[index].waiters.is_empty() {
            let batch = state.batches.remove(index);
            if entering {
                self.give_back(key, batch.token, batch.suspect, 0);
            }
            return;
        }
        if self.is_later_of_several(key, token) && !self.cfg.is(Mutant::KeepsLaterKeys) {
            let batch = state_of(self, key, index);
            batch.waiters.remove(0);
            if batch.waiters.is_empty() {
                self.batches(key).remove(index);
                return;
            }
        }
        if !entering {
            state_of(self, key, index).stage = Stage::Entering;
            self.look(key, token);
        }
    }

    /// A fast path for a later key of several, while the first one is not held: it goes back.
    pub(super) fn is_later_of_several(&self, key: u8, token: Token) -> bool {
        let Some(batch) = self.process.batch(key, token) else { return false };
        let Some(waiter) = batch.waiters.first() else { return false };
        let keys = &self.ask(*waiter).keys;
        keys.len() > 1 && keys[0] != key && !self.holds_part(keys[0])
    }

    pub(super) fn holds_part(&self, key: u8) -> bool {
        let batches = &self.process.keys[usize::from(key)].batches;
        batches
            .iter()
            .any(|batch| batch.lease().is_some_and(|lease| matches!(lease.holder, Holder::Part(_))))
    }

    /// R2: data was lost under a live connection. Release, raise, and in again.
    fn start_over(&mut self, key: u8, token: Token) {
        let Some(index) = self.index(key, token) else { return };
        let batch = self.batches(key).remove(index);
        self.give_back(key, token, batch.suspect, 0);
        self.raise();
        self.reenter(key, index, batch);
    }

    /// R3.
    pub(super) fn on_acquired(&mut self, key: u8, token: Token, answer: Acquired, age: u8) {
        match answer {
            Acquired::Granted { fence, contended } => {
                self.see(fence);
                self.on_granted(key, token, fence, contended, age);
            }
            Acquired::Queued { ticket, pttl, rank, behind, added } => {
                let mode_n = self.cfg.mode_n;
                let hears = self.process.subscribed;
                let hasty = self.cfg.is(Mutant::AnyZeroIsLapse);
                let zero_is_lost = !self.cfg.is(Mutant::OwnedIgnoresZero);
                let Some(batch) = self.batch(key, token) else { return };
                if batch.is_owned() && zero_is_lost {
                    // Asked after it was granted: somebody else has the lock.
                    return self.lose(key, token);
                }
                if batch.is_owned() {
                    if batch.lease().is_some_and(|lease| lease.awaits.is_some()) {
                        self.lose(key, token);
                    }
                    return;
                }
                batch.ticket = ticket;
                if hears || mode_n {
                    batch.waiters.iter_mut().for_each(|waiter| waiter.exempt = false);
                }
                let lapsed = (added || hasty) && matches!(batch.stage, Stage::Queued { .. });
                batch.stage = Stage::Queued { look: 0, outside: 0 };
                if behind {
                    self.seal(key, token);
                }
                if lapsed {
                    return self.swap_token(key, token, true);
                }
                let keeps = self.cfg.is(Mutant::KeepsMode);
                if mode_n && !keeps && token.deaf == self.process.hears {
                    return self.swap_token(key, token, false);
                }
                let look = self.look_in(token, pttl, rank);
                if let Some(batch) = self.batch(key, token) {
                    batch.stage = Stage::Queued { look, outside: 0 };
                }
            }
            Acquired::Stale => {
                if self.batch(key, token).is_some_and(|batch| !batch.is_owned()) {
                    self.look(key, token);
                }
            }
        }
    }

    /// R11.
    fn look_in(&self, token: Token, pttl: u8, rank: u8) -> u8 {
        if !self.process.hears {
            return 1;
        }
        let holder = if rank == 0 { pttl } else { pttl.saturating_add(token.claim) };
        holder.min(self.cfg.look).max(1)
    }

    fn on_granted(&mut self, key: u8, token: Token, fence: u16, contended: bool, age: u8) {
        let full = self.full(key, token);
        let keeps = self.cfg.is(Mutant::SecondGrantKeepsFence);
        let Some(batch) = self.batch(key, token) else { return };
        let Some(lease) = batch.lease_mut() else {
            return self.own(key, token, fence, contended, age);
        };
        lease.contact = lease.contact.min(age);
        if lease.awaits == Some(super::Awaited::Fence) {
            lease.awaits = None;
            lease.next_fence = fence;
            lease.deadline = lease.deadline.max(full.saturating_sub(age));
            if contended {
                self.seal(key, token);
            }
            return self.hand_over(key, token);
        }
        if !keeps {
            lease.next_fence = lease.next_fence.max(fence);
        }
        if contended {
            self.seal(key, token);
        }
    }

    /// Under another token with the same ticket: a claim lapsed (R12), or the process can or cannot
    /// hear any more (R13). In before out: the other order loses the place, or a fresh grant.
    pub(super) fn swap_token(&mut self, key: u8, token: Token, lapsed: bool) {
        let claim = match (lapsed, self.cfg.is(Mutant::ClaimNeverGrows)) {
            (true, false) => (token.claim * 2).min(self.cfg.claim * 4),
            _ => token.claim,
        };
        let out_first = self.cfg.is(Mutant::SwapsOutFirst);
        let new = self.token(claim);
        let Some(batch) = self.batch(key, token) else { return };
        batch.token = new;
        batch.stage = Stage::Entering;
        let suspect = std::mem::take(&mut batch.suspect);
        if out_first {
            self.give_back(key, token, suspect, 0);
            self.look(key, new);
        } else {
            self.look(key, new);
            self.give_back(key, token, suspect, 0);
        }
    }
}

fn state_of<'a>(turn: &'a mut Turn<'_>, key: u8, index: usize) -> &'a mut Batch {
    &mut turn.process.keys[usize::from(key)].batches[index]
}
