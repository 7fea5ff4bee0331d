//! A body that has its lock alone and goes on as a reader: the product's `lock::downgrade`.

use distlock_core::line::{Downgrade, Exchanged};

use super::shell::{Seat, ms};
use super::task::Has;
use super::{Moment, Origin, Terms, Turn};
use crate::invariants::Invariant;
use crate::network::Command;
use crate::token::Token;

impl Turn<'_> {
    pub(crate) fn downgrade(&mut self, task: u8) {
        if let Some(task) = self.process.tasks.get(usize::from(task)).map(|task| task.id) {
            self.exchange_again(Seat { task, part: 0 });
        }
        self.settle();
    }

    /// The same exchange as before, or the first. A lease that is lost ends the body.
    pub(super) fn exchange_again(&mut self, seat: Seat) {
        let now = self.process.now;
        let Some(part) = self.process.part_mut(seat) else { return };
        let (key, place, held) = (part.key, part.place, part.held());
        if held.is_none_or(|grant| grant.deadline <= now) {
            return self.end(seat.task);
        }
        let asked = self.on(key, |line, now, side| line.downgrade(place, now, side));
        let Some(Downgrade { old, new, term }) = asked else { return self.end(seat.task) };
        if let Some(part) = self.process.part_mut(seat) {
            // From here on it reads, whichever of the two has the lock.
            (part.runs_under, part.instead_of, part.limit) = (Some(new), Some(old), new.limit);
        }
        let (ttl, seen) = (ms(term.ttl), self.process.seen);
        let command = Command::Exchange { key, token: new, old, ttl, seen };
        self.send(command, Origin::Exchange { seat, terms: Terms::of(term) });
    }

    /// The store has answered. The answer may be to an earlier one of two exchanges that are the same.
    pub(super) fn exchanged(
        &mut self,
        key: u8,
        seat: Seat,
        (old, new, terms): (Token, Token, Terms),
        sent: Moment,
        answer: Option<(u64, bool)>,
    ) {
        let Some(part) = self.process.part_mut(seat) else { return };
        if part.instead_of != Some(old) {
            return;
        }
        let (place, before) = (part.place, part.held().map(|grant| grant.fencing_token));
        let exchange = Downgrade { old, new, term: terms.term() };
        let answer = match answer {
            Some((fence, contended)) => Exchanged::Granted { fence, sent, contended },
            None => Exchanged::NotHeld,
        };
        let goes_on =
            self.on(key, |line, now, side| line.exchanged(place, &exchange, answer, now, side));
        let Some((place, grant)) = goes_on else { return self.end(seat.task) };
        if before.is_some_and(|before| grant.fencing_token <= before) {
            *self.broken = Some(Invariant::Fencing);
        }
        if let Some(part) = self.process.part_mut(seat) {
            (part.place, part.has, part.instead_of) = (place, Has::Held(grant), None);
        }
        let entry = self.process.entry(key, old);
        entry.retired = true;
        // R9.
        if entry.suspect > 0 {
            self.give_back(key, old, None);
        }
    }
}
