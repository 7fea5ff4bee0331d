//! A process: one engine with its connections, and what it believes. A second manager in the same
//! operating system process is a second process here, as it is to everybody else.
//!
//! The rules are split by what happens: `enter` (R1–R3, R12, R13), `hold` (R5, R6, R10), `free`
//! (R7–R9, `min_hold`), `hear` (R4), `connect` (losses) and `timers`.

mod connect;
mod enter;
mod free;
mod hear;
mod hold;
mod timers;

use crate::config::{Ask, Config};
use crate::mutants::Mutant;
use crate::network::{Command, Connection, Hint, Line, Sent};
use crate::token::{Fencing, Token};

/// A process and what it has under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// The server has a subscription of this process.
    pub(crate) subscribed: bool,
    /// The process knows its subscription to work.
    pub(crate) hears: bool,
    pub(crate) main: Line,
    pub(crate) renewals: Line,
    pub(crate) hints: Vec<Hint>,
    /// Commands on dead connections, which the server may still run.
    pub(crate) stale: Vec<Sent>,
    pub(crate) keys: Vec<KeyState>,
    pub(crate) chores: Vec<Chore>,
    /// The highest F seen; 0 where it is not compared.
    pub(crate) seen: u16,
    pub(crate) arrivals: u8,
    pub(crate) slow_ticks: u8,
}

/// The client's side of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct KeyState {
    /// In order of arrival; only the last can be open.
    pub(crate) batches: Vec<Batch>,
    /// R7: look after the one our release handed the lock to.
    pub(crate) repair: Option<Repair>,
}

/// R7's timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Repair {
    /// Whose release it was.
    pub(crate) token: Token,
    pub(crate) within: u8,
}

/// Neighbours in arrival order, who share one place in the queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Batch {
    pub(crate) token: Token,
    /// 0: none yet.
    pub(crate) ticket: u16,
    pub(crate) sealed: bool,
    /// R4b: ticks for which it admits arrivals although sealed.
    pub(crate) grace: u8,
    /// R4b: how many it admits in that time while it owns the lock.
    pub(crate) room: u8,
    /// For how long old bytes that create may still run.
    pub(crate) suspect: u8,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) stage: Stage,
    /// The first caller's fast path has not been sent yet.
    pub(crate) unsent: bool,
}

/// How far a batch has come.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// The fast path is under way.
    Trying,
    /// The first `acquire` is.
    Entering,
    /// In the queue; ticks until the next look, and ghost: ticks spent neither there nor granted.
    Queued {
        look: u8,
        outside: u8,
    },
    Owned(Lease),
}

/// What an owned batch has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lease {
    pub(crate) fence: u16,
    /// An F drawn by a renewal, for when the steps run out.
    pub(crate) next_fence: u16,
    /// The last fencing token given to a holder of this lease.
    pub(crate) last: Option<Fencing>,
    /// Ticks that are left.
    pub(crate) deadline: u8,
    /// Ticks since the command was sent whose answer came last.
    pub(crate) contact: u8,
    pub(crate) renew_in: u8,
    pub(crate) holder: Holder,
    pub(crate) awaits: Option<Awaited>,
    /// Ghost: ticks since the lock was taken away from outside.
    pub(crate) robbed: Option<u8>,
}

/// Who uses a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Holder {
    Nobody,
    /// Somebody who has not polled yet.
    Offered(Waiter, u8),
    /// A body runs; for so many ticks (counted up to its `min_hold`).
    Running(Waiter, u8),
    /// A holder of several keys that waits for another one.
    Part(Waiter),
}

/// What a lease without holder waits for before it can be handed over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Awaited {
    /// A renewal: the next holder's ttl is longer than what is left.
    Refresh,
    /// A new F.
    Fence,
}

/// A task that wants a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiter {
    /// Index into the scenario's `asks`.
    pub(crate) ask: u8,
    /// Ghost: the tick of its arrival.
    pub(crate) epoch: u16,
    /// Ghost: how often it may still be overtaken, once for each expiry.
    pub(crate) licence: u8,
    /// Ghost: a message to its process was lost, or could not be heard.
    pub(crate) exempt: bool,
    /// Nobody polls it any more.
    pub(crate) dozes: bool,
    /// It was offered the lock and did not take it.
    pub(crate) tried: bool,
}

/// A token that is given back (R8, R9).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Chore {
    pub(crate) key: u8,
    pub(crate) token: Token,
    /// For how long old bytes of its acquires may still run.
    pub(crate) suspect: u8,
    pub(crate) answered: bool,
    /// `min_hold`: when it is due.
    pub(crate) due: u8,
}

/// A body has started.
pub(crate) struct Started {
    pub(crate) key: u8,
    pub(crate) token: Token,
    pub(crate) epoch: u16,
    pub(crate) fencing: Fencing,
    /// Ticks it has, and asked for (without the margin).
    pub(crate) left: u8,
    pub(crate) asked: u8,
}

/// One process's turn: what happens to it, and what it does about it.
pub(crate) struct Turn<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) me: u8,
    pub(crate) process: &'a mut Process,
    /// The next sequence number.
    pub(crate) name: &'a mut u8,
    pub(crate) started: Vec<Started>,
}

