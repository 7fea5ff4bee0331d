//! Locks in this process's memory: the same promises without a server, for examples and for users'
//! own tests. Leases age on the caller's tokio clock, so `tokio::time::pause` works.
//!
//! A lease that is renewed has no end here: engine, holder and store share one process, so there is
//! nothing a renewal could be late for. (Unless faults are to be shown: then the store behaves as one
//! far away, and every lease ends that is not renewed.)

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::owner::Owner;
use super::{
    Answer, Attempt, Entered, Entry, Freed, Holder, Listener, Op, OpOn, Outage, Owned, Renewal,
    Renewed, Store, Term,
};
use crate::clock::{Clock, Moment};
use crate::name::{BuildStoredHasher, LockName, StoredName};
use crate::shrink::shrink;
use crate::status::StoreStatus;

/// Every lock of one manager.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    as_remote: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<StoredName, Held, BuildStoredHasher>,
    fence: u64,
}

#[derive(Debug)]
struct Held {
    token: String,
    ttl: Duration,
    until: Moment,
}

impl Held {
    /// What a waiter learns: a lease that is renewed always has at most its ttl to go.
    fn remaining(&self, now: Moment) -> Duration {
        if self.until == Moment::NEVER { self.ttl } else { self.until.since(now) }
    }
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::tokio(), as_remote: false, state: Mutex::default() }
    }

    /// Leases end unless the engine renews them, on the clock that counts for leases on a server.
    #[cfg(feature = "test-util")]
    pub(crate) fn as_remote() -> Self {
        Self { clock: Clock::Boottime, as_remote: true, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value of the fence counter and when the lock was taken, or for how long it is taken.
    fn take(&self, owner: &Owner, term: Term) -> Result<(u64, Moment), Duration> {
        let now = self.clock.now();
        let mut state = self.state();
        let held = state.held.get_mut(owner.lock.stored()).filter(|held| held.until > now);
        // An acquire that was delivered twice finds itself.
        let sent = match held {
            Some(held) if held.token == owner.token => {
                held.until = held.until.max(self.end(now, term));
                owner.first_sent()
            }
            Some(held) => return Err(held.remaining(now)),
            None => {
                let until = self.end(now, term);
                owner.sending(now, until.since(now), 1);
                owner.answered(1);
                owner.leaves_a_trace();
                let held = Held { token: owner.token.clone(), ttl: term.ttl, until };
                state.held.insert(owner.lock.stored().clone(), held);
                now
            }
        };
        state.fence += 1;
        Ok((state.fence, sent))
    }

    /// Until when a lock is kept that is taken now.
    fn end(&self, now: Moment, term: Term) -> Moment {
        match term.max_hold {
            _ if !term.renewed || self.as_remote => now.after(term.stored_for()),
            // Nothing can keep a renewal from being in time here, so its lease simply has no end.
            None => Moment::NEVER,
            Some(max_hold) => now.after(max_hold.max(term.stored_for())),
        }
    }

    fn free(&self, owner: &Owner, keep: Option<Duration>) -> bool {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(held) =
            state.held.get_mut(owner.lock.stored()).filter(|held| held.token == owner.token)
        else {
            return false;
        };
        let was_held = held.until > now;
        match keep {
            Some(keep) => held.until = now.after(keep),
            None => {
                state.held.remove(owner.lock.stored());
                shrink(&mut state.held);
            }
        }
        was_held
    }

    fn extend(&self, renewal: &Renewal, now: Moment) -> Owned {
        let mut state = self.state();
        let until = now.after(renewal.ttl);
        match state.held.get_mut(renewal.owner.lock.stored()) {
            Some(held) if held.token == renewal.owner.token && held.until > now => {
                renewal.owner.stored_until(until);
                held.until = held.until.max(until);
            }
            _ => return Owned::No,
        }
        state.fence += u64::from(renewal.draw);
        Owned::Yes { contended: false, fence: renewal.draw.then_some(state.fence) }
    }
}

/// There is one process and one line for each lock, so there is no queue here: the first batch of the line
/// asks when the lock is free, and is answered at once.
impl Store for MemoryStore {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn needs_renewal(&self) -> bool {
        self.as_remote
    }

    fn ready(self: Arc<Self>, _answer_by: Moment) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        false
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    fn listen(&self, _process: &str, _listener: Listener) {}

    fn status(&self) -> StoreStatus {
        StoreStatus::LOCAL
    }

    fn try_acquire(&self, attempt: Attempt, _answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move {
            Ok(match self.take(&attempt.owner, attempt.term) {
                Ok((fence, sent)) => Answer::Granted { fence, sent },
                Err(remaining) => Answer::Taken { remaining: Some(remaining) },
            })
        })
    }

    fn enter(self: Arc<Self>, entry: Entry, _answer_by: Moment) -> Op<Entered> {
        Box::pin(async move {
            Ok(match self.take(&entry.owner, entry.term) {
                Ok((fence, sent)) => Entered::Granted { fence, sent, contended: false },
                Err(remaining) => Entered::Queued {
                    ticket: entry.ticket.max(1),
                    remaining: Some(remaining),
                    rank: 0,
                    behind: 0,
                    added: false,
                },
            })
        })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        _answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move {
            let was_ours = self.free(&owner, keep);
            Ok(Freed { was_ours, settled: true, next: None, awaited: false })
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let sent = self.clock.now();
            let answers = renewals.iter().map(|one| Ok(self.extend(one, sent))).collect();
            Ok(Renewed { sent, answers })
        })
    }

    fn begin_term(&self, owner: &Owner, term: Term) {
        if self.as_remote {
            return;
        }
        let until = self.end(self.clock.now(), term);
        let mut state = self.state();
        let held = state.held.get_mut(owner.lock.stored());
        if let Some(held) = held.filter(|held| held.token == owner.token) {
            held.until = until;
        }
    }

    fn ping(self: Arc<Self>, _answer_by: Moment) -> Op<Duration> {
        Box::pin(ready(Ok(Duration::ZERO)))
    }

    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, _answer_by: Moment) -> Op<Option<Holder>> {
        Box::pin(async move {
            let now = self.clock.now();
            let state = self.state();
            let held = state.held.get(lock.stored()).filter(|held| held.until > now);
            Ok(held.map(|held| Holder {
                token: held.token.clone(),
                remaining: Some(held.remaining(now)),
                waiting: HashSet::new(),
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::name::Label;
    use crate::namespace::Namespace;

    #[tokio::test]
    async fn r24_very_many_locks_leave_no_memory_behind() {
        let (store, namespace) = (MemoryStore::new(), Namespace::new("").expect("no prefix"));
        let ttl = Duration::from_secs(60);
        let term = Term { ttl, renewed: true, max_hold: None, min_hold: None };
        let mut owners = Vec::new();
        for n in 0..20_000 {
            let key = LockKey::from(n.to_string());
            let lock = namespace.name(Label::Given("test".into()), key).expect("a key");
            let owner = Owner::new(lock, format!("token-{n}"));
            store.take(&owner, term).expect("free");
            owners.push(owner);
        }
        for owner in owners {
            assert!(store.free(&owner, None));
        }
        assert!(store.state().held.capacity() <= 128, "{}", store.state().held.capacity());
    }
}
