//! A task that wants locks, and how far it has come.

use distlock_core::line::{Grant, Limit, Position};

use super::shell::{Fault, Seat};
use super::{Moment, Process};
use crate::token::Token;

/// A call: it tries all its locks at once, then gets them one after the other, then has a body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Task {
    pub(crate) id: u32,
    /// Index into the scenario's `asks`.
    pub(crate) ask: u8,
    /// Ghost: the tick of its arrival, from which on its place in the queue counts where it has one.
    pub(crate) epoch: u32,
    /// Ghost: the tick in which it was known to stand there. It is later than that of its arrival if an answer
    /// or the message that called it was lost: until it looks again, others may pass.
    pub(crate) stands: u32,
    /// Ghost: how often it may still be overtaken, once for each expiry.
    pub(crate) licence: u8,
    /// Ghost: it may not stand in the queue, because an answer or a message to its process was lost.
    pub(crate) exempt: bool,
    /// It is no longer polled.
    pub(crate) dozes: bool,
    /// Ghost: it was not polled for a while, or sent its first command late.
    pub(crate) slept: bool,
    /// It has a first command that was not sent yet.
    pub(crate) unsent: bool,
    pub(crate) stage: Stage,
    /// Ghost: since when its body runs, if `min_hold` counts from there.
    pub(crate) since: Option<Moment>,
    /// One for each key, in order.
    pub(crate) parts: Vec<Part>,
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// It tries all its locks at once.
    AtOnce,
    /// It wants the lock of this part, and holds those before.
    Getting(u8),
    /// Its body runs.
    Body,
}

/// One of a task's locks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Part {
    pub(crate) key: u8,
    /// With how many others it wants the lock.
    pub(crate) limit: Limit,
    pub(crate) attempt: Option<Try>,
    pub(crate) place: Position,
    pub(crate) has: Has,
    /// Under which token its body runs.
    pub(crate) runs_under: Option<Token>,
    /// The token that it had the lock alone by, until the store has said that they are exchanged.
    pub(crate) instead_of: Option<Token>,
}

/// A try of a task's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Try {
    pub(crate) token: Token,
    /// Past the line.
    pub(crate) alone: bool,
    pub(crate) answer: Option<Result<Answer, Fault>>,
}

/// What the store has said to a try.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Answer {
    Granted { fence: u64, sent: Moment },
    Taken,
}

/// What has come of a part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Has {
    /// Nothing was asked, or its own try is under way.
    Nothing,
    /// It stands in the line.
    Waits,
    /// Its own, as soon as it takes it.
    Offered(Grant),
    /// It did not take it in time.
    PassedOver,
    Denied,
    Held(Grant),
    /// It held it, or could have.
    Lost,
}

pub(crate) const NOWHERE: Position = Position { batch: 0, at: 0 };

impl Has {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Waits => "waits",
            Self::Offered(_) => "offered",
            Self::PassedOver => "passed over",
            Self::Denied => "denied",
            Self::Held(_) => "held",
            Self::Lost => "lost",
        }
    }
}

impl Part {
    pub(super) fn new(key: u8, limit: Limit) -> Self {
        let (runs_under, instead_of) = (None, None);
        let (attempt, place, has) = (None, NOWHERE, Has::Nothing);
        Self { key, limit, attempt, place, has, runs_under, instead_of }
    }

    pub(crate) fn held(&self) -> Option<Grant> {
        match self.has {
            Has::Held(grant) => Some(grant),
            _ => None,
        }
    }
}

impl Task {
    pub(crate) fn is_complete(&self) -> bool {
        self.stage == Stage::Body
    }

    /// Its body runs: it is stopped when one of its leases is lost, or past its deadline.
    pub(crate) fn has_body(&self, now: Moment) -> bool {
        let held = |part: &Part| part.held().is_some_and(|grant| now < grant.deadline);
        self.is_complete() && self.parts.iter().all(held)
    }

    /// It has one lock, and has it alone.
    pub(crate) fn can_downgrade(&self) -> bool {
        let alone = |part: &Part| part.runs_under.is_some_and(|token| token.limit.is_alone());
        let [part] = &self.parts[..] else { return false };
        self.is_complete() && !self.dozes && part.held().is_some() && alone(part)
    }

    pub(crate) fn waits(&self) -> bool {
        !self.is_complete()
    }

    pub(crate) fn waits_for(&self, key: u8) -> bool {
        let wants = |part: &Part| part.key == key && part.held().is_none();
        let asked = |part: &Part| part.attempt.is_some() || part.has != Has::Nothing;
        self.waits() && self.parts.iter().any(|part| wants(part) && asked(part))
    }

    pub(crate) fn holds(&self, key: u8) -> bool {
        self.parts.iter().any(|part| part.key == key && part.held().is_some())
    }

    /// A try of its own goes by this token.
    pub(crate) fn tries(&self, key: u8, token: Token) -> bool {
        let of = |part: &Part| part.attempt.as_ref().is_some_and(|attempt| attempt.token == token);
        self.parts.iter().any(|part| part.key == key && of(part))
    }
}

impl Process {
    pub(super) fn task(&self, id: u32) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(super) fn task_mut(&mut self, id: u32) -> Option<&mut Task> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    pub(super) fn part_mut(&mut self, seat: Seat) -> Option<&mut Part> {
        self.task_mut(seat.task)?.parts.get_mut(usize::from(seat.part))
    }
}
