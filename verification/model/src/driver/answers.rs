//! Answers and messages, and what they do to the calls that wait for them.

use distlock_core::line::{Entered, Loss, Owned, Renew};

use super::shell::{Fault, Seat, millis};
use super::task::Answer as Said;
use super::{Moment, Origin, Terms, Turn};
use crate::network::{Answer, Command, Hint, HintKind, Result, Sent};
use crate::server::Acquired;
use crate::token::Token;

/// No lease is shorter: a renewal to it extends nothing.
const SHORTEST_TTL: u32 = 10;

impl Turn<'_> {
    pub(crate) fn on_answer(&mut self, Answer { sent, result }: Answer) {
        let Sent { command, origin, at, .. } = sent;
        match (command, result) {
            (
                Command::Take { key, token, ttl, seen }
                | Command::Draw { key, token, ttl, seen, .. },
                Result::Taken { ok, fence },
            ) => {
                let Origin::Try(seat) = origin else { return };
                let new = self.is_new(fence, seen);
                match ok {
                    false => self.tried(seat, Ok(Said::Taken)),
                    true if new => self.tried(seat, Ok(Said::Granted { fence, sent: at })),
                    true => self.draw_again(key, token, ttl, seat, at),
                }
            }
            (Command::Acquire { key, token, .. }, Result::Acquired(answer)) => {
                self.on_acquired(sent, key, token, answer);
            }
            (Command::Release { key, token, .. }, Result::Released(released)) => match origin {
                Origin::Chore => self.released(key, token, Ok(released)),
                Origin::Once => self.freed(key, token, None, released),
                _ => {}
            },
            (Command::Renew { key, token, ttl, draws }, Result::Renewed(owned)) => {
                self.on_renewed((key, token, ttl, draws), origin, at, owned);
            }
            (Command::Exchange { key, token, old, seen, .. }, Result::Exchanged(answer)) => {
                let Origin::Exchange { seat, terms } = origin else { return self.settle() };
                match answer {
                    // R2: with an old counter value it is sent once more.
                    Some((fence, _)) if !self.is_new(fence, seen) => {
                        self.raise();
                        self.exchange_again(seat);
                    }
                    answer => self.exchanged(key, seat, (old, token, terms), at, answer),
                }
            }
            (_, Result::Raised { fence }) => self.see(fence),
            _ => unreachable!("an answer is its command's"),
        }
        self.settle();
    }

    /// Whether a counter value is above all that were known when it was asked for.
    fn is_new(&mut self, fence: u64, seen: u64) -> bool {
        let new = !self.cfg.server_time || fence > seen;
        if new {
            self.see(fence);
        }
        new
    }

    /// R2: data was lost under a live connection. Another value is drawn by a renewal, which neither
    /// frees nor makes the lock: others may depend on its token by now.
    fn draw_again(&mut self, key: u8, token: Token, ttl: u32, seat: Seat, at: Moment) {
        self.raise();
        let command = Command::Renew { key, token, ttl, draws: true };
        self.send(command, Origin::Redraw { seat, at });
    }

    fn on_acquired(&mut self, sent: Sent, key: u8, token: Token, answer: Acquired) {
        let Command::Acquire { seen, ticket: asked, .. } = sent.command else { return };
        if let Origin::Try(seat) = sent.origin {
            return self.on_tried(sent, seat, seen, answer);
        }
        let Origin::Batch(terms) = sent.origin else { return };
        let answer = match answer {
            Acquired::Granted { fence, contended } if self.is_new(fence, seen) => {
                Entered::Granted { fence, sent: sent.at, contended }
            }
            Acquired::Queued { ticket, remaining, rank, behind, added } => {
                let remaining = Some(millis(remaining));
                if self.process.subscribed {
                    // The place is an earlier one, which it had all the time, or has come back to.
                    self.stand(key, asked == 0 && added);
                }
                Entered::Queued { ticket, remaining, rank, behind, added }
            }
            // Too late by the server's clock, or with an old counter value: once more.
            Acquired::Granted { .. } => {
                self.raise();
                return self.ask_again_for(sent, key, token);
            }
            Acquired::Stale => return self.ask_again_for(sent, key, token),
            Acquired::Taken { .. } => unreachable!("a batch does not only try"),
        };
        self.entered(key, token, terms, Ok(answer));
    }

    /// Ghost: calls not yet known to stand in the queue do from here on, at a `new` place or at their own.
    fn stand(&mut self, key: u8, new: bool) {
        let epoch = self.epoch;
        let tasks = self.process.tasks.iter_mut();
        for task in tasks.filter(|task| task.exempt && task.waits_for(key)) {
            (task.exempt, task.stands) = (false, epoch);
            if new {
                task.epoch = epoch;
            }
        }
    }

    /// R2: the answer to a try of a token that is not alone.
    fn on_tried(&mut self, sent: Sent, seat: Seat, seen: u64, answer: Acquired) {
        let Some((key, token)) = sent.command.creates() else { return };
        match answer {
            Acquired::Granted { fence, .. } if self.is_new(fence, seen) => {
                self.tried(seat, Ok(Said::Granted { fence, sent: sent.at }));
            }
            Acquired::Granted { .. } => {
                self.raise();
                self.ask_again_for(sent, key, token);
            }
            Acquired::Stale => self.ask_again_for(sent, key, token),
            Acquired::Taken { .. } | Acquired::Queued { .. } => self.tried(seat, Ok(Said::Taken)),
        }
    }

    fn ask_again_for(&mut self, sent: Sent, key: u8, token: Token) {
        if self.process.known(key, token).is_some_and(|entry| entry.retired) {
            return self.unanswered(sent, Fault::Lost);
        }
        let now_seen = self.process.seen;
        let mut command = sent.command;
        if let Command::Acquire { seen, .. } = &mut command {
            *seen = now_seen;
        }
        self.send(command, sent.origin);
    }

    fn entered(
        &mut self,
        key: u8,
        token: Token,
        terms: Terms,
        answer: std::result::Result<Entered, Fault>,
    ) {
        let term = terms.term();
        self.on(key, |line, now, side| line.entered(&token, term, answer, now, side));
    }

    fn on_renewed(
        &mut self,
        (key, token, ttl, draw): (u8, Token, u32, bool),
        origin: Origin,
        at: Moment,
        owned: Option<(bool, Option<u64>)>,
    ) {
        if owned.is_none() {
            // There is nothing to keep.
            self.process.entry(key, token).not_before = None;
        }
        match origin {
            Origin::Question if owned.is_none() => self.on(key, |line, now, side| {
                line.taken_away(&token, Loss::Forced, now, side);
            }),
            Origin::Redraw { seat, at } => {
                let fence = owned.and_then(|(_, fence)| fence);
                fence.into_iter().for_each(|fence| self.see(fence));
                let said = fence.map_or(Said::Taken, |fence| Said::Granted { fence, sent: at });
                self.tried(seat, Ok(said));
            }
            Origin::Renewal { fence: known } => {
                let answer = match owned {
                    None => Ok(Owned::No),
                    Some((_, Some(fence))) if !self.is_new(fence, known) => Err(Fault::Lost),
                    Some((contended, fence)) => Ok(Owned::Yes { contended, fence }),
                };
                self.renewed((key, token, ttl, draw), at, answer);
            }
            _ => {}
        }
    }

    fn renewed(
        &mut self,
        (key, token, ttl, draw): (u8, Token, u32, bool),
        at: Moment,
        answer: std::result::Result<Owned, Fault>,
    ) {
        let (ttl, fence, deadline) = (millis(ttl), 0, Moment::NEVER);
        let renew = Renew { token, ttl, draw, fence, deadline };
        self.on(key, |line, now, side| line.renewed(&renew, at, answer, now, side));
    }

    /// There will be no answer.
    pub(super) fn unanswered(&mut self, sent: Sent, fault: Fault) {
        match (sent.command, sent.origin) {
            (_, Origin::Try(seat) | Origin::Redraw { seat, .. }) => {
                self.tried(seat, Err(fault));
            }
            (Command::Acquire { key, token, .. }, Origin::Batch(terms)) => {
                self.entered(key, token, terms, Err(fault));
            }
            (Command::Renew { key, token, ttl, draws }, Origin::Renewal { .. }) => {
                self.renewed((key, token, ttl, draws), sent.at, Err(fault));
            }
            (_, Origin::Exchange { seat, .. }) => self.exchange_again(seat),
            (Command::Release { key, token, .. }, Origin::Chore) => {
                self.released(key, token, Err(fault));
            }
            _ => {}
        }
    }

    /// R4.
    pub(crate) fn on_hint(&mut self, hint: Hint) {
        let Hint { kind, key, token } = hint;
        let of = |own: &Token| *own == token;
        if kind != HintKind::Taken && self.is_stray(key, token) {
            // Nothing is sent behind the release of a token that could make the lock again. // R7
            self.send(Command::Release { key, token, keep: None }, Origin::Once);
            self.on(key, |line, _, _| line.look());
            return self.settle();
        }
        match kind {
            HintKind::Grant => self.on(key, |line, _, _| line.called(of)),
            HintKind::Seal => self.on(key, |line, now, _| line.sealed(of, now)),
            HintKind::Taken => {
                // Only the server is believed.
                let line = &self.process.lines[usize::from(key)];
                if line.claims().any(|claim| claim.token == token) {
                    let command = Command::Renew { key, token, ttl: SHORTEST_TTL, draws: false };
                    self.send(command, Origin::Question);
                }
            }
        }
        self.settle();
    }

    /// R4: no call goes by that token, and none is done with it whose release is not on its way.
    fn is_stray(&self, key: u8, token: Token) -> bool {
        let process = &self.process;
        let line = &process.lines[usize::from(key)];
        let tries = process.tasks.iter().any(|task| task.tries(key, token));
        let kept = process.known(key, token).and_then(|entry| entry.kept_until);
        let kept = kept.is_some_and(|end| process.now < end);
        let releases = |sent: &Sent| matches!(sent.command, Command::Release { key: of, token: own, .. } if (of, own) == (key, token));
        let going = process.jobs.iter().any(|job| job.releases(key, token))
            || process.main.under_way().any(releases);
        let known = line.knows(|own| *own == token) || tries;
        token.process == process.identity && !known && !kept && !going
    }

    /// R2: no F below one that was seen, whatever the server lost.
    pub(super) fn raise(&mut self) {
        if self.cfg.server_time {
            self.send(Command::Raise { least: self.process.seen + 1 }, Origin::Unawaited);
        }
    }
}
