//! What a server of the test kit keeps, and what its scripts would do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Moment;
use crate::name::StoredName;
use crate::store::owner::Owner;
use crate::store::{Listener, Message, Notification, Term};
use crate::token::Token;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) locks: HashMap<String, Lock>,
    pub(super) processes: HashMap<String, Process>,
    pub(super) fence: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) owner: Option<Kept>,
    /// The waiting tokens, by ticket.
    pub(super) queue: BTreeMap<(u64, String), Arc<Owner>>,
}

#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) token: String,
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

    /// The owner of a lock whose lease has not run out.
    pub(super) fn owner(&self, stored: &str, now: Moment) -> Option<&Kept> {
        let owner = self.locks.get(stored)?.owner.as_ref();
        owner.filter(|owner| owner.until > now)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    pub(super) fn tell(&self, stored: &StoredName, token: &str, kind: Kind) -> Option<Told> {
        let process = self.processes.get(Token::parse(token)?.process)?.clone();
        Some(Told { process, stored: stored.clone(), token: token.to_owned(), kind })
    }

    /// An owner whose lease has run out gives way to the next in the queue that can be notified.
    pub(super) fn settle(&mut self, stored: &StoredName, now: Moment) -> Option<Told> {
        if self.owner(stored, now).is_some() {
            return None;
        }
        self.lock(stored).owner = None;
        while let Some(((_, token), claim)) = self.lock(stored).queue.pop_first() {
            // Its release is on the way. A server cannot know, and hands the lock on a moment later.
            if claim.is_retired() {
                continue;
            }
            if let Some(told) = self.tell(stored, &token, Kind::Reserved) {
                let ttl = Token::parse(&token).map_or(Duration::ZERO, |token| token.reservation);
                self.lock(stored).owner = Some(Kept { token, ttl, until: now.after(ttl) });
                return Some(told);
            }
        }
        None
    }

    pub(super) fn grant(&mut self, claim: &Owner, term: Term, now: Moment) -> u64 {
        let (ttl, stored) = (term.stored_for(), claim.lock.stored());
        sent(claim, now, ttl);
        let token = claim.token.clone();
        let lock = self.lock(stored);
        lock.queue.retain(|(_, waiting), _| *waiting != token);
        let before = lock.owner.take_if(|owner| owner.token == token);
        let until = before.map_or(now.after(ttl), |owner| owner.until.max(now.after(ttl)));
        lock.owner = Some(Kept { token, ttl, until });
        self.draw()
    }

    /// A place in the queue; the ticket, the rank, how many stand behind, and whether it is new.
    pub(super) fn queue(
        &mut self,
        claim: &Arc<Owner>,
        ticket: u64,
        now: Moment,
    ) -> (u64, usize, usize, bool) {
        sent(claim, now, Duration::ZERO);
        let drawn = if ticket == 0 { self.draw() } else { ticket };
        let queue = &mut self.lock(claim.lock.stored()).queue;
        let stands = queue.keys().find(|(_, token)| *token == claim.token).map(|(at, _)| *at);
        let ticket = stands.unwrap_or(drawn);
        queue.insert((ticket, claim.token.clone()), claim.clone());
        let rank = queue.keys().take_while(|(_, token)| *token != claim.token).count();
        (ticket, rank, queue.len() - 1 - rank, stands.is_none())
    }
}

/// The claim may be in the store from here on.
pub(super) fn sent(claim: &Owner, now: Moment, ttl: Duration) {
    claim.sending(now, ttl, 1);
    claim.answered(1);
    claim.leaves_a_trace();
}
