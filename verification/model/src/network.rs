//! What is between the processes and the server: commands and answers in order on each connection,
//! and messages (hints) on the subscriber's.

use crate::server::{Acquired, Released};
use crate::token::Token;

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HintKind {
    /// `g`: look, it may be yours.
    Grant,
    /// `s`: somebody stands behind you.
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

/// What a process sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Command {
    /// `SET NX PX` with `INCR`; `seen` is the highest F read before the send.
    Take {
        key: u8,
        token: Token,
        ttl: u8,
        seen: u16,
    },
    /// `INCR` alone, where the two are told apart.
    Draw {
        key: u8,
        token: Token,
        taken: bool,
        seen: u16,
    },
    Acquire {
        key: u8,
        token: Token,
        ttl: u8,
        ticket: u16,
    },
    Release {
        key: u8,
        token: Token,
        keep: u8,
    },
    Renew {
        key: u8,
        token: Token,
        ttl: u8,
        draws: bool,
    },
    Raise {
        least: u16,
    },
}

impl Command {
    /// The lock's token, if the command can make a lock or a place in the queue.
    pub(crate) fn creates(&self) -> Option<(u8, Token)> {
        match *self {
            Self::Take { key, token, .. } | Self::Acquire { key, token, .. } => Some((key, token)),
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

    pub(crate) fn token(&self) -> Option<Token> {
        { *self }.token_mut().copied()
    }

    pub(crate) fn token_mut(&mut self) -> Option<&mut Token> {
        match self {
            Self::Take { token, .. }
            | Self::Draw { token, .. }
            | Self::Acquire { token, .. }
            | Self::Release { token, .. }
            | Self::Renew { token, .. } => Some(token),
            Self::Raise { .. } => None,
        }
    }
}

/// A command under way, or its bytes on a dead connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sent {
    pub(crate) command: Command,
    /// Ticks of the sender's clock since the send (of a dead connection: since its death).
    pub(crate) age: u8,
    /// Ticks of the server's clock until `not_after`.
    pub(crate) expires: Option<u8>,
    /// Ghost: the lock that the first half took was taken away meanwhile.
    pub(crate) robbed: bool,
}

/// What the server says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Result {
    Taken {
        ok: bool,
        fence: u16,
    },
    Acquired(Acquired),
    Released(Released),
    /// Whether somebody waits, and a fence if one was asked for.
    Renewed(Option<(bool, u16)>),
    Raised {
        fence: u16,
    },
}

/// An answer under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Answer {
    pub(crate) command: Command,
    pub(crate) age: u8,
    pub(crate) result: Result,
    /// Ghost: the lock it grants was taken away meanwhile.
    pub(crate) robbed: bool,
}

/// One connection: first in, first out.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Line {
    pub(crate) requests: Vec<Sent>,
    pub(crate) answers: Vec<Answer>,
}

impl Line {
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.answers.is_empty()
    }

    /// How long the oldest message has been under way.
    pub(crate) fn age(&self) -> Option<u8> {
        let requests = self.requests.iter().map(|sent| sent.age);
        requests.chain(self.answers.iter().map(|answer| answer.age)).max()
    }

    /// The sender's clock ticks.
    pub(crate) fn grow_old(&mut self, oldest: u8) {
        let ages = self.requests.iter_mut().map(|sent| &mut sent.age);
        for age in ages.chain(self.answers.iter_mut().map(|answer| &mut answer.age)) {
            *age = oldest.min(*age + 1);
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
