//! Time passes for one process: deadlines first, then whatever is due.

use super::{Holder, Stage, Turn, Waiter};
use crate::mutants::Mutant;
use crate::network::Command;
use crate::token::Token;

/// What an owned batch does about a tick.
enum Due {
    Nothing,
    Lost,
    NextPlease,
    Renew(Waiter),
}

impl Turn<'_> {
    pub(crate) fn tick(&mut self) {
        let oldest = self.cfg.oldest();
        self.process.main.grow_old(oldest);
        self.process.renewals.grow_old(oldest);
        let batches: Vec<_> =
            self.process.batches().map(|(key, batch)| (key, batch.token)).collect();
        // What this tick adds to either of them is not yet a tick old.
        self.tick_repairs();
        self.tick_chores();
        for (key, token) in batches {
            self.tick_batch(key, token);
        }
    }

    fn tick_batch(&mut self, key: u8, token: Token) {
        let asks = &self.cfg.asks;
        let (contact, deaf) = (self.cfg.contact, self.cfg.is(Mutant::NoLook));
        let in_flight = self.acquires(token);
        let Some(batch) = self.batch(key, token) else { return };
        batch.grace = batch.grace.saturating_sub(1);
        batch.suspect = batch.suspect.saturating_sub(1);
        match &mut batch.stage {
            Stage::Trying | Stage::Entering => {}
            Stage::Queued { look, .. } => {
                *look = look.saturating_sub(1);
                if *look == 0 && !in_flight && !deaf {
                    self.look(key, token);
                }
            }
            Stage::Owned(lease) => {
                lease.deadline = lease.deadline.saturating_sub(1);
                lease.contact = (lease.contact + 1).min(contact + 1);
                lease.renew_in = lease.renew_in.saturating_sub(1);
                lease.robbed = lease.robbed.map(|ticks| (ticks + 1).min(20));
                let due = match &mut lease.holder {
                    _ if lease.deadline == 0 => Due::Lost,
                    Holder::Offered(_, ticks) => {
                        *ticks += 1;
                        Due::NextPlease
                    }
                    Holder::Running(waiter, held) => {
                        *held = (*held + 1).min(asks[usize::from(waiter.ask)].min_hold);
                        Due::Renew(*waiter)
                    }
                    Holder::Part(waiter) => Due::Renew(*waiter),
                    Holder::Nobody => Due::Nothing,
                };
                self.tick_lease(key, token, due);
            }
        }
    }

    fn tick_lease(&mut self, key: u8, token: Token, due: Due) {
        let in_flight = self.renews(token);
        match due {
            Due::Lost if in_flight && self.cfg.is(Mutant::DoubtIsHope) => {}
            Due::Lost => self.lose(key, token),
            Due::NextPlease if !self.cfg.is(Mutant::OffersForEver) => self.put_back(key, token),
            Due::NextPlease => self.renew(key, token, self.cfg.asks[0].ttl),
            Due::Renew(waiter) => {
                let (renews, ttl) = (self.ask(waiter).renew, self.ask(waiter).ttl);
                let every = self.cfg.renew_every;
                let Some(lease) = self.lease(key, token) else { return };
                if renews && lease.renew_in == 0 && !in_flight {
                    lease.renew_in = every;
                    self.renew(key, token, ttl);
                }
            }
            Due::Nothing => {}
        }
    }

    /// An `acquire` of this token is under way.
    fn acquires(&self, token: Token) -> bool {
        let line = &self.process.main;
        let mine = |command: &Command| {
            matches!(command, Command::Acquire { .. }) && command.token() == Some(token)
        };
        line.requests.iter().any(|sent| mine(&sent.command))
            || line.answers.iter().any(|answer| mine(&answer.command))
    }

    fn tick_repairs(&mut self) {
        for key in 0..self.cfg.keys {
            let state = &mut self.process.keys[usize::from(key)];
            let Some(repair) = &mut state.repair else { continue };
            repair.within -= 1;
            if repair.within == 0 {
                let token = repair.token;
                state.repair = None;
                self.send(Command::Release { key, token, keep: 0 });
            }
        }
    }

    fn tick_chores(&mut self) {
        let mut again = Vec::new();
        for chore in &mut self.process.chores {
            let waits = chore.due > 0;
            chore.due = chore.due.saturating_sub(1);
            let due = waits && chore.due == 0;
            if due || (chore.answered && chore.suspect > 0 && chore.due == 0) {
                chore.answered = false;
                again.push((chore.key, chore.token));
            }
            chore.suspect = chore.suspect.saturating_sub(1);
        }
        for (key, token) in again {
            self.send(Command::Release { key, token, keep: 0 });
        }
    }
}
