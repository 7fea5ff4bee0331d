//! What is between the processes and the server: commands and answers in order on each connection,
//! and messages (hints) on the subscriber's.

use std::collections::VecDeque;

use crate::driver::{Moment, Origin};
use crate::server::{Acquired, Released};
use crate::token::Token;

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HintKind {
    /// `g`: look, it may be yours.
    Grant,
    /// `s`: another process stands behind you.
    Seal,
    /// `x`: taken away.
    Taken,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Hint {
    pub(crate) kind: HintKind,
    pub(crate) key: u8,
    pub(crate) token: Token,
}

/// R15: what processes say to each other. It comes over the same channel as hints, but in a list of its own:
/// it may be late for ever, and nothing waits for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Word {
    /// What follows `q`, also if it is forged.
    Question(String),
    /// The nonces of `a`.
    Answer(Vec<String>),
}

/// What is sent as a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Question {
    /// What do you hold, and wait for?
    All,
    /// One that its sender does not know of.
    Forged,
    /// The last one that is on its way, once more.
    Again,
    /// No question, in one of several ways.
    Malformed(u8),
}

/// What a process sends. Times are in ms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Command {
    /// `SET NX PX` with `INCR`; `seen` is the highest F read before the send.
    Take {
        key: u8,
        token: Token,
        ttl: u32,
        seen: u64,
    },
    /// `INCR` alone, where the two are separate steps.
    Draw {
        key: u8,
        token: Token,
        ttl: u32,
        taken: bool,
        seen: u64,
    },
    Acquire {
        key: u8,
        token: Token,
        ttl: u32,
        ticket: u64,
        seen: u64,
        /// It does not stand in the queue.
        is_try: bool,
    },
    Release {
        key: u8,
        token: Token,
        keep: Option<u32>,
    },
    Renew {
        key: u8,
        token: Token,
        ttl: u32,
        draws: bool,
    },
    Raise {
        least: u64,
    },
    /// A lock that `old` has alone becomes one that `token` reads.
    Exchange {
        key: u8,
        token: Token,
        old: Token,
        ttl: u32,
        seen: u64,
    },
}

impl Command {
    /// The lock's token, if the command can make a lock or a place in the queue.
    pub(crate) fn creates(&self) -> Option<(u8, Token)> {
        match *self {
            Self::Take { key, token, .. }
            | Self::Acquire { key, token, .. }
            | Self::Exchange { key, token, .. } => Some((key, token)),
            Self::Draw { .. } | Self::Release { .. } | Self::Renew { .. } | Self::Raise { .. } => {
                None
            }
        }
    }

    /// The lock whose grant the answer can be.
    pub(crate) fn grants(&self) -> Option<(u8, Token)> {
        match *self {
            Self::Draw { key, token, .. } => Some((key, token)),
            _ => self.creates(),
        }
    }

    /// The lock whose lease the answer can begin or extend.
    pub(crate) fn believed(&self) -> Option<(u8, Token)> {
        match *self {
            Self::Renew { key, token, .. } => Some((key, token)),
            _ => self.grants(),
        }
    }

    pub(crate) fn token(&self) -> Option<Token> {
        { *self }.token_mut().copied()
    }

    pub(crate) fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Self::Take { token, .. }
            | Self::Draw { token, .. }
            | Self::Acquire { token, .. }
            | Self::Release { token, .. }
            | Self::Renew { token, .. }
            | Self::Exchange { token, .. } => Some(token),
            Self::Raise { .. } => None,
        }
    }
}

/// A command under way, or its bytes on a dead connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sent {
    pub(crate) command: Command,
    /// What waits for its answer.
    pub(crate) origin: Origin,
    /// The sender's clock before it was sent.
    pub(crate) at: Moment,
    /// Ticks since the send (of a dead connection: since its death).
    pub(crate) age: u8,
    /// ms of the server's clock until `not_after`.
    pub(crate) expires: Option<u32>,
    /// Its connection is dead.
    pub(crate) is_stale: bool,
    /// Ghost: the lock that the first half took was taken away meanwhile.
    pub(crate) robbed: bool,
}

impl Sent {
    /// Its answer is waited for.
    pub(crate) fn is_awaited(&self) -> bool {
        self.origin != Origin::Unawaited
    }
}

/// What the server says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Result {
    Taken {
        ok: bool,
        fence: u64,
    },
    Acquired(Acquired),
    Released(Released),
    /// Whether others stand in the queue, and a fence if one was asked for.
    Renewed(Option<(bool, Option<u64>)>),
    Raised {
        fence: u64,
    },
    /// The counter value and whether others stand in the queue; `None` if the lock was neither token's.
    Exchanged(Option<(u64, bool)>),
}

/// An answer under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Answer {
    pub(crate) sent: Sent,
    pub(crate) result: Result,
}

/// One connection: first in, first out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Wire {
    pub(crate) requests: VecDeque<Sent>,
    pub(crate) answers: VecDeque<Answer>,
}

impl Wire {
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.answers.is_empty()
    }

    /// What was sent and has not been heard of.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Sent> {
        self.answers.iter().map(|answer| &answer.sent).chain(&self.requests)
    }

    pub(crate) fn under_way_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        let answers = self.answers.iter_mut().map(|answer| &mut answer.sent);
        answers.chain(&mut self.requests)
    }

    /// Ghost: the lock of a token was taken away from outside.
    pub(crate) fn robbed(&mut self, token: Token) {
        let of_lock = |sent: &Sent| sent.command.token() == Some(token);
        for answer in &mut self.answers {
            answer.sent.robbed |= of_lock(&answer.sent);
        }
        for sent in &mut self.requests {
            sent.robbed |= of_lock(sent) && matches!(sent.command, Command::Draw { .. });
        }
    }

    /// How many ticks the oldest message has been under way.
    pub(crate) fn age(&self) -> Option<u8> {
        self.under_way().map(|sent| sent.age).max()
    }

    /// The sender's clock ticks.
    pub(crate) fn grow_old(&mut self, oldest: u8) {
        for sent in self.under_way_mut() {
            sent.age = oldest.min(sent.age + 1);
        }
    }
}

/// The connections of one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Connection {
    /// Everything that may make or free a lock.
    Main,
    /// Renewals.
    Renewals,
}
