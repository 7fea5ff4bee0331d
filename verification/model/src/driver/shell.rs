//! What a line asks of its shell, carried out on the modelled network and in the modelled tasks.

use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::line::{
    Batch, Closing, Denied, Enter, Grant, Kinds, Limit, Line, Loss, Renew, Reservation, Shell,
    Stage,
};
use distlock_core::store::Term;

use super::task::Has;
use super::{Job, Origin, Process, Terms, Turn};
use crate::invariants::Invariant;
use crate::network::Command;
use crate::token::Token;

/// The product's lines, over the model's tokens and tasks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Model;

impl Kinds for Model {
    type Token = Token;
    type Caller = Seat;
    type Fault = Fault;
}

/// Where a task waits for one of its locks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Seat {
    pub(crate) task: u32,
    pub(crate) part: u8,
}

/// Why there was no answer: every fault of the model passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Fault {
    /// The connection was lost.
    Lost,
    /// It did not come in time.
    TimedOut,
}

impl distlock_core::line::FaultClass for Fault {
    fn is_passing(&self) -> bool {
        true
    }

    fn is_timeout(&self) -> bool {
        *self == Self::TimedOut
    }
}

/// What is sent once a line's change is over.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Enter(Enter<Model>),
    Release(Token, Option<Duration>),
    Renew(Renew<Model>),
}

/// The shell of one lock during one change.
pub(crate) struct Side<'a> {
    process: &'a mut Process,
    key: u8,
    /// Ghost: the tick.
    epoch: u32,
    effects: Vec<Effect>,
}

impl Side<'_> {
    fn has(&mut self, seat: &Seat) -> Option<&mut Has> {
        self.process.part_mut(*seat).map(|part| &mut part.has)
    }
}

impl Shell<Model> for Side<'_> {
    fn issue(&mut self, limit: Limit, reservation: Reservation, _now: Moment) -> Token {
        let Process { identity, next_token, .. } = self.process;
        let (process, seq) = (*identity, *next_token);
        *next_token += 1;
        let (claim, deaf) = (ms(reservation.time), !reservation.notified);
        Token { process, seq, claim, deaf, limit }
    }

    fn number(&mut self) -> u64 {
        self.process.next_batch += 1;
        self.process.next_batch
    }

    fn is_notified(&self) -> bool {
        self.process.notified
    }

    fn fences_per_draw(&self) -> u64 {
        1
    }

    fn needs_renewal(&self) -> bool {
        true
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn is_unsent(&self, token: &Token) -> bool {
        self.process.known(self.key, *token).is_none_or(|entry| !entry.sent)
    }

    fn jittered(&mut self, whole: Duration) -> Duration {
        whole
    }

    fn in_hand(&self, seat: &Seat) -> bool {
        self.process.task(seat.task).is_some_and(|task| task.is_complete())
    }

    fn has_body(&self, seat: &Seat) -> bool {
        self.in_hand(seat)
    }

    fn take_back(&mut self, seat: &Seat) -> bool {
        let Some(has) = self.has(seat) else { return false };
        let lies = matches!(has, Has::Offered(_));
        if lies {
            *has = Has::PassedOver;
        }
        lies
    }

    fn take_over(&mut self, seat: &Seat) {
        let epoch = self.epoch;
        if let Some(has) = self.has(seat) {
            *has = Has::Waits;
        }
        if let Some(task) = self.process.task_mut(seat.task).filter(|task| task.unsent) {
            (task.epoch, task.stands) = (epoch, epoch);
        }
    }

    fn grant(&mut self, seat: &Seat, grant: Grant, _now: Moment) {
        if let Some(has) = self.has(seat) {
            *has = Has::Offered(grant);
        }
    }

    fn deny(&mut self, seat: &Seat, _why: Denied<Fault>) {
        if let Some(has) = self.has(seat) {
            *has = Has::Denied;
        }
    }

    fn wake(&mut self, _seat: &Seat) {}

    fn extended(&mut self, seat: &Seat, deadline: Moment) {
        if let Some(Has::Offered(grant) | Has::Held(grant)) = self.has(seat) {
            grant.deadline = deadline;
        }
    }

    fn lost(&mut self, seat: &Seat, _loss: Loss) {
        if let Some(has) = self.has(seat) {
            *has = Has::Lost;
        }
    }

    fn begin_term(&mut self, _token: &Token, _term: Term) {}

    fn enter(&mut self, enter: Enter<Model>) {
        self.effects.push(Effect::Enter(enter));
    }

    fn release(&mut self, token: Token, keep: Option<Duration>) {
        self.retire(&token);
        self.effects.push(Effect::Release(token, keep));
    }

    fn retire(&mut self, token: &Token) {
        self.process.entry(self.key, *token).retired = true;
    }

    fn renew(&mut self, renew: Renew<Model>) {
        self.effects.push(Effect::Renew(renew));
    }

    fn closing(&mut self, _closing: Closing<Model>) {}
}

