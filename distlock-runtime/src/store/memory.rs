//! Locks in this process's memory: the same promises without a server, for examples and for users'
//! own tests. Leases age on the caller's tokio clock, so `tokio::time::pause` works.
//!
//! A lease that is renewed has no end here: engine, holder and store share one process, so there is
//! nothing a renewal could be late for.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Answer, Claim, Freed, Holder, Op, Renewal, Renewed, Store};
use crate::clock::{Clock, Moment};
use crate::error::LockName;

/// Every lock of one manager.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<String, Held>,
    fence: u64,
}

#[derive(Debug)]
struct Held {
    token: String,
    ttl: Duration,
    until: Moment,
}

impl Held {
    /// What a waiter is told: a lease that is renewed always has at most its ttl to go.
    fn rest(&self, now: Moment) -> Duration {
        if self.until == Moment::NEVER { self.ttl } else { self.until.since(now) }
    }
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::tokio(), state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, claim: &Claim) -> Answer {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(held) = state.held.get(claim.lock.stored())
            && held.until > now
        {
            return Answer::Taken { rest: Some(held.rest(now)) };
        }
        claim.sending(now, 1);
        claim.answered();
        state.fence += 1;
        let fence = state.fence;
        let term = claim.term;
        let until = match term.max_hold {
            // Nothing can keep a renewal from being in time here, so its lease simply has no end.
            None if term.renewed => Moment::NEVER,
            Some(max_hold) if term.renewed => now.after(max_hold.max(term.stored_for())),
            _ => now.after(term.stored_for()),
        };
        let held = Held { token: claim.token.clone(), ttl: term.ttl, until };
        state.held.insert(claim.lock.stored().to_owned(), held);
        Answer::Granted { fence, sent: now }
    }

    fn free(&self, claim: &Claim, keep: Option<Duration>) -> bool {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(held) =
            state.held.get_mut(claim.lock.stored()).filter(|held| held.token == claim.token)
        else {
            return false;
        };
        let was_held = held.until > now;
        match keep {
            Some(keep) => held.until = now.after(keep),
            None => drop(state.held.remove(claim.lock.stored())),
        }
        was_held
    }

    fn extend(&self, renewal: &Renewal, now: Moment) -> bool {
        match self.state().held.get_mut(renewal.claim.lock.stored()) {
            Some(held) if held.token == renewal.claim.token && held.until > now => {
                held.until = held.until.max(now.after(renewal.ttl));
                true
            }
            _ => false,
        }
    }
}

impl Store for MemoryStore {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn ready(self: Arc<Self>, _limit: Moment) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    fn try_acquire(self: Arc<Self>, claim: Arc<Claim>, _limit: Moment) -> Op<Answer> {
        Box::pin(async move { Ok(self.take(&claim)) })
    }

    fn release(
        self: Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
        _limit: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { Ok(Freed { was_ours: self.free(&claim, keep), settled: true }) })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let sent = self.clock.now();
            let answers = renewals.iter().map(|one| Ok(self.extend(one, sent))).collect();
            Ok(Renewed { sent, answers })
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, _limit: Moment) -> Op<Option<Holder>> {
        Box::pin(async move {
            let now = self.clock.now();
            let state = self.state();
            let held = state.held.get(lock.stored()).filter(|held| held.until > now);
            Ok(held.map(|held| Holder { token: held.token.clone(), rest: Some(held.rest(now)) }))
        })
    }
}
