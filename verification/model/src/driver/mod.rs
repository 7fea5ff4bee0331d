//! A process: the product's state machine of each lock, and around it what the product's shell is:
//! callers, connections, the engine's thread, releases that are repeated until they are confirmed.
//!
//! What a lock's line decides is not written here. `shell` carries it out, `call` has tasks ask for
//! locks and give them back, `answers` brings answers and messages, `release` sees releases through
//! (R7, R9), `connect` loses connections and subscriptions, `census` answers what others ask (R15), `time` lets
//! time pass.

mod answers;
mod call;
mod census;
mod connect;
mod downgrade;
mod input;
mod release;
mod shared;
mod shell;
mod task;
mod time;
mod trace;
mod visit;

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) use census::{Census, MALFORMED};
pub(crate) use distlock_core::clock::Moment;
use distlock_core::line::Limit;
pub(crate) use distlock_core::line::{Line, TOKENS_PER_FENCE};
pub(crate) use input::Input;
pub(crate) use shared::Shared;
pub(crate) use shell::{Model, Seat, millis, ms, tokens_of_waiter};
pub(crate) use task::Task;
pub(crate) use visit::Visit;

use self::release::{Chore, Repair};
use crate::config::Config;
use crate::invariants::Invariant;
use crate::network::{Command, Connection, Hint, Sent, Wire};
use crate::token::Token;

/// Every process's clock shows this at the beginning, and after every step of an exhaustive run.
pub(crate) const START: Moment = Moment::from_nanos(1_000_000_000_000_000);

/// A process and what it has under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Process {
    pub(crate) identity: u16,
    pub(crate) alive: bool,
    /// The server has a subscription of this process.
    pub(crate) subscribed: bool,
    /// The process knows its subscription to work.
    pub(crate) notified: bool,
    pub(crate) now: Moment,
    pub(crate) main: Wire,
    pub(crate) renewals: Wire,
    pub(crate) hints: VecDeque<Hint>,
    /// R15: what others ask of it, and it of others.
    pub(crate) census: Census,
    /// Commands on dead connections, which the server may still run.
    pub(crate) stale: VecDeque<Sent>,
    /// By key; vacant if no call here has or wants the lock.
    pub(crate) lines: Vec<Line<Model>>,
    pub(crate) tasks: Vec<Task>,
    /// What the engine's thread was asked to do.
    pub(crate) jobs: VecDeque<Job>,
    /// Releases that are not confirmed.
    pub(crate) chores: Vec<Chore>,
    /// R7: by key, the process to look after.
    pub(crate) repairs: Vec<Option<Repair>>,
    /// What is known of tokens that are in use.
    pub(crate) ledger: Vec<Entry>,
    /// The highest F seen; 0 where it is not compared.
    pub(crate) seen: u64,
    pub(crate) arrivals: u8,
    pub(crate) slow_ticks: u8,
    pub(crate) next_token: u32,
    pub(crate) next_batch: u64,
    pub(crate) next_task: u32,
}

/// Something that the engine's thread does when it comes to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Job {
    /// See to the line of a key.
    Run(u8),
    /// Release a token.
    Release(u8, Token, Option<Duration>),
}

impl Job {
    fn releases(&self, key: u8, token: Token) -> bool {
        matches!(self, Self::Release(of, own, _) if (*of, *own) == (key, token))
    }
}

/// What is known of a token, beside what its line knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) key: u8,
    pub(crate) token: Token,
    /// A command that could create the lock was sent.
    pub(crate) sent: bool,
    /// None is sent any more (R7).
    pub(crate) retired: bool,
    /// It was released with the wish to keep the lock until then.
    pub(crate) kept_until: Option<Moment>,
    /// Ghost: its last holder's `min_hold` is over then.
    pub(crate) not_before: Option<Moment>,
    /// For how many ticks bytes of it on a dead connection may still run.
    pub(crate) suspect: u8,
}

impl Entry {
    const NEW: Self = Self {
        key: 0,
        token: Token { process: 0, seq: 0, claim: 0, deaf: false, limit: Limit::ALONE },
        sent: false,
        retired: false,
        kept_until: None,
        not_before: None,
        suspect: 0,
    };
}

/// What waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Origin {
    /// A caller's own try.
    Try(Seat),
    /// A batch that waits, whose next one wants it on these terms.
    Batch(Terms),
    /// A lease, whose counter value is this.
    Renewal { fence: u64 },
    /// R4: a question whose the lock is.
    Question,
    /// R2: a try that was granted with an old counter value, when it was sent.
    Redraw { seat: Seat, at: Moment },
    /// A body that goes on as a reader, on these terms.
    Exchange { seat: Seat, terms: Terms },
    /// A release that is seen through.
    Chore,
    /// A release that is sent once.
    Once,
    /// Nothing: the answer is ignored.
    Unawaited,
}

