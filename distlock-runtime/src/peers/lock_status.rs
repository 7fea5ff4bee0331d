//! What processes say of a lock, put together with what its store says.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::{Account, HeldLock, Place, Want};
use crate::name::LockName;
use crate::process::Process;
use crate::status::{Holder, LockStatus, Waiter};
use crate::store::{self, Limit};
use crate::token::Token;

/// So many processes are asked about one lock: its holders, and its first waiters.
const ASKED: usize = 32;

/// Which processes to ask for what: those other than this one that hold the lock or stand in its queue.
pub(crate) fn wanted(seen: &store::Held, own: &str) -> Vec<Want> {
    let mut wants: Vec<Want> = Vec::new();
    for token in seen.tokens().chain(&seen.queue) {
        let Some(Token { process, number, .. }) = Token::parse(token) else { continue };
        let known = wants.iter().position(|want| want.process == process);
        match known {
            _ if process == own => {}
            Some(at) => wants[at].leases.push(number.to_owned()),
            None if wants.len() < ASKED => {
                wants.push(Want { process: process.to_owned(), leases: vec![number.to_owned()] });
            }
            None => {}
        }
    }
    wants
}

/// What was said of a lock.
#[derive(Default)]
pub(crate) struct Told {
    /// The id of this process.
    pub(crate) own: String,
    pub(crate) itself: Option<Process>,
    pub(crate) held: Vec<HeldLock>,
    pub(crate) waiting: Vec<Place>,
    /// Of others, by their ids.
    pub(crate) accounts: HashMap<String, Arc<Account>>,
    /// Of others that said nothing.
    pub(crate) recorded: HashMap<String, Process>,
}

impl Told {
    pub(crate) fn status(self, lock: &LockName, seen: store::Held) -> LockStatus {
        let stored = lock.stored();
        let holders = |holder: &store::Holder| {
            self.holders(Lease::of(&holder.token), stored, holder.remaining)
        };
        let is_alone =
            |token: &String| Token::parse(token).is_none_or(|token| token.limit == Limit::ALONE);
        let waiters = self.waiters(stored, &seen);
        let ids: BTreeSet<&str> = waiters.iter().map(|waiter| waiter.id.as_str()).collect();
        LockStatus::Held {
            remaining: seen.remaining(),
            waiting: ids.len(),
            holders: seen.holders.iter().flat_map(holders).collect(),
            alone: seen.tokens().any(is_alone),
            waiters: waiters.into_iter().map(|waiter| waiter.waiter).collect(),
        }
    }

    /// The next ones first.
    fn waiters(&self, stored: &str, seen: &store::Held) -> Vec<Named> {
        let mut waiters = Vec::new();
        // Those behind a holder in its own process come first, and stand in no queue.
        for token in seen.tokens() {
            let at = Lease::of(token);
            let behind = self.places(at.process, stored).filter(|place| place.lease == at.number);
            waiters.extend(behind.map(|place| self.waiter(at, Some(place))));
        }
        for token in &seen.queue {
            let at = Lease::of(token);
            let place = self.places(at.process, stored).find(|place| place.lease == at.number);
            waiters.push(self.waiter(at, place));
        }
        // Those of this process that do not stand in the queue yet.
        let own = Lease { process: &self.own, number: "" };
        let is_new = |place: &&Place| {
            let mut tokens = seen.tokens().chain(&seen.queue);
            tokens.all(|token| Lease::of(token).number != place.lease)
        };
        let here = self.waiting.iter().filter(is_new);
        waiters.extend(here.map(|place| self.waiter(own, Some(place))));
        waiters
    }

    /// The holders by one token: several if they share it, and one without details if its process has not
    /// answered.
    fn holders(&self, at: Lease<'_>, stored: &str, remaining: Option<Duration>) -> Vec<Holder> {
        let account = self.accounts.get(at.process).map(|account| &account.held[..]);
        let held =
            if at.process == self.own { &self.held[..] } else { account.unwrap_or_default() };
        let is_it = |held: &&HeldLock| held.stored == stored && held.lease == at.number;
        let mut holders: Vec<_> = held.iter().filter(is_it).map(Some).collect();
        if holders.is_empty() {
            holders.push(None);
        }
        let holder = |held: Option<&HeldLock>| Holder {
            process: self.process(at.process),
            name: held.map(|held| held.name.clone()),
            template: held.and_then(|held| held.template.clone()),
            since: held.map(|held| held.age),
            fencing_token: held.map(|held| held.fencing_token),
            remaining,
        };
        holders.into_iter().map(holder).collect()
    }

    fn waiter(&self, at: Lease<'_>, place: Option<&Place>) -> Named {
        let waiter = Waiter {
            process: self.process(at.process),
            name: place.map(|place| place.name.clone()),
            template: place.and_then(|place| place.template.clone()),
            since: place.map(|place| place.age),
            calls: place.map(|place| place.calls),
        };
        Named { id: at.process.to_owned(), waiter }
    }

    /// Where calls of a process wait for the lock.
    fn places<'a>(&'a self, process: &str, stored: &'a str) -> impl Iterator<Item = &'a Place> {
        let account = self.accounts.get(process).map(|account| &account.waiting[..]);
        let places =
            if process == self.own { &self.waiting[..] } else { account.unwrap_or_default() };
        places.iter().filter(move |place| place.stored == stored)
    }

    fn process(&self, id: &str) -> Option<Process> {
        if id == self.own {
            return self.itself.clone();
        }
        let said = self.accounts.get(id).map(|account| &account.process);
        said.or_else(|| self.recorded.get(id)).cloned()
    }
}

/// Calls that wait, and whose they are.
struct Named {
    id: String,
    waiter: Waiter,
}

/// What an owner token names.
#[derive(Clone, Copy)]
struct Lease<'a> {
    process: &'a str,
    number: &'a str,
}

impl<'a> Lease<'a> {
    /// A value that is no token of ours stands for the process that wrote it.
    fn of(token: &'a str) -> Self {
        let parsed =
            Token::parse(token).map(|Token { process, number, .. }| Self { process, number });
        parsed.unwrap_or(Self { process: token, number: "" })
    }
}
