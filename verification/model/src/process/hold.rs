//! Owning, starting, handing over, renewing and losing: R5, R6, R10.

use super::{Awaited, Holder, Lease, Stage, Started, Turn, Waiter};
use crate::mutants::Mutant;
use crate::network::Command;
use crate::token::{Fencing, Token};

impl Turn<'_> {
    /// Ticks a lease has at its command's send, for the next holder of this batch.
    pub(super) fn full(&self, key: u8, token: Token) -> u8 {
        let batch = self.process.batch(key, token);
        let holder = batch.and_then(|batch| batch.lease()).and_then(|lease| match lease.holder {
            Holder::Running(waiter, _) | Holder::Part(waiter) | Holder::Offered(waiter, _) => {
                Some(waiter)
            }
            Holder::Nobody => None,
        });
        let first = holder.or_else(|| batch.and_then(|batch| batch.waiters.first().copied()));
        let ttl = first.map(|waiter| self.ask(waiter).ttl).unwrap_or_default();
        let margin = if self.cfg.is(Mutant::NoDriftMargin) { 0 } else { self.cfg.margin };
        ttl.saturating_sub(margin)
    }

    /// The server's `{1}` or `OK`, `age` ticks after the command was sent.
    pub(super) fn own(&mut self, key: u8, token: Token, fence: u16, contended: bool, age: u8) {
        let counted = if self.cfg.is(Mutant::DeadlineFromReply) { 0 } else { age };
        let mut deadline = self.full(key, token).saturating_sub(counted);
        if deadline == 0 && self.cfg.is(Mutant::NoExpiryCheck) {
            deadline = 1;
        }
        let (renew_in, graces) = (self.cfg.renew_every, self.cfg.grace > 0);
        let behind = self.index(key, token).is_some_and(|i| i + 1 < self.batches(key).len());
        let Some(batch) = self.batch(key, token) else { return };
        // Without a grace it would only tell equal states apart.
        let lets_in = graces && matches!(batch.stage, Stage::Queued { .. });
        batch.room = if lets_in { batch.waiters.len() as u8 / 2 } else { 0 };
        batch.stage = Stage::Owned(Lease {
            fence,
            next_fence: 0,
            last: None,
            deadline,
            contact: age,
            renew_in,
            holder: Holder::Nobody,
            awaits: None,
            robbed: None,
        });
        if contended || behind {
            self.seal(key, token);
        }
        if deadline == 0 {
            return self.release(key, token, 0);
        }
        let goes_back = self.is_later_of_several(key, token);
        if goes_back && !self.cfg.is(Mutant::KeepsLaterKeys) {
            self.batches(key).iter_mut().filter(|batch| batch.token == token).for_each(|batch| {
                batch.waiters.remove(0);
            });
        }
        self.start_next(key, token);
    }

    /// R5: the next fencing token of this lease; `None`: a new F is needed.
    fn next_fencing(&self, lease: &Lease) -> Option<Fencing> {
        let Some(last) = lease.last else { return Some(Fencing { fence: lease.fence, step: 0 }) };
        let fence = if lease.next_fence != 0 { lease.next_fence } else { lease.fence };
        let following = Fencing { step: last.step + 1, ..last };
        let next = following.max(Fencing { fence, step: 0 });
        let overflows = self.cfg.is(Mutant::StepsOverflow);
        (next.fence == fence && (next.step < self.cfg.steps || overflows)).then_some(next)
    }

    /// R5: the first waiter of an owned batch without holder gets the lease.
    pub(super) fn start_next(&mut self, key: u8, token: Token) {
        let Some(batch) = self.batch(key, token) else { return };
        let Some(place) = batch.waiters.iter().position(|waiter| !waiter.tried) else {
            return self.release(key, token, 0);
        };
        let Some(lease) = batch.lease().cloned() else { return };
        let Some(fencing) = self.next_fencing(&lease) else {
            if let Some(lease) = self.lease(key, token) {
                lease.awaits = Some(Awaited::Fence);
            }
            return self.look(key, token);
        };
        let Some(batch) = self.batch(key, token) else { return };
        let waiter = batch.waiters.remove(place);
        let Some(lease) = batch.lease_mut() else { return };
        lease.last = Some(fencing);
        if lease.next_fence != 0 && fencing.fence == lease.next_fence {
            lease.fence = lease.next_fence;
            lease.next_fence = 0;
        }
        if waiter.dozes {
            lease.holder = Holder::Offered(waiter, 0);
            return;
        }
        self.start(key, token, waiter, fencing);
    }

    fn start(&mut self, key: u8, token: Token, waiter: Waiter, fencing: Fencing) {
        let keys = self.ask(waiter).keys.clone();
        let others: Vec<u8> = keys.iter().copied().filter(|other| *other != key).collect();
        let complete = others.iter().all(|other| self.holds_part(*other));
        let Some(lease) = self.lease(key, token) else { return };
        if !complete {
            lease.holder = Holder::Part(waiter);
            for other in others {
                let queued = self.process.keys[usize::from(other)]
                    .batches
                    .iter()
                    .any(|batch| batch.waiters.iter().any(|other| other.ask == waiter.ask));
                if !queued {
                    self.arrive(other, waiter);
                }
            }
            return;
        }
        lease.holder = Holder::Running(waiter, 0);
        let mut public = fencing;
        for other in &others {
            if let Some(lease) = self.part(*other) {
                public = public.max(lease.last.unwrap_or_default());
                lease.holder = Holder::Running(waiter, 0);
            }
        }
        if !self.cfg.is(Mutant::NoLastToken) {
            for other in &keys {
                if let Some(lease) = self.running(*other) {
                    lease.last = Some(public);
                }
            }
        }
        let asked = self.ask(waiter).ttl.saturating_sub(self.cfg.margin);
        let epoch = waiter.epoch;
        // A part that was held while others were waited for has been renewed in between.
        let left = self.lease(key, token).map(|lease| lease.deadline).unwrap_or_default();
        for key in keys {
            let running = self.batches(key).iter().find(|batch| batch.is_running());
            let Some(token) = running.map(|batch| batch.token) else { continue };
            self.started.push(Started { key, token, epoch, fencing: public, left, asked });
        }
    }

    fn part(&mut self, key: u8) -> Option<&mut Lease> {
        let leases = self.batches(key).iter_mut().filter_map(|batch| batch.lease_mut());
        leases.into_iter().find(|lease| matches!(lease.holder, Holder::Part(_)))
    }

    fn running(&mut self, key: u8) -> Option<&mut Lease> {
        let leases = self.batches(key).iter_mut().filter_map(|batch| batch.lease_mut());
        leases.into_iter().find(|lease| matches!(lease.holder, Holder::Running(..)))
    }

    /// A body has ended: of all its keys, in order.
    pub(crate) fn finish(&mut self, key: u8, token: Token) {
        let Some(lease) = self.lease(key, token) else { return };
        let (Holder::Running(waiter, held), last) = (lease.holder, key) else { return };
        let keys = self.ask(waiter).keys.clone();
        for key in keys {
            let found = self
                .batches(key)
                .iter()
                .find(|batch| batch.is_running() && (key != last || batch.token == token));
            if let Some(token) = found.map(|batch| batch.token) {
                self.end_holder(key, token, waiter, held);
            }
        }
    }

    /// R6.
    pub(super) fn end_holder(&mut self, key: u8, token: Token, waiter: Waiter, held: u8) {
        let due = self.ask(waiter).min_hold.saturating_sub(held);
        let Some(lease) = self.lease(key, token) else { return };
        lease.holder = Holder::Nobody;
        if due > 0 {
            return self.release(key, token, due);
        }
        self.hand_over(key, token);
    }

    /// R6: to the next one of the batch, or back to the server.
    pub(super) fn hand_over(&mut self, key: u8, token: Token) {
        let Some(batch) = self.batch(key, token) else { return };
        let Some(next) = batch.waiters.iter().find(|waiter| !waiter.tried).copied() else {
            return self.release(key, token, 0);
        };
        let ask = self.ask(next).clone();
        let margin = self.cfg.margin;
        let (contact, needed) = (self.cfg.contact, ask.ttl.saturating_sub(margin));
        let Some(lease) = self.lease(key, token) else { return };
        let (left, fresh) = (lease.deadline, lease.contact <= contact);
        if left > needed + 1 && !self.cfg.is(Mutant::HandsOverAnyTtl) {
            return self.enter_again_shorter(key, token, ask.ttl);
        }
        if (left < needed || !fresh) && !self.cfg.is(Mutant::HandsOverAnyTtl) {
            if let Some(lease) = self.lease(key, token) {
                lease.awaits = Some(Awaited::Refresh);
            }
            return self.renew(key, token, ask.ttl);
        }
        self.start_next(key, token);
        if self.cfg.is(Mutant::HandsOverAfterRelease) {
            self.send(Command::Release { key, token, keep: 0 });
        }
    }

    /// R6: too much is left, and a lease in use is never shortened: through the queue's first place.
    fn enter_again_shorter(&mut self, key: u8, token: Token, ttl: u8) {
        let new = self.token(self.cfg.claim);
        let Some(batch) = self.batch(key, token) else { return };
        let Some(lease) = batch.lease() else { return };
        let ticket = if batch.ticket == 0 { lease.fence } else { batch.ticket };
        batch.ticket = ticket;
        batch.token = new;
        batch.stage = Stage::Entering;
        let suspect = std::mem::take(&mut batch.suspect);
        self.send(Command::Acquire { key, token: new, ttl, ticket });
        self.give_back(key, token, suspect, 0);
        self.send(Command::Acquire { key, token: new, ttl, ticket });
    }

    /// R10, and R6's refresh.
    pub(super) fn renew(&mut self, key: u8, token: Token, ttl: u8) {
        let half = self.cfg.steps / 2;
        let Some(lease) = self.lease(key, token) else { return };
        let draws =
            lease.next_fence == 0 && lease.last.is_some_and(|last| last.step >= half.max(1));
        self.send(Command::Renew { key, token, ttl, draws });
    }

    /// R10's answer.
    pub(super) fn on_renewed(
        &mut self,
        key: u8,
        token: Token,
        ttl: u8,
        answer: Option<(bool, u16)>,
        age: u8,
    ) {
        let margin = if self.cfg.is(Mutant::NoDriftMargin) { 0 } else { self.cfg.margin };
        let counted = if self.cfg.is(Mutant::RenewalFromReply) { 0 } else { age };
        let left = ttl.saturating_sub(margin).saturating_sub(counted);
        let deaf = self.cfg.is(Mutant::RefusedRenewalIgnored);
        let Some(lease) = self.lease(key, token) else { return };
        let Some((contended, fence)) = answer else {
            if !deaf {
                self.lose(key, token);
            }
            return;
        };
        lease.deadline = lease.deadline.max(left);
        lease.contact = lease.contact.min(age);
        if fence != 0 {
            lease.next_fence = fence;
        }
        let refreshes = lease.awaits == Some(Awaited::Refresh);
        self.see(fence);
        if contended {
            self.seal(key, token);
        }
        if !refreshes {
        } else if self.cfg.is(Mutant::AnyRenewalRefreshes) {
            self.clear_awaited(key, token);
            self.start_next(key, token);
        } else if !self.renews(token) {
            // Only the last answer counts: a renewal may have been under way before.
            self.clear_awaited(key, token);
            self.hand_over(key, token);
        }
    }

    pub(super) fn clear_awaited(&mut self, key: u8, token: Token) {
        if let Some(lease) = self.lease(key, token) {
            lease.awaits = None;
        }
    }

    /// A renewal of this token is under way, other than the question whose it is.
    pub(super) fn renews(&self, token: Token) -> bool {
        let renews = |command: &Command| match *command {
            Command::Renew { ttl: 0, .. } => false,
            _ => command.token() == Some(token),
        };
        let line = &self.process.renewals;
        line.requests.iter().any(|sent| renews(&sent.command))
            || line.answers.iter().any(|answer| renews(&answer.command))
    }

    /// The lease is lost: the body is dropped first, then the token is released (R10, R6). A holder
    /// of several keys loses all of them.
    pub(super) fn lose(&mut self, key: u8, token: Token) {
        let Some(lease) = self.lease(key, token) else { return };
        let holder = std::mem::replace(&mut lease.holder, Holder::Nobody);
        let waiter = match holder {
            Holder::Nobody => None,
            Holder::Offered(waiter, _) | Holder::Running(waiter, _) | Holder::Part(waiter) => {
                Some(waiter)
            }
        };
        self.release(key, token, 0);
        let Some(waiter) = waiter else { return };
        let others = self.ask(waiter).keys.iter().copied().filter(|other| *other != key);
        for other in others.collect::<Vec<_>>() {
            self.leave(other, waiter.ask);
        }
    }

    /// A task of several keys gives up on one of them, wherever it stands there.
    pub(super) fn leave(&mut self, key: u8, ask: u8) {
        let batches = &self.process.keys[usize::from(key)].batches;
        let tokens: Vec<_> = batches.iter().map(|batch| batch.token).collect();
        for token in tokens {
            let Some(batch) = self.batch(key, token) else { continue };
            if let Some(place) = batch.waiters.iter().position(|waiter| waiter.ask == ask) {
                self.cancel(key, token, place);
            } else if let Some(lease) = batch.lease_mut() {
                match lease.holder {
                    Holder::Running(waiter, _) | Holder::Part(waiter) if waiter.ask == ask => {
                        lease.holder = Holder::Nobody;
                        self.hand_over(key, token);
                    }
                    _ => {}
                }
            }
        }
    }
}
