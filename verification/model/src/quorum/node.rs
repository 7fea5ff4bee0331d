//! One server of a quorum: the scripts of every server, and what only a quorum asks.

use distlock_core::redlock::Accepted;

use super::{Mutant, Rules};
use crate::network::Hint;
use crate::server::{Acquired, Key, Script, Server, Wish};
use crate::token::Token;

/// The only lock.
const KEY: u8 = 0;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) server: Server,
    /// The largest fencing token that was accepted.
    accepted: u64,
    /// How often it has started, which is its `run_id`.
    pub(super) start: u32,
    /// A process has watched this start for as long as the guard, and has said so.
    pub(super) watched: bool,
}

/// What a node is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Command {
    /// `SET NX PX` and `ZADD GT` in one write.
    Vote {
        token: Token,
        proposal: u64,
    },
    Enter {
        token: Token,
        ticket: u64,
    },
    /// The same without a place in the queue.
    Fill {
        token: Token,
    },
    Offer {
        token: Token,
        ticket: u64,
    },
    Propose {
        proposal: u64,
    },
    Renew {
        token: Token,
    },
    Release {
        token: Token,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Reply {
    /// For how many ms the lock is another's, unless it is the token's.
    Voted {
        taken: Option<u32>,
        accepted: Accepted,
    },
    Entered(Acquired),
    Accepted(Accepted),
    /// Whether others wait, if the lock is the token's.
    Renewed(Option<bool>),
    /// An answer that is not waited for.
    Done,
}

impl Command {
    /// It may make a lock or a place in the queue.
    pub(super) fn creates(&self) -> Option<Token> {
        match *self {
            Self::Vote { token, .. } | Self::Enter { token, .. } | Self::Fill { token } => {
                Some(token)
            }
            _ => None,
        }
    }
}

impl Node {
    pub(super) fn new() -> Self {
        let server = Server { keys: vec![Key::default()], fence: 0, clock: 0 };
        Self { server, accepted: 0, start: 0, watched: true }
    }

    /// It starts again without any data.
    pub(super) fn restart(&mut self) {
        *self = Self { start: self.start + 1, watched: false, ..Self::new() };
    }

    pub(super) fn key(&self) -> &Key {
        &self.server.keys[usize::from(KEY)]
    }

    /// `ZADD GT CH`.
    fn accept(&mut self, proposal: u64, rules: &Rules) -> Accepted {
        if proposal > self.accepted || rules.breaks(Mutant::AcceptsAnyFence) {
            self.accepted = proposal;
            return Accepted::Yes;
        }
        Accepted::Above(self.accepted)
    }

    /// Runs a command, with the processes that listen. The answer, and the messages.
    pub(super) fn run(
        &mut self,
        rules: &Rules,
        listening: &[u16],
        command: Command,
    ) -> (Reply, Vec<Hint>) {
        let mut script = Script::new(&rules.cfg, &mut self.server, listening);
        let ttl = rules.ttl * super::TICK;
        let mut proposed = None;
        let mut reply = match command {
            Command::Vote { token, proposal } => {
                proposed = Some(proposal);
                let taken = !script.take(KEY, token, ttl);
                let left = script.server.keys[usize::from(KEY)].lock.end;
                Reply::Voted { taken: taken.then_some(left), accepted: Accepted::Yes }
            }
            Command::Enter { token, ticket } => {
                let wish = Wish { ttl, ticket, is_try: false, expired: false };
                Reply::Entered(script.acquire(KEY, token, wish))
            }
            Command::Fill { token } => {
                let wish = Wish { ttl, ticket: 0, is_try: true, expired: false };
                script.acquire(KEY, token, wish);
                Reply::Done
            }
            Command::Offer { token, ticket } => {
                if !rules.breaks(Mutant::OffersKeep) {
                    script.offer(KEY, token, ticket);
                }
                Reply::Done
            }
            Command::Propose { proposal } => {
                proposed = Some(proposal);
                Reply::Accepted(Accepted::Yes)
            }
            Command::Renew { token } => {
                let renewed = script.renew(KEY, token, ttl, false);
                Reply::Renewed(renewed.map(|(contended, _)| contended))
            }
            Command::Release { token } => {
                script.release(KEY, token, None);
                Reply::Done
            }
        };
        let published = script.published;
        // It stands behind the grant on the same connection.
        let said = proposed.map(|proposal| self.accept(proposal, rules));
        match (&mut reply, said) {
            // A vote does not say which one it has accepted.
            (Reply::Voted { accepted, .. }, Some(Accepted::Above(_))) => {
                *accepted = Accepted::Above(0);
            }
            (Reply::Voted { accepted, .. } | Reply::Accepted(accepted), Some(said)) => {
                *accepted = said;
            }
            _ => {}
        }
        // The scripts draw from the server's own counter, which a quorum makes no use of.
        self.server.fence = 0;
        (reply, published)
    }
}