impl Process {
    pub(crate) fn new(cfg: &Config) -> Self {
        Self {
            alive: true,
            subscribed: true,
            hears: true,
            main: Line::default(),
            renewals: Line::default(),
            hints: Vec::new(),
            stale: Vec::new(),
            keys: vec![KeyState::default(); usize::from(cfg.keys)],
            chores: Vec::new(),
            seen: 0,
            arrivals: cfg.arrivals.unwrap_or(u8::MAX),
            slow_ticks: cfg.faults.slow_ticks,
        }
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = (u8, &Batch)> {
        (0..).zip(&self.keys).flat_map(|(key, state)| state.batches.iter().map(move |b| (key, b)))
    }

    pub(crate) fn batch(&self, key: u8, token: Token) -> Option<&Batch> {
        self.keys[usize::from(key)].batches.iter().find(|batch| batch.token == token)
    }

    /// Tasks that wait or hold. One of several keys counts at its first.
    pub(crate) fn tasks(&self, cfg: &Config) -> usize {
        self.batches()
            .map(|(key, batch)| {
                batch
                    .members()
                    .filter(|task| cfg.asks[usize::from(task.ask)].keys[0] == key)
                    .count()
            })
            .sum()
    }

    /// A task that asked so waits or holds.
    pub(crate) fn uses(&self, ask: u8) -> bool {
        self.batches().any(|(_, batch)| batch.members().any(|task| task.ask == ask))
    }

    /// Nothing is under way that must arrive before the next tick.
    pub(crate) fn is_quiet(&self, lag: u8) -> bool {
        let lines = [&self.main, &self.renewals];
        lines.iter().all(|line| line.age().is_none_or(|age| age < lag))
            && (!self.alive || self.hints.is_empty() || lag > 0)
    }
}

impl Holder {
    /// Whoever it is.
    pub(crate) fn task(self) -> Option<Waiter> {
        match self {
            Self::Nobody => None,
            Self::Offered(task, _) | Self::Running(task, _) | Self::Part(task) => Some(task),
        }
    }
}

impl Batch {
    pub(crate) fn lease(&self) -> Option<&Lease> {
        if let Stage::Owned(lease) = &self.stage { Some(lease) } else { None }
    }

    pub(crate) fn lease_mut(&mut self) -> Option<&mut Lease> {
        if let Stage::Owned(lease) = &mut self.stage { Some(lease) } else { None }
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.lease().is_some()
    }

    /// Its waiters and its holder.
    fn members(&self) -> impl Iterator<Item = Waiter> {
        let holder = self.lease().and_then(|lease| lease.holder.task());
        self.waiters.iter().copied().chain(holder)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lease().is_some_and(|lease| matches!(lease.holder, Holder::Running(..)))
    }
}

impl Turn<'_> {
    fn ask(&self, waiter: Waiter) -> &Ask {
        &self.cfg.asks[usize::from(waiter.ask)]
    }

    fn batches(&mut self, key: u8) -> &mut Vec<Batch> {
        &mut self.process.keys[usize::from(key)].batches
    }

    fn index(&self, key: u8, token: Token) -> Option<usize> {
        let batches = &self.process.keys[usize::from(key)].batches;
        batches.iter().position(|batch| batch.token == token)
    }

    fn batch(&mut self, key: u8, token: Token) -> Option<&mut Batch> {
        self.batches(key).iter_mut().find(|batch| batch.token == token)
    }

    fn lease(&mut self, key: u8, token: Token) -> Option<&mut Lease> {
        self.batch(key, token)?.lease_mut()
    }

    fn token(&mut self, claim: u8) -> Token {
        let seq = *self.name;
        *self.name += 1;
        let deaf = self.cfg.mode_n && !self.process.hears;
        Token { process: self.me, seq, claim, deaf }
    }

    fn send(&mut self, command: Command) {
        let elsewhere =
            self.cfg.is(Mutant::JanitorElsewhere) && matches!(command, Command::Release { .. });
        let connection = match command {
            Command::Renew { .. } => Connection::Renewals,
            _ if elsewhere => Connection::Renewals,
            _ => Connection::Main,
        };
        let expires = self.cfg.not_after.filter(|_| matches!(command, Command::Acquire { .. }));
        let line = match connection {
            Connection::Main => &mut self.process.main,
            Connection::Renewals => &mut self.process.renewals,
        };
        line.requests.push(Sent { command, age: 0, expires, robbed: false });
    }

    /// The first waiter's ttl, or the ttl of any ask if nobody waits.
    fn ttl_of(&self, waiters: &[Waiter]) -> u8 {
        let first = waiters.first().map(|waiter| waiter.ask).unwrap_or_default();
        self.cfg.asks[usize::from(first)].ttl
    }

    fn look(&mut self, key: u8, token: Token) {
        let Some(batch) = self.batch(key, token) else { return };
        let (ticket, waiters) = (batch.ticket, batch.waiters.clone());
        let ttl = self.ttl_of(&waiters);
        self.send(Command::Acquire { key, token, ttl, ticket });
    }

    fn see(&mut self, fence: u16) {
        if self.cfg.server_time {
            self.process.seen = self.process.seen.max(fence);
        }
    }
}
