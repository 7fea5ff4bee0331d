//! R10: renewals, and what is due: leases that ran out, grants that nobody takes, looks.

use std::time::Duration;

use super::claim::Claim;
use super::{Holders, Kinds, Line, Loss, Owned, Phase, Place, Renew, Renewal, Shell};
use crate::clock::Moment;
use crate::limits::SHORTEST_TTL;

/// What is to be done about a claim that is due.
enum Tend {
    Nothing,
    Renew(Duration),
    /// Nobody holds it, and it has run out.
    GiveUp,
    /// The lease at the place has run out.
    Expire(Place),
    /// The grant at the place may not have been taken.
    Offered(Place),
    /// The lease at the place was kept for others that did not come.
    Abandon(Place),
}

impl<K: Kinds> Line<K> {
    /// Does what is due (see [`due`](Self::due)). To be called where commands are sent, so that what
    /// comes later is sent later.
    pub fn run<X: Shell<K>>(&mut self, now: Moment, shell: &mut X) {
        let numbers: Vec<u64> = self.batches().map(|batch| batch.number).collect();
        numbers.into_iter().for_each(|number| self.run_batch(number, now, shell));
        let aside: Vec<u64> = self.aside.iter().map(|aside| aside.number).collect();
        for number in aside {
            let Some(aside) = self.aside.iter_mut().find(|aside| aside.number == number) else {
                continue;
            };
            let tend = aside.claim.tend(number, false, now);
            if let Tend::Renew(ttl) = tend {
                aside.claim.renew(ttl, shell);
            }
            self.carry_out(number, tend, now, shell);
        }
    }

    fn run_batch<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let Some(batch) = self.numbered(number) else { return };
        if batch.queued().is_some_and(|queued| queued.due() <= now) {
            return self.look_for(number, now, shell);
        }
        let crowded = batch.is_crowded();
        let Some(claims) = batch.claims_mut() else { return };
        let claim = claims.first_mut();
        let tend = claim.tend(number, crowded, now);
        if let Tend::Renew(ttl) = tend {
            claim.renew(ttl, shell);
        }
        self.carry_out(number, tend, now, shell);
    }

    fn carry_out<X: Shell<K>>(&mut self, number: u64, tend: Tend, now: Moment, shell: &mut X) {
        match tend {
            Tend::Nothing | Tend::Renew(_) => {}
            Tend::GiveUp => self.give_up(number, now, shell),
            Tend::Expire(place) => self.lose(place, None, now, shell),
            Tend::Offered(place) => self.pass_over(place, now, shell),
            Tend::Abandon(place) => {
                self.lose(place, Some(Loss::Abandoned), now, shell);
                self.let_go(place, now, shell);
            }
        }
    }

    /// R5: a lease lies with somebody that does not take it: the next one gets it.
    fn pass_over<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) {
        let Some(holder) = self.claim_at_mut(place).and_then(Claim::holder_mut) else { return };
        if shell.take_back(&holder.seat) {
            self.let_go(place, now, shell);
        } else {
            holder.taken();
        }
    }

    /// Nobody holds the claim, and it ran out, or was taken away, before it was renewed for the next
    /// one.
    fn give_up<X: Shell<K>>(&mut self, number: u64, now: Moment, shell: &mut X) {
        let Some(batch) = self.numbered(number) else { return };
        if batch.waiters.next(now).is_some() && !shell.is_closed() {
            batch.swap(now, shell);
        } else {
            self.dissolve(number, shell);
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
        let Some(claim) = self.claim_mut(&renew.token) else { return };
        match answer {
            Ok(Owned::No) => self.taken_away(&renew.token, Loss::Taken, now, shell),
            Err(_) => {
                let retry_at = claim.retry_at(now);
                claim.renewal = Renewal::Failed { retry_at, draw: renew.draw };
            }
            Ok(Owned::Yes { contended, fence }) => {
                claim.renewal = Renewal::Idle;
                claim.renewed(sent, renew.ttl, fence);
                let end = claim.deadline;
                let waits = match &claim.holders {
                    Holders::One(holder) => {
                        shell.extended(&holder.seat, holder.deadline(end));
                        false
                    }
                    // What was under way may have been for less than the next holder wants.
                    Holders::Awaits(wanted) => *wanted <= renew.ttl,
                };
                let Some(batch) = self.of_token(|token| *token == renew.token) else { return };
                if contended {
                    batch.seal(now);
                }
                let number = batch.number;
                if waits {
                    self.grant_next(number, renew.ttl, now, shell);
                }
            }
        }
    }

    /// The store says that the lock is not the token's any more. Nothing if it is not known here.
    pub fn taken_away<X: Shell<K>>(
        &mut self,
        token: &K::Token,
        loss: Loss,
        now: Moment,
        shell: &mut X,
    ) {
        let number = match self.of_token(|own| own == token) {
            Some(batch) => batch.number,
            None => match self.aside.iter().find(|aside| aside.claim.token == *token) {
                Some(aside) => aside.number,
                None => return,
            },
        };
        let Some(claim) = self.claim_mut(token) else { return };
        match claim.holder().map(|holder| holder.place(number)) {
            Some(place) => self.lose(place, Some(loss), now, shell),
            // Bytes of it may still run where a connection died: it is released behind the re-entry.
            None => self.give_up(number, now, shell),
        }
    }

    /// The caller at a place finds its lease over before the engine does. True if it has lost it.
    pub fn expire<X: Shell<K>>(&mut self, place: Place, now: Moment, shell: &mut X) -> bool {
        match self.claim_at(place) {
            Some(claim) if now < claim.ends_at() => false,
            Some(_) => {
                self.lose(place, None, now, shell);
                true
            }
            None => true,
        }
    }
}

impl<K: Kinds> Claim<K> {
    fn tend(&self, number: u64, crowded: bool, now: Moment) -> Tend {
        let renewal = self.renewal_at(crowded) <= now;
        let Some(holder) = self.holder() else {
            let Holders::Awaits(ttl) = self.holders else { return Tend::Nothing };
            return match renewal {
                _ if now >= self.deadline => Tend::GiveUp,
                true => Tend::Renew(ttl),
                false => Tend::Nothing,
            };
        };
        let place = holder.place(number);
        match holder.phase {
            _ if now >= self.ends_at() => Tend::Expire(place),
            Phase::Offered { until } if now >= until => Tend::Offered(place),
            Phase::Part { until } if now >= until => Tend::Abandon(place),
            _ if !renewal => Tend::Nothing,
            _ if holder.is_renewable(self.deadline) => {
                Tend::Renew(holder.capped(holder.request.term.ttl, now))
            }
            // Never shorter than it is: this draws a counter value and extends nothing.
            _ => Tend::Renew(SHORTEST_TTL),
        }
    }

    /// R10, R5: asks for more time, and for a counter value if those under the present one run short.
    fn renew<X: Shell<K>>(&mut self, ttl: Duration, shell: &mut X) {
        let draw = self.draws();
        self.renewal = Renewal::Sent { draw };
        let Self { token, fence, deadline, .. } = self;
        let (token, fence, deadline) = (token.clone(), *fence, *deadline);
        shell.renew(Renew { token, ttl, draw, fence, deadline });
    }
}