/// A term of the product, in ms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: u32,
    pub(crate) renew: bool,
    pub(crate) min_hold: u32,
}

/// A body that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) key: u8,
    pub(crate) token: Token,
    /// With how many others it wants the lock, which its token may not say.
    pub(crate) limit: Limit,
    /// It may still be this one's: the store was asked to exchange them.
    pub(crate) or: Option<Token>,
}

/// A body has started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) key: u8,
    pub(crate) token: Token,
    pub(crate) epoch: u32,
    pub(crate) fencing: u64,
    /// What is left of its lease, and what it asked for; `None` if it was not started at once.
    pub(crate) left: Option<Duration>,
    pub(crate) asked: Duration,
    /// What its lock is stored for, at least.
    pub(crate) stored: Duration,
    /// It has other locks as well.
    pub(crate) several: bool,
    /// It is not renewed: it ends after what was asked for.
    pub(crate) fixed: bool,
}

impl Started {
    /// R6: it has about what it asked for.
    pub(crate) fn fits(&self) -> bool {
        let Some(left) = self.left else { return true };
        if self.several {
            // Renewed from time to time while it waited for the others.
            return self.asked / 5 <= left;
        }
        let more = (self.stored / 10).max(Duration::from_millis(100));
        let most = match self.fixed {
            true => self.asked,
            // Readers share what is there.
            false if self.token.limit.is_read() => Duration::MAX,
            false => self.stored + more,
        };
        // Nine tenths, after drift.
        self.asked * 9 / 10 <= left + Duration::from_millis(50) && left <= most
    }
}

/// One process's turn: what happens to it, and what it does about it.
pub(crate) struct Turn<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) process: &'a mut Process,
    /// Ghost: the tick.
    pub(crate) epoch: u32,
    pub(crate) started: &'a mut Vec<Started>,
    /// An invariant about a step that was violated.
    pub(crate) broken: &'a mut Option<Invariant>,
}

impl Process {
    pub(crate) fn new(cfg: &Config, identity: u16, seen: u64) -> Self {
        let keys = usize::from(cfg.keys);
        Self {
            identity,
            alive: true,
            subscribed: true,
            notified: true,
            now: START,
            main: Wire::default(),
            renewals: Wire::default(),
            hints: VecDeque::new(),
            census: Census::default(),
            stale: VecDeque::new(),
            lines: vec![Line::default(); keys],
            tasks: Vec::new(),
            jobs: VecDeque::new(),
            chores: Vec::new(),
            repairs: vec![None; keys],
            ledger: Vec::new(),
            seen,
            arrivals: cfg.arrivals_at(identity % u16::from(cfg.processes)),
            slow_ticks: cfg.faults.slow_ticks,
            next_token: 0,
            next_batch: 0,
            next_task: 0,
        }
    }

    pub(crate) fn wire(&self, connection: Connection) -> &Wire {
        match connection {
            Connection::Main => &self.main,
            Connection::Renewals => &self.renewals,
        }
    }

    fn line(&mut self, connection: Connection) -> &mut Wire {
        match connection {
            Connection::Main => &mut self.main,
            Connection::Renewals => &mut self.renewals,
        }
    }

    /// Nothing is under way that must arrive before the next tick.
    pub(crate) fn is_quiet(&self, lag: u8) -> bool {
        let wires = [&self.main, &self.renewals];
        let quiet = |wire: &&Wire| wire.age().is_none_or(|age| age < lag);
        let told = self.hints.is_empty() || lag > 0;
        wires.iter().all(quiet) && (!self.alive || (told && self.jobs.is_empty()))
    }

    /// It is gone, with all it knew. What it had sent `lingers` or is gone as well.
    pub(crate) fn die(&mut self, lingers: bool) {
        self.alive = false;
        self.notified = false;
        for wire in [&mut self.main, &mut self.renewals] {
            wire.answers.clear();
            if !lingers {
                wire.requests.clear();
            }
        }
        self.hints.clear();
        self.census = Census::default();
        self.lines.iter_mut().for_each(|line| *line = Line::default());
        self.tasks.clear();
        self.jobs.clear();
        self.chores.clear();
        self.repairs.fill(None);
        self.ledger.clear();
        (self.seen, self.arrivals, self.slow_ticks) = (0, 0, 0);
    }

    /// Time passes for what is under way.
    pub(crate) fn age(&mut self, cfg: &Config) {
        for sent in self.main.requests.iter_mut().chain(&mut self.stale) {
            sent.expires = sent.expires.map(|expires| expires.saturating_sub(cfg.tick));
        }
        for sent in &mut self.stale {
            sent.age = (sent.age + 1).min(cfg.stale_life.unwrap_or(0));
        }
        if let Some(life) = cfg.stale_life {
            self.stale.retain(|sent| sent.age < life);
        }
        for wire in [&mut self.main, &mut self.renewals] {
            wire.grow_old(cfg.oldest());
        }
    }

