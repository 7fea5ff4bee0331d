//! The server: its data, and the scripts as functions. Each runs at once and whole, as Lua does.

use crate::config::Config;
use crate::mutants::Mutant;
use crate::network::{Hint, HintKind};
use crate::token::Token;

/// What a lock that is kept for others has beyond the time when it is released, as in the script.
const KEEP_MARGIN: u32 = 100;

/// What the server keeps.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Server {
    pub(crate) keys: Vec<Key>,
    /// `f`, the fence counter.
    pub(crate) fence: u64,
    /// Server time, in units of which no tick draws as many fences; 0 where time does not count.
    pub(crate) clock: u64,
}

/// `L` and `q` of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Key {
    pub(crate) lock: Option<Lock>,
    /// By ticket, lowest first.
    pub(crate) queue: Vec<Entry>,
    /// Only for a mutant that keeps a mark in the lock's value instead of looking at the queue.
    pub(crate) marked: bool,
}

/// The value of `L`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lock {
    pub(crate) token: Token,
    pub(crate) ttl: u32,
    /// Reserved by a script, not confirmed. The server cannot tell; invariants can.
    pub(crate) claimed: bool,
    /// Kept for `min_hold` after its holder ended.
    pub(crate) kept: bool,
    /// Ghost: for how long it must not be free yet. A renewal that is late may keep it longer.
    pub(crate) due: u32,
}

/// A member of `q`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) ticket: u64,
    pub(crate) token: Token,
}

/// An answer of `acquire`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Acquired {
    Granted { fence: u64, contended: bool },
    Queued { ticket: u64, remaining: u32, rank: u64, behind: u64, added: bool },
    Stale,
}

/// An answer of `release`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Released {
    /// The lock was the token's until now.
    pub(crate) was_ours: bool,
    /// Whom the lock was handed to.
    pub(crate) next: Option<Token>,
    /// It is kept, and others wait for it.
    pub(crate) awaited: bool,
}

/// One script call: the server, who listens, and the messages it publishes.
pub(crate) struct Script<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) server: &'a mut Server,
    /// `PUBSUB NUMSUB`: the identities that are subscribed.
    pub(crate) listening: &'a [u16],
    pub(crate) published: Vec<Hint>,
}

