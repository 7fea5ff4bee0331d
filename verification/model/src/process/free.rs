//! Releasing, cancelling, and the janitor: R7, R8, R9, and `min_hold`.

use super::{Chore, Holder, Repair, Turn};
use crate::mutants::Mutant;
use crate::network::Command;
use crate::server::Released;
use crate::token::Token;

impl Turn<'_> {
    /// R7: the token is never used again. Those who still wait come back under another one, in
    /// before out: the other order lets the queue pass them. It should, where they had their turn
    /// and did not take it (R5).
    pub(super) fn release(&mut self, key: u8, token: Token, due: u8) {
        let Some(index) = self.index(key, token) else { return };
        let batch = self.batches(key).remove(index);
        let suspect = batch.suspect;
        let dozed = batch.waiters.iter().any(|waiter| waiter.tried);
        let out_first = match (dozed, self.cfg.is(Mutant::DozersStayInFront)) {
            (true, stay) => !stay,
            (false, _) => self.cfg.is(Mutant::ReentersAfterRelease),
        };
        if out_first {
            self.give_back(key, token, suspect, due);
        }
        if !batch.waiters.is_empty() {
            self.reenter(key, index, batch);
        }
        if !out_first {
            self.give_back(key, token, suspect, due);
        }
    }

    /// The janitor's: on the connection behind whatever is in flight.
    pub(super) fn give_back(&mut self, key: u8, token: Token, suspect: u8, due: u8) {
        self.process.chores.retain(|chore| (chore.key, chore.token) != (key, token));
        if due > 0 && self.cfg.is(Mutant::KeepWithoutRelease) {
            return self.send(Command::Release { key, token, keep: due + 1 });
        }
        self.process.chores.push(Chore { key, token, suspect, answered: false, due });
        let keep = if due > 0 { due + 1 } else { 0 };
        self.send(Command::Release { key, token, keep });
    }

    /// R9's answer, and R7's timer.
    pub(super) fn on_released(&mut self, key: u8, token: Token, answer: Released) {
        if let Some(to) = answer.to {
            if to.process == self.me {
                self.on_grant(key, to);
            } else if !self.cfg.is(Mutant::NoRepairTimer) {
                let state = &mut self.process.keys[usize::from(key)];
                state.repair = Some(Repair { token, within: to.claim });
            }
        }
        let final_at_once = self.cfg.is(Mutant::AnswerIsFinal);
        let mine = |chore: &Chore| (chore.key, chore.token) == (key, token);
        for chore in self.process.chores.iter_mut().filter(|chore| mine(chore)) {
            chore.answered = true;
        }
        // One that is kept is released when it is due, for those who waited for it already.
        let is_over = |chore: &Chore| chore.due == 0 || answer.unawaited;
        let done =
            |chore: &Chore| mine(chore) && is_over(chore) && (chore.suspect == 0 || final_at_once);
        self.process.chores.retain(|chore| !done(chore));
    }

    /// A waiter goes, or its `wait` is over (R8 if it was the last).
    pub(crate) fn cancel(&mut self, key: u8, token: Token, place: usize) {
        let Some(batch) = self.batch(key, token) else { return };
        let waiter = batch.waiters.remove(place);
        let empty = batch.waiters.is_empty() && !batch.is_owned();
        let offered = batch.lease().is_some_and(|lease| lease.holder == Holder::Nobody);
        if empty {
            let suspect = batch.suspect;
            let unsent = batch.unsent && batch.stage == super::Stage::Trying;
            let index = self.index(key, token).unwrap_or_default();
            self.batches(key).remove(index);
            if !unsent && !self.cfg.is(Mutant::CancelWithoutRelease) {
                self.give_back(key, token, suspect, 0);
            }
        } else if offered && self.batch(key, token).is_some_and(|batch| batch.waiters.is_empty()) {
            self.release(key, token, 0);
        }
        let others = self.ask(waiter).keys.iter().copied().filter(|other| *other != key);
        for other in others.collect::<Vec<_>>() {
            self.leave(other, waiter.ask);
        }
    }
}
