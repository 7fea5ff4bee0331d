//! Answers and messages: who they are for, and R4.

use super::{Holder, Stage, Turn};
use crate::mutants::Mutant;
use crate::network::{Answer, Command, Hint, HintKind, Result};
use crate::token::Token;

impl Turn<'_> {
    pub(crate) fn on_answer(&mut self, answer: Answer) {
        let age = answer.age;
        match (answer.command, answer.result) {
            (
                Command::Take { key, token, seen, .. } | Command::Draw { key, token, seen, .. },
                Result::Taken { ok, fence },
            ) => self.on_taken(key, token, ok, fence, seen, age),
            (Command::Acquire { key, token, .. }, Result::Acquired(answer)) => {
                self.on_acquired(key, token, answer, age);
            }
            (Command::Release { key, token, .. }, Result::Released(answer)) => {
                self.on_released(key, token, answer);
            }
            (Command::Renew { key, token, ttl: 0, .. }, Result::Renewed(answer)) => {
                if answer.is_none() {
                    self.lose(key, token);
                }
            }
            (Command::Renew { key, token, ttl, .. }, Result::Renewed(answer)) => {
                self.on_renewed(key, token, ttl, answer, age);
            }
            (_, Result::Raised { fence }) => self.see(fence),
            _ => unreachable!("an answer is its command's"),
        }
        if let Some((key, token)) = answer.command.grants().filter(|_| answer.robbed)
            && let Some(lease) = self.lease(key, token)
        {
            lease.robbed = Some(0);
        }
    }

    /// R4.
    pub(crate) fn on_hint(&mut self, hint: Hint) {
        match hint.kind {
            HintKind::Grant => self.on_grant(hint.key, hint.token),
            HintKind::Seal => self.on_seal(hint.key, hint.token),
            HintKind::Taken => {
                if !self.cfg.is(Mutant::TakenIgnored) {
                    self.ask_whose(hint.key, hint.token);
                }
            }
        }
    }

    /// A renewal that extends nothing: only the server is believed.
    fn ask_whose(&mut self, key: u8, token: Token) {
        if self.lease(key, token).is_some() {
            self.send(Command::Renew { key, token, ttl: 0, draws: false });
        }
    }

    pub(super) fn on_grant(&mut self, key: u8, token: Token) {
        let starts = self.cfg.is(Mutant::StartsOnHint);
        let ignores = self.cfg.is(Mutant::EnteringIgnoresHint);
        match self.batch(key, token).map(|batch| batch.stage.clone()) {
            Some(Stage::Owned(_)) => {}
            Some(Stage::Entering) if ignores => {}
            Some(_) if starts => self.own(key, token, 1, false, 0),
            Some(_) => self.look(key, token),
            None if self.cfg.is(Mutant::UnknownGrantReleases) => {
                self.send(Command::Release { key, token, keep: 0 });
            }
            None => {}
        }
    }

    fn on_seal(&mut self, key: u8, token: Token) {
        if self.cfg.is(Mutant::SealIgnored) {
            return;
        }
        if self.cfg.is(Mutant::SealsAnyBatch) {
            if let Some(token) = self.batches(key).last().map(|batch| batch.token) {
                self.seal(key, token);
            }
            return;
        }
        self.seal(key, token);
    }

    pub(super) fn seal(&mut self, key: u8, token: Token) {
        let grace = self.cfg.grace;
        if self.cfg.is(Mutant::SealIgnored) {
            return;
        }
        if let Some(batch) = self.batch(key, token).filter(|batch| !batch.sealed) {
            batch.sealed = true;
            batch.grace = grace;
        }
    }

    /// R5: somebody who was offered the lock and dozed polls at last.
    pub(super) fn put_back(&mut self, key: u8, token: Token) {
        let Some(batch) = self.batch(key, token) else { return };
        let Some(lease) = batch.lease_mut() else { return };
        let Holder::Offered(mut waiter, _) = lease.holder else { return };
        lease.holder = Holder::Nobody;
        waiter.tried = true;
        batch.waiters.insert(0, waiter);
        self.hand_over(key, token);
    }
}