impl Turn<'_> {
    /// A change of one lock's line by a caller, or by an answer or message. What is to be sent for
    /// others is the engine's to send.
    pub(super) fn on<R>(
        &mut self,
        key: u8,
        act: impl FnOnce(&mut Line<Model>, Moment, &mut Side<'_>) -> R,
    ) -> R {
        let (done, effects) = self.change(key, act);
        for effect in effects {
            match effect {
                Effect::Release(token, keep) => {
                    self.process.jobs.push_back(Job::Release(key, token, keep));
                }
                effect => self.carry_out(key, effect),
            }
        }
        let due = self.process.lines[usize::from(key)].due() <= self.process.now;
        if due && !self.process.jobs.contains(&Job::Run(key)) {
            self.process.jobs.push_back(Job::Run(key));
        }
        if self.cfg.prompt_engine {
            self.work();
        }
        done
    }

    fn change<R>(
        &mut self,
        key: u8,
        act: impl FnOnce(&mut Line<Model>, Moment, &mut Side<'_>) -> R,
    ) -> (R, Vec<Effect>) {
        let now = self.process.now;
        let mut line = std::mem::take(&mut self.process.lines[usize::from(key)]);
        let epoch = self.epoch;
        let mut side = Side { process: self.process, key, epoch, effects: Vec::new() };
        let done = act(&mut line, now, &mut side);
        let effects = side.effects;
        self.process.lines[usize::from(key)] = line;
        (done, effects)
    }

    /// The engine's thread does all it was asked to do.
    fn work(&mut self) {
        let mut runs = 0;
        while !self.process.jobs.is_empty() {
            self.engine();
            runs += 1;
            if runs > MANY_JOBS {
                *self.broken = Some(Invariant::Rest);
                return self.process.jobs.clear();
            }
        }
    }

    /// The engine's thread does the next thing it was asked to do, and the tasks take what they were given.
    pub(crate) fn engine_works(&mut self) {
        self.engine();
        self.settle();
    }

    fn engine(&mut self) {
        match self.process.jobs.pop_front() {
            None => {}
            Some(Job::Release(key, token, keep)) => self.give_back(key, token, keep),
            Some(Job::Run(key)) => {
                let ((), effects) = self.change(key, |line, now, side| line.run(now, side));
                effects.into_iter().for_each(|effect| self.carry_out(key, effect));
                if self.process.lines[usize::from(key)].due() <= self.process.now {
                    self.process.jobs.push_back(Job::Run(key));
                }
            }
        }
    }

    fn carry_out(&mut self, key: u8, effect: Effect) {
        match effect {
            Effect::Release(token, keep) => self.give_back(key, token, keep),
            Effect::Enter(Enter { token, term, ticket }) => {
                let terms = Terms::of(term);
                let (ttl, seen) = (terms.ttl.max(terms.min_hold), self.process.seen);
                let command = Command::Acquire { key, token, ttl, ticket, seen, is_try: false };
                self.send(command, Origin::Batch(terms));
            }
            Effect::Renew(Renew { token, ttl, draw, fence, .. }) => {
                let command = Command::Renew { key, token, ttl: ms(ttl), draws: draw };
                self.send(command, Origin::Renewal { fence });
            }
        }
    }
}

/// So many things at one moment are an engine that does not come to an end.
const MANY_JOBS: usize = 64;

impl Terms {
    pub(crate) fn of(term: Term) -> Self {
        let min_hold = term.min_hold.map_or(0, ms);
        Self { ttl: ms(term.ttl), renew: term.renewed, min_hold }
    }

    pub(crate) fn term(self) -> Term {
        let min_hold = (self.min_hold > 0).then(|| millis(self.min_hold));
        Term { ttl: millis(self.ttl), renewed: self.renew, max_hold: None, min_hold }
    }
}

pub(crate) fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

pub(crate) fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// The token under which a batch asks or owns.
pub(crate) fn token_of(batch: &Batch<Model>) -> Option<Token> {
    match &batch.stage {
        Stage::Leading { token, .. } => Some(*token),
        Stage::Queued(queued) => Some(queued.token),
        Stage::Owned(claims) => claims.iter().next().map(|claim| claim.token),
    }
}

/// The tokens under which a task may have been let in.
pub(crate) fn tokens_of_waiter(line: &Line<Model>, task: u32) -> impl Iterator<Item = Token> {
    let waits =
        move |batch: &&Batch<Model>| batch.waiters.iter().any(|(seat, _)| seat.task == task);
    let tokens = line.batches().filter(waits).map(|batch| match &batch.stage {
        Stage::Queued(queued) => [Some(queued.token), queued.instead_of],
        _ => [token_of(batch), None],
    });
    tokens.flatten().flatten()
}

/// The token of a batch that the server has said to stand in its queue.
pub(crate) fn standing(batch: &Batch<Model>) -> Option<Token> {
    match &batch.stage {
        Stage::Queued(queued) if queued.stands => Some(queued.token),
        _ => None,
    }
}

/// The batch sees to it that this token is released.
pub(crate) fn is_to_be_released(batch: &Batch<Model>, token: Token) -> bool {
    match &batch.stage {
        Stage::Queued(queued) => [queued.instead_of, queued.lost].contains(&Some(token)),
        _ => false,
    }
}
