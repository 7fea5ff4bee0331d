//! Connections that die and come back: R3's and R9's errors, R13, `raise`.

use super::{Awaited, Stage, Turn};
use crate::mutants::Mutant;
use crate::network::{Command, Connection};
use crate::token::Token;

impl Turn<'_> {
    /// A connection has died with what it carried, and is back. What the server had not read yet is
    /// gone, or `lingers` and may still run.
    pub(crate) fn reconnect(&mut self, connection: Connection, lingers: bool) {
        let line = match connection {
            Connection::Main => &mut self.process.main,
            Connection::Renewals => &mut self.process.renewals,
        };
        let line = std::mem::take(line);
        let answered = line.answers.iter().map(|answer| answer.command);
        let lost: Vec<_> = answered.chain(line.requests.iter().map(|sent| sent.command)).collect();
        if lingers {
            let again =
                line.requests.into_iter().map(|sent| crate::network::Sent { age: 0, ..sent });
            self.process.stale.extend(again);
        }
        let life = self.cfg.stale_life.or(self.cfg.not_after).unwrap_or_default();
        for (key, token) in lost.iter().filter_map(Command::creates) {
            self.suspect(key, token, life);
        }
        match connection {
            Connection::Main => self.main_is_back(),
            Connection::Renewals => self.renewals_are_back(),
        }
    }

    fn suspect(&mut self, key: u8, token: Token, life: u8) {
        if let Some(batch) = self.batch(key, token) {
            batch.suspect = life;
        }
        for chore in &mut self.process.chores {
            if (chore.key, chore.token) == (key, token) {
                chore.suspect = life;
            }
        }
    }

    /// `raise`, the janitor's releases, and a look for every batch that is not owned.
    fn main_is_back(&mut self) {
        self.raise();
        if self.cfg.is(Mutant::NoJanitorRetry) {
            self.process.chores.clear();
        }
        for chore in self.process.chores.clone() {
            let keep = if chore.due > 0 { chore.due + 1 } else { 0 };
            self.send(Command::Release { key: chore.key, token: chore.token, keep });
        }
        self.look_for_all();
    }

    fn look_for_all(&mut self) {
        let batches: Vec<_> =
            self.process.batches().map(|(key, batch)| (key, batch.token)).collect();
        for (key, token) in batches {
            let Some(batch) = self.batch(key, token) else { continue };
            let looks = match &mut batch.stage {
                Stage::Owned(lease) => lease.awaits == Some(Awaited::Fence),
                stage @ (Stage::Trying | Stage::Entering) => {
                    *stage = Stage::Entering;
                    true
                }
                Stage::Queued { .. } => true,
            };
            if looks && !(batch.unsent && batch.stage == Stage::Trying) {
                self.look(key, token);
            }
        }
    }

    fn renewals_are_back(&mut self) {
        let batches: Vec<_> =
            self.process.batches().map(|(key, batch)| (key, batch.token)).collect();
        for (key, token) in batches {
            let Some(batch) = self.batch(key, token) else { continue };
            let waiters = batch.waiters.clone();
            let Some(lease) = batch.lease_mut() else { continue };
            lease.renew_in = 1;
            if lease.awaits == Some(Awaited::Refresh) {
                let ttl = self.ttl_of(&waiters);
                self.renew(key, token, ttl);
            }
        }
        if self.cfg.is(Mutant::JanitorElsewhere) {
            for chore in self.process.chores.clone() {
                self.send(Command::Release { key: chore.key, token: chore.token, keep: 0 });
            }
        }
    }

    /// R2: no F below one that was seen, whatever the server lost.
    pub(super) fn raise(&mut self) {
        if self.cfg.server_time && !self.cfg.is(Mutant::NoRaise) {
            self.send(Command::Raise { least: self.process.seen + 1 });
        }
    }

    /// The subscriber is down.
    pub(crate) fn deafen(&mut self) {
        self.process.subscribed = false;
        self.process.hints.clear();
        for batch in self.process.keys.iter_mut().flat_map(|state| &mut state.batches) {
            batch.waiters.iter_mut().for_each(|waiter| waiter.exempt = true);
        }
        if self.cfg.silent {
            return;
        }
        self.process.hears = false;
        self.retune();
        for state in &mut self.process.keys {
            for batch in &mut state.batches {
                if let Stage::Queued { look, .. } = &mut batch.stage {
                    *look = 1;
                }
            }
        }
    }

    /// The subscriber is up: everybody looks once.
    pub(crate) fn hear_again(&mut self) {
        self.process.hears = true;
        self.process.subscribed = true;
        self.retune();
        if !self.cfg.mode_n && !self.cfg.is(Mutant::NoLookAfterReconnect) {
            self.look_for_all();
        }
    }

    /// R13: queued batches change their mode.
    fn retune(&mut self) {
        if !self.cfg.mode_n || self.cfg.is(Mutant::KeepsMode) {
            return;
        }
        let batches: Vec<_> =
            self.process.batches().map(|(key, batch)| (key, batch.token)).collect();
        for (key, token) in batches {
            let queued =
                self.batch(key, token).is_some_and(|b| matches!(b.stage, Stage::Queued { .. }));
            if queued && token.deaf == self.process.hears {
                self.swap_token(key, token, false);
            }
        }
    }
}
