//! How calls come into a lock's line, and leave it without the lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::batch::{Batch, Line, Queued, RESERVATION, Stage};
use super::claim::Claim;
use super::lead::Lead;
use super::lines::{Lines, Name, numbered, take_out};
use super::table::{Effects, LockTable, lock};
use super::waiter::{Denied, Place, Waiter, Wish};
use crate::name::{LockName, StoredName};
use crate::store::Fault;

/// What a call finds that wants a lock.
pub(crate) enum Arrival {
    /// No other call of this process has or wants it: try.
    Lead(Lead),
    /// Others are in front of it.
    Wait(Place),
    /// Others are in front of it, but it does not want to wait: try without a place in the line.
    Alone(Arc<Claim>),
    /// This process has it, and the call does not want to wait.
    Busy(Option<Duration>),
}

impl LockTable {
    /// A call wants the lock. It waits for it unless `line_ends` calls here do already.
    pub(crate) fn arrive(
        self: &Arc<Self>,
        lock: &Arc<LockName>,
        wish: Wish,
        line_ends: usize,
    ) -> Arrival {
        let mut effects = Effects::default();
        let arrival = {
            let mut lines = self.lines(lock.stored());
            let Some(line) = lines.get_mut(lock.stored()) else {
                let claim = self.new_claim_at(lock, RESERVATION, wish.asked);
                let number = self.number();
                let batch = Batch::new(number, claim.clone(), Stage::Leading(wish));
                lines.insert(Name(lock.clone()), Line::new(batch));
                return Arrival::Lead(Lead::new(self.clone(), claim, number));
            };
            if line_ends == 0 {
                self.pass_by(line, lock)
            } else if line_ends < usize::MAX && line.waiting() >= line_ends {
                Arrival::Busy(self.remaining(line))
            } else {
                let waiter = self.join(line, lock, wish, &mut effects);
                Arrival::Wait(Place::new(self.clone(), lock.clone(), waiter))
            }
        };
        effects.carry_out(self, lock);
        arrival
    }

    fn join(
        &self,
        line: &mut Line,
        lock: &Arc<LockName>,
        wish: Wish,
        effects: &mut Effects,
    ) -> Arc<Waiter> {
        let now = self.clock.now();
        if !line.last().admits(now) {
            let queued = Stage::Queued(Queued::new(None));
            line.push(Batch::new(self.number(), self.new_claim(lock, RESERVATION), queued));
            effects.poll();
        }
        let last = line.last();
        self.take_over(last, effects);
        let waiter = Waiter::new(wish, last.number);
        last.push_back(waiter.clone());
        if let Stage::Owned = last.stage
            && !last.claim.has_local_waiters()
        {
            // So that the lease is young when it is handed on.
            last.claim.set_local_waiters(true);
            if let Some(holder) = last.claim.holder() {
                last.claim.hasten(holder.due_at(), self.timers());
            }
        }
        waiter
    }

    /// More than one call depends on a batch's try, so the engine sees to it from now on: the leader's
    /// future may not be polled any more.
    pub(super) fn take_over(&self, batch: &mut Batch, effects: &mut Effects) {
        let Stage::Leading(leaders) = batch.stage else { return };
        let leader = Waiter::new(leaders, batch.number);
        batch.push_back(leader.clone());
        self.leaders().insert(batch.number, leader);
        batch.stage = Stage::Queued(Queued::new(None));
        effects.poll();
    }

    /// What a call finds that does not wait.
    fn pass_by(&self, line: &mut Line, lock: &Arc<LockName>) -> Arrival {
        match self.remaining(line) {
            Some(remaining) => Arrival::Busy(Some(remaining)),
            None if self.remote => Arrival::Alone(self.new_claim(lock, RESERVATION)),
            None => Arrival::Busy(None),
        }
    }

