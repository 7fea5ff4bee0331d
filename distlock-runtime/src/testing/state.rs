//! What a server of the test kit keeps, and what its scripts would do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Moment;
use crate::itself::Itself;
use crate::name::StoredName;
use crate::store::owner::Owner;
use crate::store::{Limit, Listener, Message, Notification, Term};
use crate::token::Token;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) locks: HashMap<String, Lock>,
    pub(super) processes: HashMap<String, Process>,
    pub(super) fence: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lock {
    /// One that is alone, or any others together. Leases that are over may still be among them.
    pub(super) holders: Vec<Kept>,
    /// The waiting tokens, by ticket.
    pub(super) queue: BTreeMap<(u64, String), Arc<Owner>>,
}

impl Lock {
    /// Whether one more may hold the lock.
    pub(super) fn fits(&self, limit: Limit) -> bool {
        let first = self.holders.first();
        first.is_none_or(|first| limit.joins(first.limit, self.holders.len()))
    }

    pub(super) fn holder(&mut self, token: &str) -> Option<&mut Kept> {
        self.holders.iter_mut().find(|holder| holder.token == token)
    }

    /// How long it is until one more fits, if no holder leaves or is renewed.
    pub(super) fn remaining(&self, limit: Limit, now: Moment) -> Duration {
        let mut remaining: Vec<_> = self.holders.iter().map(|kept| kept.remaining(now)).collect();
        remaining.sort_unstable();
        // At least one has to leave: an exclusive holder has none beside it.
        let leave = limit.too_many(remaining.len()).max(1);
        remaining.get(leave - 1).copied().unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) token: String,
    pub(super) limit: Limit,
    pub(super) ttl: Duration,
    pub(super) until: Moment,
}

impl Kept {
    /// What is left of its lease. One without an end always has its whole ttl.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        if self.until == Moment::NEVER { self.ttl } else { self.until.since(now) }
    }
}

/// A process that can be notified, and how.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) listener: Arc<Listener>,
    pub(super) runtime: Handle,
    /// With its separator.
    pub(super) prefix: String,
    /// What it says of itself, if it may be known.
    pub(super) itself: Option<Itself>,
}

impl Process {
    /// Hands it a message of another process, behind what its runtime is doing.
    pub(super) fn receive(self, text: String) {
        self.runtime.clone().spawn(async move {
            match text.split_once(' ') {
                Some(("q", text)) => {
                    (self.listener)(Notification::Question { prefix: &self.prefix, text });
                }
                Some(("a", text)) => (self.listener)(Notification::Answer(text)),
                _ => {}
            }
        });
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Process")
    }
}

/// A notification, to be delivered once the state is free again.
pub(super) struct Told {
    pub(super) process: Process,
    pub(super) stored: StoredName,
    pub(super) token: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Reserved,
    WaiterBehind,
    TakenAway,
    Interrupted,
}

impl Told {
    /// Tells it on the process's own runtime, behind what that one is doing.
    pub(super) fn deliver(self) {
        let Self { process, stored, token, kind } = self;
        process.runtime.clone().spawn(async move {
            let message = Message { stored: &stored, token: &token };
            (process.listener)(match kind {
                Kind::Reserved => Notification::Reserved(message),
                Kind::WaiterBehind => Notification::WaiterBehind(message),
                Kind::TakenAway => Notification::TakenAway(message),
                Kind::Interrupted => Notification::Interrupted,
            });
        });
    }
}

