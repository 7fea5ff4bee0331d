//! R10: renewals, and what is due: leases that ran out, grants that are not taken, looks.

use std::time::Duration;

use super::claim::Claim;
use super::{Kinds, Line, Loss, Owned, Phase, Place, Renew, Renewal, Shell};
use crate::clock::Moment;
use crate::store::term::SHORTEST_TTL;

/// What is to be done about a claim that is due.
enum Tend {
    Nothing,
    Renew(Duration),
    /// No caller holds it, and it has run out.
    GiveUp,
    /// The lease at the number has run out.
    Expire(i64),
    /// The grant at the number may not have been taken.
    Offered(i64),
    /// The lease at the number was kept for others that did not come.
    Abandon(i64),
}

impl<K: Kinds> Line<K> {
    /// Does what is due (see [`due`](Self::due)). To be called where commands are sent, so that what
    /// comes later is sent later.
    pub fn run<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let batches = self.batches().map(|batch| batch.number);
        let numbers: Vec<u64> =
            batches.chain(self.aside.iter().map(|aside| aside.number)).collect();
        numbers.into_iter().for_each(|number| self.run_one(number, now, shell));
    }

    fn run_one<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let mut claims = 1;
        if let Some(batch) = self.numbered(number) {
            if batch.queued().is_some_and(|queued| queued.due() <= now) {
                return self.look_for(number, now, shell);
            }
            claims = batch.claims().map_or(0, super::Claims::count);
        }
        // From the last one on: those behind one that goes move up.
        for index in (0..claims).rev() {
            while self.tend(number, index, now, shell) {}
        }
    }

    /// Does one thing that is due of a claim; false if nothing is.
    fn tend<X: Shell<K>>(&mut self, number: u64, index: usize, now: Moment, shell: &mut X) -> bool {
        let crowded = self.numbered(number).is_some_and(|batch| batch.is_crowded());
        let Some(claim) = self.claim_in(number, index) else { return false };
        let place = |at| Place { batch: number, at };
        match claim.tend(crowded, now) {
            Tend::Nothing => return false,
            Tend::Renew(ttl) => claim.renew(ttl, shell),
            Tend::GiveUp => self.give_up(number, index, now, shell),
            Tend::Expire(at) => self.lose(place(at), None, now, shell),
            Tend::Offered(at) => self.pass_over(place(at), now, shell),
            Tend::Abandon(at) => {
                self.lose(place(at), Some(Loss::Abandoned), now, shell);
                self.end_unused(place(at), now, shell);
            }
        }
        true
    }

    /// R5: a caller does not take its lease: the next one gets it.
    fn pass_over<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) {
        let Some(claim) = self.claim_at_mut(place) else { return };
        let taken_back = claim.holders.change(place.at, |holder| {
            let taken_back = shell.take_back(&holder.seat);
            if !taken_back {
                holder.taken();
            }
            taken_back
        });
        if taken_back == Some(true) {
            self.end_unused(place, now, shell);
        }
    }

    /// R10: the store has answered a renewal that was sent at `sent`.
    pub fn renewed<X: Shell<K>>(
        &mut self,
        renew: &Renew<K>,
        sent: Moment,
        answer: Result<Owned, K::Fault>,
        now: Moment,
        shell: &mut X,
    ) {
        let Some((number, index)) = self.find(&renew.token) else { return };
        let Some(claim) = self.claim_in(number, index) else { return };
        match answer {
            // It may have been exchanged by then.
            Ok(Owned::No) if claim.exchange.is_some() => claim.renewal = Renewal::Idle,
            Ok(Owned::No) => self.taken_away(&renew.token, Loss::Taken, now, shell),
            Err(_) => {
                let retry_at = claim.retry_at(now);
                claim.renewal = Renewal::Failed { retry_at, draw: renew.draw };
            }
            Ok(Owned::Yes { contended, fence }) => {
                claim.renewal = Renewal::Idle;
                claim.renewed(sent, renew.ttl);
                if let Some(last) = fence {
                    claim.drawn(last, shell.fences_per_draw());
                }
                claim.tell_deadlines(shell);
                // What was under way may have been for less than the next holder wants.
                let awaited = claim.awaited.take_if(|awaited| *awaited <= renew.ttl);
                let Some(batch) = self.numbered(number) else { return };
                if contended {
                    batch.seal(now);
                }
                if awaited.is_some() {
                    self.grant_next(number, index, renew.ttl, now, shell);
                }
            }
        }
    }
}

impl<K: Kinds> Claim<K> {
    fn tend(&mut self, crowded: bool, now: Moment) -> Tend {
        if !self.is_held() && now >= self.deadline {
            return Tend::GiveUp;
        }
        let end = self.deadline;
        if let Some(holder) = self.holders.due(end, now) {
            return match holder.phase {
                _ if now >= holder.deadline(end) => Tend::Expire(holder.at),
                Phase::Offered { .. } => Tend::Offered(holder.at),
                Phase::Part { .. } => Tend::Abandon(holder.at),
                Phase::InUse => Tend::Nothing,
            };
        }
        if self.renewal_at(crowded) > now {
            return Tend::Nothing;
        }
        match self.renewal(now) {
            Some(ttl) => Tend::Renew(ttl),
            // Never shorter than it is: this draws a counter value and extends nothing.
            None if self.needs_fence() => Tend::Renew(SHORTEST_TTL),
            // The caller that wanted it has gone.
            None => {
                self.holders.look();
                Tend::Nothing
            }
        }
    }

    /// R10, R5: asks for more time, and for a counter value if those under the present one run short.
    fn renew<X: Shell<K>>(&mut self, ttl: Duration, shell: &mut X) {
        let draw = self.draws();
        self.renewal = Renewal::Sent { draw };
        let Self { token, last_fence: fence, deadline, .. } = self;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        shell.renew(Renew { token, ttl, draw, fence, deadline });
    }
}