    /// How much is left of the lease that this process has.
    fn remaining(&self, line: &mut Line) -> Option<Duration> {
        let now = self.clock.now();
        let mut owned = line.batches().filter(|batch| batch.is_owned());
        owned.find_map(|batch| {
            let remaining = match batch.claim.holder() {
                Some(holder) => holder.remaining(),
                None => batch.claim.deadline().since(now),
            };
            (!remaining.is_zero()).then_some(remaining)
        })
    }

    /// A call left the line before it was granted anything.
    pub(super) fn left(self: &Arc<Self>, lock: &Arc<LockName>, waiter: &Waiter) {
        let number = waiter.batch.load(Ordering::Acquire);
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            let Some(batch) = numbered(&mut lines, lock.stored(), number) else { return };
            let is_empty = batch.left();
            if !self.remote {
                self.wake_next(batch, &mut effects);
            }
            if is_empty {
                match &mut batch.stage {
                    Stage::Queued(_) => {
                        self.dissolve(&mut lines, lock.stored(), number, &mut effects)
                    }
                    Stage::Owned => batch.claim.set_local_waiters(false),
                    Stage::Leading(_) => {}
                }
            }
        }
        effects.carry_out(self, lock);
    }

    /// Takes a batch out that does not own the lock, and its claim out of the store's queue.
    pub(super) fn dissolve(
        &self,
        lines: &mut Lines,
        stored: &StoredName,
        number: u64,
        effects: &mut Effects,
    ) {
        let Some(batch) = take_out(lines, stored, number) else { return };
        if let Stage::Queued(queued) = batch.stage {
            if let Some(slot) = queued.slot {
                self.timers().remove(slot);
            }
            if let Some(old) = queued.instead_of {
                effects.leave(old);
            }
        }
        effects.leave(batch.claim.owner.clone());
    }

    /// A call that did not take its grant in time waits for it again, in front of the others.
    pub(super) fn rejoin(self: &Arc<Self>, lock: &Arc<LockName>, waiter: &Arc<Waiter>) {
        let mut effects = Effects::default();
        {
            let mut lines = self.lines(lock.stored());
            if self.is_closed() {
                drop(waiter.deny(Denied::Fault(Fault::closed())));
                return;
            }
            let line = lines.entry(Name(lock.clone())).or_insert_with(|| {
                effects.poll();
                // It went on to others.
                let queued = Queued { taken_until: Some(None), ..*Queued::new(None) };
                let queued = Stage::Queued(Box::new(queued));
                Line::new(Batch::new(self.number(), self.new_claim(lock, RESERVATION), queued))
            });
            let first = line.first();
            self.take_over(first, &mut effects);
            waiter.batch.store(first.number, Ordering::Release);
            first.push_front(waiter.clone());
            first.claim.set_local_waiters(true);
        }
        effects.carry_out(self, lock);
    }

    /// Why a call whose wait is over did not get the lock; `None` if it is not known yet whether it is
    /// taken. A waiter whose batch is gone has been told why by then, or others had their turn.
    pub(super) fn verdict(&self, lock: &LockName, waiter: &Waiter) -> Option<Denied> {
        let now = self.clock.now();
        let mut lines = self.lines(lock.stored());
        let number = waiter.batch.load(Ordering::Acquire);
        match numbered(&mut lines, lock.stored(), number) {
            Some(batch) => batch.verdict(now),
            None => Some(Denied::Taken(None)),
        }
    }

    /// Every lock for which this process stands in the store's queue; each is to be polled.
    pub(super) fn queued_locks(&self) -> Vec<Arc<LockName>> {
        let mut queued_locks = Vec::new();
        for shard in &self.shards {
            for (name, line) in lock(shard).iter_mut() {
                let mut any = false;
                for batch in line.batches() {
                    if let Stage::Queued(queued) = &mut batch.stage {
                        (queued.hint, any) = (true, true);
                    }
                }
                if any {
                    queued_locks.push(name.0.clone());
                }
            }
        }
        queued_locks
    }
}