impl State {
    pub(super) fn lock(&mut self, stored: &str) -> &mut Lock {
        self.locks.entry(stored.to_owned()).or_default()
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    pub(super) fn tell(&self, stored: &StoredName, token: &str, kind: Kind) -> Option<Told> {
        let process = self.processes.get(Token::parse(token)?.process)?.clone();
        Some(Told { process, stored: stored.clone(), token: token.to_owned(), kind })
    }

    /// Leases that are over give way to the first in the queue that can be notified, as long as they
    /// fit: afterwards the first one has to wait.
    pub(super) fn settle(&mut self, stored: &StoredName, now: Moment) -> Vec<Told> {
        let mut let_in = Vec::new();
        self.lock(stored).holders.retain(|holder| holder.until > now);
        loop {
            let lock = self.lock(stored);
            if lock.holders.first().is_some_and(|holder| holder.limit.is_alone()) {
                return let_in;
            }
            let Some(((ticket, token), waiter)) = lock.queue.pop_first() else { return let_in };
            // Its release is on the way. A server cannot know, and hands the lock on a moment later.
            if waiter.is_retired() {
                continue;
            }
            let fits = lock.fits(waiter.limit);
            // A dead waiter goes in any case: those behind may fit where it does not.
            let Some(told) = self.tell(stored, &token, Kind::Reserved) else { continue };
            if !fits {
                self.lock(stored).queue.insert((ticket, token), waiter);
                return let_in;
            }
            let ttl = Token::parse(&token).map_or(Duration::ZERO, |token| token.reservation);
            let kept = Kept { token, limit: waiter.limit, ttl, until: now.after(ttl) };
            self.lock(stored).holders.push(kept);
            let_in.push(told);
        }
    }

    pub(super) fn grant(&mut self, claim: &Owner, term: Term, now: Moment) -> u64 {
        let (ttl, stored) = (term.stored_for(), claim.lock.stored());
        sent(claim, now, ttl);
        let lock = self.lock(stored);
        lock.queue.retain(|(_, waiting), _| *waiting != claim.token);
        let until = now.after(ttl);
        match lock.holder(&claim.token) {
            Some(kept) => (kept.ttl, kept.until) = (ttl, kept.until.max(until)),
            None => {
                let token = claim.token.clone();
                lock.holders.push(Kept { token, limit: claim.limit, ttl, until });
            }
        }
        self.draw()
    }

    /// A place in the queue.
    pub(super) fn queue(&mut self, claim: &Arc<Owner>, ticket: u64, now: Moment) -> Place {
        sent(claim, now, Duration::ZERO);
        let drawn = if ticket == 0 { self.draw() } else { ticket };
        let queue = &mut self.lock(claim.lock.stored()).queue;
        let stands = queue.keys().find(|(_, token)| *token == claim.token).map(|(at, _)| *at);
        let ticket = stands.unwrap_or(drawn);
        queue.insert((ticket, claim.token.clone()), claim.clone());
        let rank = queue.keys().take_while(|(_, token)| *token != claim.token).count();
        let mut behind = queue.values().skip(rank + 1);
        // More readers may join one that only readers stand behind.
        let behind = match claim.limit.is_read() {
            true => usize::from(behind.any(|other| !other.limit.is_read())),
            false => behind.count(),
        };
        Place { ticket, rank, behind, added: stands.is_none(), is_last: rank + 1 == queue.len() }
    }

    /// Tells those that the one at this place stands behind.
    pub(super) fn tell_behind(&self, claim: &Owner, place: &Place) -> Vec<Told> {
        let stored = claim.lock.stored();
        let Some(lock) = self.locks.get(&**stored) else { return Vec::new() };
        let tell = |token: &str| self.tell(stored, token, Kind::WaiterBehind);
        let in_front = lock.queue.values().take(place.rank).rev();
        let readers = in_front.clone().take_while(|waiter| waiter.limit.is_read());
        match in_front.clone().next() {
            None => lock.holders.iter().filter_map(|holder| tell(&holder.token)).collect(),
            Some(_) if !(place.added && place.is_last) => Vec::new(),
            Some(last) if !last.limit.is_read() => tell(&last.token).into_iter().collect(),
            // Readers in a row are let in together, and one more only joins that row.
            Some(_) if claim.limit.is_read() => Vec::new(),
            Some(_) => readers.filter_map(|reader| tell(&reader.token)).collect(),
        }
    }
}

/// Where a token stands in a queue.
pub(super) struct Place {
    pub(super) ticket: u64,
    pub(super) rank: usize,
    pub(super) behind: usize,
    pub(super) added: bool,
    is_last: bool,
}

/// The claim may be in the store from here on.
pub(super) fn sent(claim: &Owner, now: Moment, ttl: Duration) {
    claim.sending(now, ttl, 1);
    claim.answered(1);
    claim.leaves_a_trace();
}
