//! The status of a lock, from the reports of processes and the answer of its store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::name::LockName;
use distlock_core::process_info::Process;
use distlock_core::store::{self, Limit};
use distlock_core::token::Token;

use super::questions::Want;
use super::report::{HeldLock, PeerReport, WaitingCalls};
use crate::status::{Holder, LockStatus, Waiter};

/// The most processes that are asked about one lock: its holders, and its first waiters.
const ASKED: usize = 32;

/// Returns the questions to other processes: to those that hold the lock or wait in its queue.
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

/// The reports about one lock.
#[derive(Default)]
pub(crate) struct LockReports {
    /// The id of this process.
    pub(crate) own: String,
    pub(crate) itself: Option<Process>,
    pub(crate) held: Vec<HeldLock>,
    pub(crate) waiting: Vec<WaitingCalls>,
    /// The reports of other processes, by their ids.
    pub(crate) by_process: HashMap<String, Arc<PeerReport>>,
    /// The records of processes that did not answer.
    pub(crate) recorded: HashMap<String, Process>,
}

impl LockReports {
    /// Puts the reports and the answer of the store together.
    pub(crate) fn status(self, lock: &LockName, seen: store::Held) -> LockStatus {
        let stored = lock.stored();
        let holders = |holder: &store::Holder| {
            self.holders(TokenParts::of(&holder.token), stored, holder.remaining)
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

    /// Returns the waiters, the next one first.
    fn waiters(&self, stored: &str, seen: &store::Held) -> Vec<WaiterOfProcess> {
        let mut waiters = Vec::new();
        // Calls that wait for a holder in its own process come first, and are in no queue.
        for token in seen.tokens() {
            let at = TokenParts::of(token);
            let behind =
                self.waiting_calls(at.process, stored).filter(|calls| calls.lease == at.number);
            waiters.extend(behind.map(|calls| self.waiter(at, Some(calls))));
        }
        for token in &seen.queue {
            let at = TokenParts::of(token);
            let calls =
                self.waiting_calls(at.process, stored).find(|calls| calls.lease == at.number);
            waiters.push(self.waiter(at, calls));
        }
        // Calls of this process that are not in the queue yet.
        let own = TokenParts { process: &self.own, number: "" };
        let is_new = |calls: &&WaitingCalls| {
            let mut tokens = seen.tokens().chain(&seen.queue);
            tokens.all(|token| TokenParts::of(token).number != calls.lease)
        };
        let here = self.waiting.iter().filter(is_new);
        waiters.extend(here.map(|calls| self.waiter(own, Some(calls))));
        waiters
    }

    /// Returns the holders under one token: several if they share it, and one without details if its process has not
    /// answered.
    fn holders(
        &self,
        at: TokenParts<'_>,
        stored: &str,
        remaining: Option<Duration>,
    ) -> Vec<Holder> {
        let report = self.by_process.get(at.process).map(|report| &report.held[..]);
        let held = if at.process == self.own { &self.held[..] } else { report.unwrap_or_default() };
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

    fn waiter(&self, at: TokenParts<'_>, calls: Option<&WaitingCalls>) -> WaiterOfProcess {
        let waiter = Waiter {
            process: self.process(at.process),
            name: calls.map(|calls| calls.name.clone()),
            template: calls.and_then(|calls| calls.template.clone()),
            since: calls.map(|calls| calls.age),
            calls: calls.map(|calls| calls.calls),
        };
        WaiterOfProcess { id: at.process.to_owned(), waiter }
    }

    /// Returns the calls of a process that wait for the lock.
    fn waiting_calls<'a>(
        &'a self,
        process: &str,
        stored: &'a str,
    ) -> impl Iterator<Item = &'a WaitingCalls> {
        let report = self.by_process.get(process).map(|report| &report.waiting[..]);
        let calls =
            if process == self.own { &self.waiting[..] } else { report.unwrap_or_default() };
        calls.iter().filter(move |calls| calls.stored == stored)
    }

    /// Returns the details of a process, if they are known.
    fn process(&self, id: &str) -> Option<Process> {
        if id == self.own {
            return self.itself.clone();
        }
        let reported = self.by_process.get(id).map(|report| &report.process);
        reported.or_else(|| self.recorded.get(id)).cloned()
    }
}

/// Calls that wait, and the id of their process.
struct WaiterOfProcess {
    id: String,
    waiter: Waiter,
}

/// The process and the number in an owner token.
#[derive(Clone, Copy)]
struct TokenParts<'a> {
    process: &'a str,
    number: &'a str,
}

impl<'a> TokenParts<'a> {
    /// Parses a token. A foreign value stands for the process that wrote it.
    fn of(token: &'a str) -> Self {
        let parsed =
            Token::parse(token).map(|Token { process, number, .. }| Self { process, number });
        parsed.unwrap_or(Self { process: token, number: "" })
    }
}