impl Script<'_> {
    fn key(&mut self, key: u8) -> &mut Key {
        &mut self.server.keys[usize::from(key)]
    }

    fn tell(&mut self, kind: HintKind, key: u8, token: Token) {
        self.published.push(Hint { kind, key, token });
    }

    fn set(&mut self, key: u8, token: Token, ttl: u32, claimed: bool) {
        let key = self.key(key);
        key.lock = Some(Lock { token, ttl, claimed, kept: false, due: 0 });
        key.marked = false;
    }

    fn remove(&mut self, key: u8, token: Token) {
        self.key(key).queue.retain(|entry| entry.token != token);
    }

    /// `reserve`: false if the process cannot hear.
    fn reserve(&mut self, key: u8, token: Token) -> bool {
        let heard = self.listening.contains(&token.process);
        if !token.deaf && !heard && !self.cfg.is(Mutant::SkipsNobody) {
            return false;
        }
        self.set(key, token, token.claim, true);
        self.tell(HintKind::Grant, key, token);
        true
    }

    /// `hand_on`: the lock is the caller's, or absent.
    fn hand_on(&mut self, key: u8) -> Option<Token> {
        loop {
            if self.key(key).queue.is_empty() {
                self.key(key).lock = None;
                return None;
            }
            let entry = self.key(key).queue.remove(0);
            if self.reserve(key, entry.token) {
                return Some(entry.token);
            }
        }
    }

    /// `fence`: max(previous + 1, server time).
    pub(crate) fn fence(&mut self) -> u64 {
        self.server.fence = (self.server.fence + 1).max(self.server.clock);
        self.server.fence
    }

    /// `SET NX PX`.
    pub(crate) fn take(&mut self, key: u8, token: Token, ttl: u32) -> bool {
        let free = self.key(key).lock.is_none();
        if free {
            self.set(key, token, ttl, false);
        }
        free
    }

    /// `INCR`.
    fn draw(&mut self) -> u64 {
        self.server.fence += 1;
        self.server.fence
    }

    /// The fast path's `INCR`, with `raise` in front of it where time counts (R2).
    pub(crate) fn draw_with_raise(&mut self) -> u64 {
        if self.cfg.server_time { self.fence() } else { self.draw() }
    }

    pub(crate) fn acquire(
        &mut self,
        key: u8,
        token: Token,
        ttl: u32,
        ticket: u64,
        expired: bool,
    ) -> Acquired {
        if expired && !self.cfg.is(Mutant::NoNotAfter) {
            return Acquired::Stale;
        }
        let mine = |key: &Key| key.lock.is_some_and(|lock| lock.token == token);
        let had_ticket = ticket != 0;
        let ticket = if mine(self.key(key)) || had_ticket { ticket } else { self.fence() };
        while self.key(key).lock.is_none() {
            let head = self.key(key).queue.first().copied();
            match head {
                Some(head) if head.ticket < ticket && !self.cfg.is(Mutant::TakesWithoutQueue) => {
                    self.remove(key, head.token);
                    self.reserve(key, head.token);
                }
                _ => self.set(key, token, ttl, false),
            }
        }
        if mine(self.key(key)) {
            self.remove(key, token);
            let extends = !self.cfg.is(Mutant::ConfirmDoesNotExtend);
            let fence = if self.cfg.is(Mutant::ConfirmReusesFence) {
                self.server.fence.max(1)
            } else {
                self.fence()
            };
            let key = self.key(key);
            let contended = !key.queue.is_empty();
            if let Some(lock) = &mut key.lock {
                lock.claimed = false;
                lock.kept = false;
                if extends {
                    lock.ttl = lock.ttl.max(ttl);
                }
            }
            return Acquired::Granted { fence, contended };
        }
        let known = self.key(key).queue.iter().any(|entry| entry.token == token);
        let twice = self.cfg.is(Mutant::AddsTwice);
        let added = (!known || twice) && !(had_ticket && self.cfg.is(Mutant::LookDoesNotReturn));
        if added {
            let queue = &mut self.key(key).queue;
            let place = if twice {
                queue.len()
            } else {
                queue.partition_point(|entry| entry.ticket < ticket)
            };
            queue.insert(place, Entry { ticket, token });
        }
        self.answer_queued(key, token, ticket, added)
    }

    fn answer_queued(&mut self, key: u8, token: Token, ticket: u64, added: bool) -> Acquired {
        let unsealed = self.cfg.is(Mutant::NoSealMessage);
        let forgets = self.cfg.is(Mutant::AnswersFreshTicket);
        let state = self.key(key);
        state.marked = true;
        let Some(lock) = state.lock else { unreachable!("a free lock was taken above") };
        let Some(rank) = state.queue.iter().position(|entry| entry.token == token) else {
            return Acquired::Queued { ticket, remaining: lock.ttl, rank: 0, behind: 0, added };
        };
        let ticket = if forgets { ticket } else { state.queue[rank].ticket };
        let behind = (state.queue.len() - 1 - rank) as u64;
        let before = rank.checked_sub(1).map(|rank| state.queue[rank].token);
        if !unsealed {
            match before {
                None => self.tell(HintKind::Seal, key, lock.token),
                Some(before) if added && behind == 0 => self.tell(HintKind::Seal, key, before),
                Some(_) => {}
            }
        }
        Acquired::Queued { ticket, remaining: lock.ttl, rank: rank as u64, behind, added }
    }

    pub(crate) fn release(&mut self, key: u8, token: Token, keep: Option<u32>) -> Released {
        let lock = self.key(key).lock;
        let blind = self.cfg.is(Mutant::BlindRelease);
        if lock.is_some_and(|lock| lock.token == token || blind) {
            if let Some(keep) = keep {
                let awaited = !self.key(key).queue.is_empty();
                if let Some(lock) = &mut self.key(key).lock {
                    lock.ttl = keep + KEEP_MARGIN * u32::from(awaited);
                    lock.kept = true;
                    lock.due = keep;
                }
                return Released { was_ours: true, next: None, awaited };
            }
            if self.cfg.is(Mutant::MarkerForQueue) && !self.key(key).marked {
                self.key(key).lock = None;
                return Released { was_ours: true, next: None, awaited: false };
            }
            return Released { was_ours: true, next: self.hand_on(key), awaited: false };
        }
        self.remove(key, token);
        let repairs =
            !self.cfg.is(Mutant::ReleaseDoesNotRepair) && !self.cfg.is(Mutant::MarkerForQueue);
        let next = if lock.is_none() && repairs { self.hand_on(key) } else { None };
        Released { was_ours: false, next, awaited: false }
    }

    /// `None`: not the holder. Otherwise whether somebody waits, and a fence if one was asked for.
    pub(crate) fn renew(
        &mut self,
        key: u8,
        token: Token,
        ttl: u32,
        draws: bool,
    ) -> Option<(bool, Option<u64>)> {
        let shortens = self.cfg.is(Mutant::RenewShortens);
        if self.key(key).lock.is_none() && self.cfg.is(Mutant::RenewCreates) {
            self.set(key, token, ttl, false);
        }
        let state = self.key(key);
        let contended = !state.queue.is_empty();
        let lock = state.lock.as_mut().filter(|lock| lock.token == token)?;
        lock.ttl = if shortens { ttl } else { lock.ttl.max(ttl) };
        Some((contended, draws.then(|| self.fence())))
    }

    pub(crate) fn raise(&mut self, least: u64) -> u64 {
        self.server.fence = self.server.fence.max(self.server.clock).max(least);
        self.server.fence
    }

    /// `force_release`: `release` of whoever holds it, and a message to them.
    pub(crate) fn force_release(&mut self, key: u8) -> Option<Token> {
        let token = self.key(key).lock?.token;
        self.release(key, token, None);
        self.tell(HintKind::Taken, key, token);
        Some(token)
    }
}

impl Server {
    /// So many ms pass. Answers the keys whose lock expired.
    pub(crate) fn tick(&mut self, tick: u32) -> Vec<u8> {
        let mut expired = Vec::new();
        for (number, key) in (0..).zip(&mut self.keys) {
            let Some(lock) = &mut key.lock else { continue };
            lock.ttl = lock.ttl.saturating_sub(tick);
            lock.due = lock.due.saturating_sub(tick);
            if lock.ttl == 0 {
                key.lock = None;
                key.marked = false;
                expired.push(number);
            }
        }
        expired
    }
}