    /// The batches that wait or own, by key and place in the line, with their tokens.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u8, u8, Token)> {
        (0..).zip(&self.lines).flat_map(|(key, line)| {
            (0..)
                .zip(line.batches())
                .filter_map(move |(at, batch)| Some((key, at, shell::token_of(batch)?)))
        })
    }

    pub(crate) fn token_at(&self, key: u8, batch: u8) -> Option<Token> {
        self.places().find(|place| (place.0, place.1) == (key, batch)).map(|place| place.2)
    }

    /// The batches that wait at the server or are on their way there.
    pub(crate) fn queued(&self) -> impl Iterator<Item = (u8, Token)> {
        (0..).zip(&self.lines).flat_map(|(key, line)| {
            line.batches().filter_map(move |batch| Some((key, shell::standing(batch)?)))
        })
    }

    /// Its line, a caller or a release goes by this token.
    pub(crate) fn knows(&self, key: u8, token: Token) -> bool {
        let line = &self.lines[usize::from(key)];
        line.batches().any(|batch| batch.is_of(&|own: &Token| *own == token))
            || line.claims().any(|claim| claim.token == token || claim.exchange == Some(token))
            || line.lost().iter().any(|lost| lost.token == token)
            || self.tasks.iter().any(|task| task.tries(key, token))
    }

    /// For how long it takes the lock to be this token's.
    pub(crate) fn believes(&self, key: u8, token: Token) -> Duration {
        let claims = self.lines[usize::from(key)].claims();
        let own = claims.filter(|claim| claim.token == token || claim.exchange == Some(token));
        own.map(|claim| claim.deadline.since(self.now)).max().unwrap_or_default()
    }

    /// Bytes of it may still run where a connection died.
    pub(crate) fn is_in_doubt(&self, key: u8, token: Token) -> bool {
        self.known(key, token).is_some_and(|entry| entry.suspect > 0)
    }

    /// Something sees to it that what is created under this token is freed.
    pub(crate) fn accounts_for(&self, key: u8, token: Token) -> bool {
        let chore = |chore: &Chore| (chore.key, chore.token) == (key, token);
        self.knows(key, token)
            || self.chores.iter().any(chore)
            || self.jobs.iter().any(|job| job.releases(key, token))
            || self.lines[usize::from(key)]
                .batches()
                .any(|batch| shell::is_to_be_released(batch, token))
    }

    /// A caller has the lock in hand.
    pub(crate) fn uses(&self, key: u8) -> bool {
        self.tasks.iter().any(|task| task.holds(key))
    }

    pub(crate) fn bodies(&self) -> impl Iterator<Item = Body> {
        let bodies = self.tasks.iter().filter(|task| task.has_body(self.now));
        bodies.flat_map(|task| &task.parts).filter_map(|part| {
            let (key, limit, or) = (part.key, part.limit, part.instead_of);
            Some(Body { key, token: part.runs_under?, limit, or })
        })
    }
}

impl Turn<'_> {
    fn send(&mut self, command: Command, origin: Origin) {
        self.send_at(command, origin, self.process.now);
    }

    fn send_at(&mut self, command: Command, origin: Origin, at: Moment) {
        let connection = match (command, origin) {
            // R2: on the connection of the try that it repairs.
            (Command::Renew { .. }, Origin::Redraw { .. }) => Connection::Main,
            (Command::Renew { .. }, _) => Connection::Renewals,
            _ => Connection::Main,
        };
        if let Some((key, token)) = command.creates() {
            self.process.entry(key, token).sent = true;
        }
        let expires = self.cfg.not_after.filter(|_| matches!(command, Command::Acquire { .. }));
        let (is_stale, robbed) = (false, false);
        let sent = Sent { command, origin, at, age: 0, expires, is_stale, robbed };
        self.process.line(connection).requests.push_back(sent);
    }

    fn see(&mut self, fence: u64) {
        if self.cfg.server_time {
            self.process.seen = self.process.seen.max(fence);
        }
    }
}

impl Process {
    /// What is known of a token, from now on.
    fn entry(&mut self, key: u8, token: Token) -> &mut Entry {
        let found = self.ledger.iter().position(|entry| (entry.key, entry.token) == (key, token));
        let at = found.unwrap_or_else(|| {
            self.ledger.push(Entry { key, token, ..Entry::NEW });
            self.ledger.len() - 1
        });
        &mut self.ledger[at]
    }

    fn known(&self, key: u8, token: Token) -> Option<&Entry> {
        self.ledger.iter().find(|entry| (entry.key, entry.token) == (key, token))
    }
}
