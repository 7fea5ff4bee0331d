//! The server: its data, and the scripts as functions. Each runs at once and whole, as Lua does.

use crate::config::Config;
use crate::mutants::Mutant;
use crate::network::{Hint, HintKind};
use crate::token::Token;

/// What a lock that is kept for others has beyond the time when it is released, as in the script.
const KEEP_MARGIN: u32 = 100;

/// What the server keeps.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Server {
    pub(crate) keys: Vec<Key>,
    /// `f`, the fence counter.
    pub(crate) fence: u64,
    /// Server time, in units of which no tick draws as many fences; 0 where time does not count.
    pub(crate) clock: u64,
}

/// `L` and `q` of one key.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Key {
    pub(crate) lock: Lock,
    /// By ticket, lowest first.
    pub(crate) queue: Vec<Entry>,
    /// Only for a mutant that keeps a mark in the lock's value instead of looking at the queue.
    pub(crate) marked: bool,
}

/// `L`: a string, which is one that has it alone; or a sorted set of those that have it together, of
/// which some may have ended, as long as that is in no one's way; or nothing.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Lock {
    pub(crate) holders: Vec<Holder>,
    /// In how many ms the key expires.
    pub(crate) end: u32,
}

/// One that the lock is held by at the server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    /// What is left of its lease, in ms.
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

impl Entry {
    /// Of two with the same ticket, which only several servers have, the tokens decide.
    fn is_before(&self, ticket: u64, token: Token) -> bool {
        let order = |token: Token| (token.process, token.seq);
        (self.ticket, order(self.token)) < (ticket, order(token))
    }
}

/// An answer of `acquire` or `share`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Acquired {
    Granted {
        fence: u64,
        contended: bool,
    },
    Queued {
        ticket: u64,
        remaining: u32,
        rank: u64,
        behind: u64,
        added: bool,
    },
    /// A try came too early.
    Taken {
        remaining: u32,
    },
    Stale,
}

/// An answer of `release` or `leave`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Released {
    /// The lock was the token's until now.
    pub(crate) was_ours: bool,
    /// The tokens that were let in.
    pub(crate) next: Vec<Token>,
    /// It is kept, and others wait for it.
    pub(crate) awaited: bool,
}

/// What `acquire` and `share` are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) ttl: u32,
    pub(crate) ticket: u64,
    /// It leaves nothing if it cannot have the lock now.
    pub(crate) is_try: bool,
    /// It runs after its time.
    pub(crate) expired: bool,
}

/// One script call: the server, the listening processes, and the messages it publishes.
pub(crate) struct Script<'a> {
    pub(crate) cfg: &'a Config,
    pub(crate) server: &'a mut Server,
    /// `PUBSUB NUMSUB`: the identities that are subscribed.
    pub(crate) listening: &'a [u16],
    pub(crate) published: Vec<Hint>,
    /// Ghost: it has let in all that it could of this key's queue, and takes its own token for alive.
    pub(crate) admitted: Option<(u8, Option<Token>)>,
    /// Ghost: a token was let in beside more than its limit allows.
    pub(crate) crowded: bool,
}

// An exhaustive run copies states into those that it is done with.

impl Clone for Server {
    fn clone(&self) -> Self {
        Self { keys: self.keys.clone(), ..*self }
    }

    fn clone_from(&mut self, from: &Self) {
        self.keys.clone_from(&from.keys);
        (self.fence, self.clock) = (from.fence, from.clock);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self { lock: self.lock.clone(), queue: self.queue.clone(), marked: self.marked }
    }

    fn clone_from(&mut self, from: &Self) {
        self.lock.clone_from(&from.lock);
        self.queue.clone_from(&from.queue);
        self.marked = from.marked;
    }
}

impl Clone for Lock {
    fn clone(&self) -> Self {
        Self { holders: self.holders.clone(), end: self.end }
    }

    fn clone_from(&mut self, from: &Self) {
        self.holders.clone_from(&from.holders);
        self.end = from.end;
    }
}

impl Lock {
    pub(crate) fn of(&self, token: Token) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.token == token)
    }

    pub(crate) fn of_mut(&mut self, token: Token) -> Option<&mut Holder> {
        self.holders.iter_mut().find(|holder| holder.token == token)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holders.is_empty()
    }

    /// The exclusive holder: `v` of the scripts.
    pub(crate) fn alone(&self) -> Option<Token> {
        let first = self.holders.first()?;
        first.token.limit.is_alone().then_some(first.token)
    }

    /// Those whose lease has not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(|holder| holder.ttl > 0)
    }

    /// `end_with_last`: `PEXPIREAT` with the last score.
    fn end_with_last(&mut self) {
        self.end = self.holders.iter().map(|holder| holder.ttl).max().unwrap_or_default();
    }

    /// Whether another one with this limit could be let in now.
    pub(crate) fn has_room_for(&self, token: Token) -> bool {
        if self.alone().is_some() {
            return false;
        }
        token.limit.fits(self.live().count())
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<'a> Script<'a> {
    pub(crate) fn new(cfg: &'a Config, server: &'a mut Server, listening: &'a [u16]) -> Self {
        let (published, admitted, crowded) = (Vec::new(), None, false);
        Self { cfg, server, listening, published, admitted, crowded }
    }

    fn key(&mut self, key: u8) -> &mut Key {
        &mut self.server.keys[usize::from(key)]
    }

    fn lock(&mut self, key: u8) -> &mut Lock {
        &mut self.key(key).lock
    }

    fn tell(&mut self, kind: HintKind, key: u8, token: Token) {
        self.published.push(Hint { kind, key, token });
    }

    fn dequeue(&mut self, key: u8, token: Token) {
        self.key(key).queue.retain(|entry| entry.token != token);
    }

    /// `hold`: `SET PX` for one alone, `ZADD GT` and `PEXPIREAT` for others.
    fn hold(&mut self, key: u8, token: Token, ttl: u32, claimed: bool) {
        let last_comer_ends_it = self.cfg.is(Mutant::EndsWithTheLastComer);
        let others = self.lock(key).live().filter(|holder| holder.token != token).count();
        let alone = self.lock(key).alone().is_some_and(|alone| alone != token);
        self.crowded |= alone || !token.limit.fits(others);
        let state = self.key(key);
        state.marked = false;
        let new = Holder { token, ttl, claimed, kept: false, due: 0 };
        let lock = &mut state.lock;
        if token.limit.is_alone() || lock.alone().is_some() {
            lock.holders = vec![new];
        } else if let Some(holder) = lock.of_mut(token) {
            holder.ttl = holder.ttl.max(ttl);
        } else {
            lock.holders.push(new);
        }
        lock.end_with_last();
        if last_comer_ends_it {
            lock.end = ttl;
        }
    }

    /// `fits`: whether one more may hold the lock whose limit is this token's. Those whose leases have
    /// ended go if they are in the way.
    fn fits(&mut self, key: u8, token: Token) -> bool {
        let one_more = usize::from(self.cfg.is(Mutant::OneTooMany));
        let beside_readers = self.cfg.is(Mutant::AloneBesideOthers) && token.limit.is_alone();
        let lock = self.lock(key);
        if lock.alone().is_some() {
            return false;
        }
        if beside_readers || lock.is_free() {
            return true;
        }
        if !token.limit.fits(lock.holders.len()) {
            lock.holders.retain(|holder| holder.ttl > 0);
        }
        token.limit.fits(lock.holders.len().saturating_sub(one_more))
    }

    /// `admit`: lets in the first of the queue, and the next one, as long as they fit: each for its
    /// claim, and the `own` token for its ttl.
    fn admit(&mut self, key: u8, own: Option<(Token, u32)>) -> (bool, Vec<Token>) {
        self.admitted = Some((key, own.map(|(own, _)| own)));
        let (mut was_own, mut let_in) = (false, Vec::new());
        while self.lock(key).alone().is_none() {
            let Some(Entry { token, .. }) = self.key(key).queue.first().copied() else { break };
            let own = own.filter(|(own, _)| *own == token);
            let heard = token.deaf || self.listening.contains(&token.process);
            let lives = own.is_some() || heard || self.cfg.is(Mutant::KeepsTheDead);
            let stops = lives || self.cfg.is(Mutant::TheDeadHaveToFit);
            if stops && !self.fits(key, token) {
                break;
            }
            self.key(key).queue.remove(0);
            if let Some((_, ttl)) = own {
                self.hold(key, token, ttl, false);
                was_own = true;
            } else if lives {
                self.hold(key, token, token.claim, true);
                self.tell(HintKind::Grant, key, token);
                let_in.push(token);
            }
            if self.cfg.is(Mutant::LetsInOneAtATime) && !let_in.is_empty() {
                break;
            }
        }
        (was_own, let_in)
    }

    /// `fence`: max(previous + 1, server time).
    pub(crate) fn fence(&mut self) -> u64 {
        self.server.fence = (self.server.fence + 1).max(self.server.clock);
        self.server.fence
    }

    /// `SET NX PX`.
    pub(crate) fn take(&mut self, key: u8, token: Token, ttl: u32) -> bool {
        let free = self.lock(key).is_free();
        if free {
            self.hold(key, token, ttl, false);
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

    /// `confirm` and `acquire`, or `share` and `acquire`.
    pub(crate) fn acquire(&mut self, key: u8, token: Token, wish: Wish) -> Acquired {
        if wish.expired && !self.cfg.is(Mutant::NoNotAfter) {
            return Acquired::Stale;
        }
        let confirmed = match token.limit.is_alone() {
            true => self.confirm(key, token, wish.ttl),
            false => self.share(key, token, wish.ttl),
        };
        if confirmed { self.granted(key) } else { self.enter(key, token, wish) }
    }

    /// `confirm`: the owner of a reserved lock takes it.
    fn confirm(&mut self, key: u8, token: Token, ttl: u32) -> bool {
        let extends = !self.cfg.is(Mutant::ConfirmDoesNotExtend);
        let mine = self.lock(key).alone() == Some(token);
        if mine {
            self.dequeue(key, token);
            self.confirmed(key, token, if extends { ttl } else { 0 });
        }
        mine
    }

    /// `share`: one that was let in takes the lock, or one that is not alone finds the queue empty.
    fn share(&mut self, key: u8, token: Token, ttl: u32) -> bool {
        let extends = !self.cfg.is(Mutant::ConfirmDoesNotExtend);
        let blind = self.cfg.is(Mutant::ReadersPass);
        let Key { lock, queue, .. } = self.key(key);
        if lock.alone().is_some() {
            return false;
        }
        let mine = lock.of(token).is_some_and(|holder| holder.ttl > 0);
        let joins = (queue.is_empty() || blind) && token.limit.fits(lock.holders.len());
        if mine {
            self.confirmed(key, token, if extends { ttl } else { 0 });
        } else if joins {
            self.hold(key, token, ttl, false);
        }
        if mine || joins {
            self.dequeue(key, token);
        }
        mine || joins
    }

    fn confirmed(&mut self, key: u8, token: Token, ttl: u32) {
        let lock = self.lock(key);
        if let Some(holder) = lock.of_mut(token) {
            (holder.claimed, holder.kept) = (false, false);
            holder.ttl = holder.ttl.max(ttl);
        }
        lock.end_with_last();
    }

    fn granted(&mut self, key: u8) -> Acquired {
        let reused = self.cfg.is(Mutant::ConfirmReusesFence);
        let fence = if reused { self.server.fence.max(1) } else { self.fence() };
        Acquired::Granted { fence, contended: !self.key(key).queue.is_empty() }
    }

    /// `acquire`, behind its hot part.
    fn enter(&mut self, key: u8, token: Token, wish: Wish) -> Acquired {
        let Wish { ttl, ticket, is_try, .. } = wish;
        if is_try {
            self.admit(key, None);
        }
        let no_waiters = self.key(key).queue.is_empty() || self.cfg.is(Mutant::TakesWithoutQueue);
        if self.fits(key, token) && no_waiters {
            self.hold(key, token, ttl, false);
            self.dequeue(key, token);
            return self.granted(key);
        }
        if is_try {
            return Acquired::Taken { remaining: self.remaining(key, token) };
        }
        let had_ticket = ticket != 0;
        let ticket = if had_ticket { ticket } else { self.fence() };
        let known = self.key(key).queue.iter().any(|entry| entry.token == token);
        let twice = self.cfg.is(Mutant::AddsTwice);
        let added = (!known || twice) && !(had_ticket && self.cfg.is(Mutant::LookDoesNotReturn));
        if added && twice {
            self.key(key).queue.push(Entry { ticket, token });
        } else if added {
            self.stand(key, token, ticket);
        }
        // Free: lower tickets go first (I7).
        let (was_own, let_in) = self.admit(key, Some((token, ttl)));
        if was_own {
            return self.granted(key);
        }
        self.queued(key, token, ticket, (added, !let_in.is_empty()))
    }

    fn queued(
        &mut self,
        key: u8,
        token: Token,
        ticket: u64,
        (added, lets_in): (bool, bool),
    ) -> Acquired {
        let forgets = self.cfg.is(Mutant::AnswersFreshTicket);
        let remaining = self.remaining(key, token);
        let state = self.key(key);
        state.marked = true;
        let queue = &state.queue;
        let Some(rank) = queue.iter().position(|entry| entry.token == token) else {
            return Acquired::Queued { ticket, remaining, rank: 0, behind: 0, added };
        };
        let ticket = if forgets { ticket } else { queue[rank].ticket };
        let after = &queue[rank + 1..];
        // More readers may join one that only readers stand behind.
        let behind = match token.limit.is_read() {
            true => usize::from(after.iter().any(|entry| !entry.token.limit.is_read())),
            false => after.len(),
        };
        if !self.cfg.is(Mutant::NoSealMessage) {
            self.tell_behind(key, token, rank, added);
        }
        // Whoever lets others in sees to it that they come.
        let rank = if lets_in { 0 } else { rank as u64 };
        Acquired::Queued { ticket, remaining, rank, behind: behind as u64, added }
    }

    /// Those that another process waits behind (R4).
    fn tell_behind(&mut self, key: u8, token: Token, rank: usize, added: bool) {
        let (one_holder, one_reader) =
            (self.cfg.is(Mutant::TellsOneHolder), self.cfg.is(Mutant::TellsOneReader));
        let state = self.key(key);
        let is_last = rank + 1 == state.queue.len();
        let told: Vec<Token> = if rank == 0 || !added {
            let all = state.lock.holders.iter().map(|holder| holder.token);
            all.take(if one_holder { 1 } else { usize::MAX }).collect()
        } else if added && is_last {
            let mut before = state.queue[..rank].iter().rev().map(|entry| entry.token);
            match before.next() {
                Some(first) if !first.limit.is_read() => vec![first],
                // Readers in a row are let in together.
                Some(first) if !token.limit.is_read() => {
                    let row = before.take_while(|token| token.limit.is_read());
                    let row = std::iter::once(first).chain(row);
                    row.take(if one_reader { 1 } else { usize::MAX }).collect()
                }
                _ => Vec::new(),
            }
        } else {
            Vec::new()
        };
        told.into_iter().for_each(|token| self.tell(HintKind::Seal, key, token));
    }

    /// In how many ms there is room, if no holder leaves or is renewed.
    fn remaining(&mut self, key: u8, token: Token) -> u32 {
        let lock = self.lock(key);
        let too_many = token.limit.too_many(lock.holders.len());
        if lock.alone().is_some() || token.limit.is_alone() || too_many == 0 {
            return lock.end;
        }
        let mut ends: Vec<u32> = lock.holders.iter().map(|holder| holder.ttl).collect();
        ends.sort_unstable();
        ends[too_many - 1]
    }

    /// `free` and `release`, or `leave` and `release`.
    pub(crate) fn release(&mut self, key: u8, token: Token, keep: Option<u32>) -> Released {
        let blind = self.cfg.is(Mutant::BlindRelease);
        let marked = self.key(key).marked || !self.cfg.is(Mutant::MarkerForQueue);
        let lock = self.lock(key);
        let own = lock.of(token).is_some() || (blind && !lock.is_free());
        let end = match lock.alone() {
            Some(_) => 0,
            None => lock.end,
        };
        let mut released = Released { was_ours: own, next: Vec::new(), awaited: false };
        let waits = !self.key(key).queue.is_empty();
        match (own, keep) {
            (false, _) => self.dequeue(key, token),
            (true, Some(keep)) => {
                released.awaited = waits;
                self.keep(key, token, keep);
            }
            (true, None) if blind => self.lock(key).clear(),
            (true, None) => self.leave(key, token),
        }
        // The hot part looks no further if there is no waiter.
        let repairs = own || !self.cfg.is(Mutant::ReleaseDoesNotRepair);
        if waits && marked && repairs {
            released.next = self.admit(key, None).1;
        }
        // It knows when the lock was to end, which is earlier now.
        let first = self.key(key).queue.first().map(|entry| entry.token);
        let ends_earlier = !self.lock(key).is_free() && self.lock(key).end < end;
        let tells =
            ends_earlier && released.next.is_empty() && !self.cfg.is(Mutant::EarlierEndUntold);
        first.filter(|_| own && tells).into_iter().for_each(|first| {
            self.tell(HintKind::Grant, key, first);
        });
        released
    }

    fn leave(&mut self, key: u8, token: Token) {
        let lingers = self.cfg.is(Mutant::EndOfALeaverLingers);
        let all = self.cfg.is(Mutant::LeavesForAll);
        let lock = self.lock(key);
        let end = lock.end;
        lock.holders.retain(|holder| holder.token != token && !all);
        lock.end_with_last();
        if lingers && !lock.is_free() {
            lock.end = end;
        }
    }

    fn keep(&mut self, key: u8, token: Token, keep: u32) {
        let waits = u32::from(!self.key(key).queue.is_empty());
        let lock = self.lock(key);
        if let Some(holder) = lock.of_mut(token) {
            holder.ttl = keep + KEEP_MARGIN * waits;
            (holder.kept, holder.due) = (true, keep);
        }
        lock.end_with_last();
    }

    /// `renew` and `prolong`. `None`: not a holder. Otherwise whether there is a waiter, and a fence if
    /// one was asked for.
    pub(crate) fn renew(
        &mut self,
        key: u8,
        token: Token,
        ttl: u32,
        draws: bool,
    ) -> Option<(bool, Option<u64>)> {
        let shortens = self.cfg.is(Mutant::RenewShortens);
        let moves_no_end = self.cfg.is(Mutant::ProlongMovesNoEnd) && !token.limit.is_alone();
        if self.lock(key).is_free() && self.cfg.is(Mutant::RenewCreates) {
            self.hold(key, token, ttl, false);
        }
        let state = self.key(key);
        let contended = !state.queue.is_empty();
        let holder = state.lock.of_mut(token).filter(|holder| holder.ttl > 0)?;
        holder.ttl = if shortens { ttl } else { holder.ttl.max(ttl) };
        holder.claimed = false;
        if !moves_no_end {
            state.lock.end_with_last();
        }
        Some((contended, draws.then(|| self.fence())))
    }

    /// `downgrade`: readers at the front of the queue come along.
    pub(crate) fn exchange(
        &mut self,
        key: u8,
        old: Token,
        new: Token,
        ttl: u32,
    ) -> Option<(u64, bool)> {
        let anothers = self.cfg.is(Mutant::DowngradesAnothers);
        let alone = self.lock(key).alone();
        if alone == Some(old) || (anothers && alone.is_some()) {
            self.lock(key).clear();
        } else if self.lock(key).of(new).is_none() {
            return None;
        }
        self.hold(key, new, ttl, false);
        if !self.cfg.is(Mutant::DowngradesAlone) {
            self.admit(key, None);
        }
        Some((self.fence(), !self.key(key).queue.is_empty()))
    }

    /// `offer`: a token that has this node's vote steps back behind one that came earlier. Whether it did.
    pub(crate) fn offer(&mut self, key: u8, token: Token, ticket: u64) -> bool {
        let state = self.key(key);
        let earlier = state.queue.first().is_some_and(|first| first.is_before(ticket, token));
        let steps_back = state.lock.of(token).is_some() && earlier;
        if steps_back {
            self.stand(key, token, ticket);
            self.leave(key, token);
            self.admit(key, None);
        }
        steps_back
    }

    /// `ZADD NX`. Whether it did not stand there.
    fn stand(&mut self, key: u8, token: Token, ticket: u64) -> bool {
        let queue = &mut self.key(key).queue;
        let new = !queue.iter().any(|entry| entry.token == token);
        if new {
            let place = queue.partition_point(|entry| entry.is_before(ticket, token));
            queue.insert(place, Entry { ticket, token });
        }
        new
    }

    pub(crate) fn raise(&mut self, least: u64) -> u64 {
        self.server.fence = self.server.fence.max(self.server.clock).max(least);
        self.server.fence
    }

    /// `force_release`: `release` of each that holds it, and a message to them.
    pub(crate) fn force_release(&mut self, key: u8) -> Vec<Token> {
        let all: Vec<Token> = self.lock(key).holders.iter().map(|holder| holder.token).collect();
        for token in &all {
            self.release(key, *token, None);
            self.tell(HintKind::Taken, key, *token);
        }
        all
    }
}

impl Server {
    /// The state that was saved, as it is by now, in place of what came after it.
    pub(crate) fn restore(&mut self, saved: &Self) {
        self.keys.clone_from(&saved.keys);
        // What came after it is lost, and a `min_hold` may be.
        let holders = self.keys.iter_mut().flat_map(|key| &mut key.lock.holders);
        holders.for_each(|holder| holder.due = 0);
        self.fence = saved.fence;
    }

    /// So many ms pass. Answers the keys whose lock expired.
    pub(crate) fn tick(&mut self, tick: u32) -> Vec<u8> {
        let mut expired = Vec::new();
        for (number, key) in (0..).zip(&mut self.keys) {
            let Key { lock, marked, .. } = key;
            if lock.is_free() {
                continue;
            }
            for holder in &mut lock.holders {
                holder.ttl = holder.ttl.saturating_sub(tick);
                holder.due = holder.due.saturating_sub(tick);
            }
            lock.end = lock.end.saturating_sub(tick);
            if lock.end == 0 {
                lock.clear();
                *marked = false;
                expired.push(number);
            }
        }
        expired
    }
}
