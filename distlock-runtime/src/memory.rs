//! Locks in this process's memory: the same promises without a server, for examples and for users'
//! own tests. Leases age on the caller's tokio clock, so `tokio::time::pause` works.
//!
//! A lease that is renewed has no end here: engine, holder and store share one process, so there is
//! nothing a renewal could be late for. (Unless faults are to be shown: then the store behaves as one
//! far away, and every lease ends that is not renewed.)

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::collections::shrink;
use distlock_core::name::{BuildStoredHasher, LockName, StoredName};
use distlock_core::store::admin::StoreAdmin;
use distlock_core::store::owner::Owner;
use distlock_core::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Limit,
    Listener, Op, OpOn, Outage, Owned, ProcessDirectory, Renewal, Renewed, Store, StoreStatus,
    Term,
};

/// Every lock of one manager.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    as_remote: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<StoredName, Leases, BuildStoredHasher>,
    line: MemoryLine,
    fence: u64,
}

impl State {
    /// Has a token stand in line, and says where.
    fn stand(&mut self, entry: &Entry) -> (u64, usize) {
        let fence = &mut self.fence;
        let draw = || {
            *fence += 1;
            *fence
        };
        self.line.stand(&entry.owner, entry.ticket, draw)
    }

    /// The lease of this token, even if it has ended.
    fn lease(&mut self, owner: &Owner) -> Option<&mut Lease> {
        let leases = self.held.get_mut(owner.lock.stored())?;
        leases.iter_mut().find(|lease| lease.token == owner.token)
    }

    /// Removes the leases that `is_over` says.
    fn end(&mut self, stored: &StoredName, is_over: impl Fn(&Lease) -> bool) {
        let Some(leases) = self.held.get_mut(stored) else { return };
        leases.others.retain(|lease| !is_over(lease));
        if is_over(&leases.first) {
            match leases.others.pop() {
                Some(other) => leases.first = other,
                None => {
                    self.held.remove(stored);
                    shrink(&mut self.held);
                }
            }
        }
    }
}

/// The holders of one lock: one that is alone, or any others together. Leases that have ended may still be
/// among them.
#[derive(Debug)]
struct Leases {
    first: Lease,
    others: Vec<Lease>,
}

impl Leases {
    fn len(&self) -> usize {
        1 + self.others.len()
    }

    fn iter(&self) -> impl Iterator<Item = &Lease> {
        std::iter::once(&self.first).chain(&self.others)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lease> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// Whether one more may hold the lock beside them.
    fn admit(&self, limit: Limit) -> bool {
        limit.joins(self.first.limit, self.len())
    }

    /// How long it takes until they admit one more, if no holder leaves or is renewed.
    fn remaining(&self, limit: Limit, now: Moment) -> Duration {
        let mut leases: Vec<_> = self.iter().map(|lease| lease.remaining(now)).collect();
        leases.sort_unstable();
        leases[limit.too_many(leases.len()).saturating_sub(1)]
    }
}

/// What one token has of a lock.
#[derive(Debug)]
struct Lease {
    token: String,
    limit: Limit,
    ttl: Duration,
    until: Moment,
}

impl Lease {
    /// What a waiter learns: a lease that is renewed always has at most its ttl to go.
    fn remaining(&self, now: Moment) -> Duration {
        if self.until == Moment::NEVER { self.ttl } else { self.until.since(now) }
    }
}

/// The time of the callers' runtime, which a test may pause.
pub(crate) fn callers_time() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::of_callers(callers_time(), callers_time),
            as_remote: false,
            state: Mutex::default(),
        }
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
        let (lock, limit, until) = (owner.lock.stored(), owner.limit, self.end(now, term));
        let mut state = self.state();
        // An acquire that was delivered twice finds itself.
        if let Some(lease) = state.lease(owner).filter(|lease| lease.until > now) {
            lease.until = lease.until.max(until);
            state.fence += 1;
            return Ok((state.fence, owner.first_sent()));
        }
        if state.held.get(lock).is_some_and(|leases| !leases.admit(limit)) {
            state.end(lock, |lease| lease.until <= now);
        }
        let lease = || Lease { token: owner.token.clone(), limit, ttl: term.ttl, until };
        let is_behind = state.line.is_behind(owner);
        match state.held.get_mut(lock) {
            Some(leases) if leases.admit(limit) && !is_behind => leases.others.push(lease()),
            Some(leases) => return Err(leases.remaining(limit, now)),
            None if is_behind => return Err(Duration::ZERO),
            None => {
                let leases = Leases { first: lease(), others: Vec::new() };
                state.held.insert(lock.clone(), leases);
            }
        }
        state.line.leave(owner);
        owner.sending(now, until.since(now), 1);
        owner.answered(1);
        owner.leaves_a_trace();
        state.fence += 1;
        Ok((state.fence, now))
    }

    /// Notes that the store may hold something of the token from now on: a lease, or a place in the line. Both
    /// stay until its release, so the engine must not skip the release.
    fn leaves_a_trace(&self, owner: &Owner, term: Term) -> Result<(), Fault> {
        // R7: nothing of the token may be stored after its release.
        if !owner.may_send(self.clock.now(), term.stored_for(), 1) {
            return Err(Fault::given_up());
        }
        owner.answered_yes(1);
        Ok(())
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
        state.line.leave(owner);
        let Some(lease) = state.lease(owner) else { return false };
        let was_held = lease.until > now;
        match keep {
            Some(keep) => lease.until = now.after(keep),
            None => state.end(owner.lock.stored(), |lease| lease.token == owner.token),
        }
        was_held
    }

    fn exchange_now(&self, exchange: &Exchange) -> Exchanged {
        let Exchange { old, new, term } = exchange;
        let (sent, until) = (self.clock.now(), self.end(self.clock.now(), *term));
        let mut state = self.state();
        // One that was delivered twice finds the new token.
        let is_held =
            |owner: &&&Arc<Owner>| state.lease(owner).is_some_and(|lease| lease.until > sent);
        let holder = [old, new].iter().find(is_held).copied();
        let Some(lease) = holder.and_then(|holder| state.lease(holder)) else {
            return Exchanged::NotHeld;
        };
        *lease = Lease { token: new.token.clone(), limit: new.limit, ttl: term.ttl, until };
        new.sending(sent, until.since(sent), 1);
        new.answered(1);
        new.leaves_a_trace();
        state.fence += 1;
        Exchanged::Granted { fence: state.fence, sent, contended: false }
    }

    fn extend(&self, renewal: &Renewal, now: Moment) -> Owned {
        let mut state = self.state();
        let until = now.after(renewal.ttl);
        match state.lease(&renewal.owner).filter(|lease| lease.until > now) {
            Some(lease) => {
                renewal.owner.stored_until(until);
                lease.until = lease.until.max(until);
            }
            None => return Owned::No,
        }
        state.fence += u64::from(renewal.draw);
        Owned::Yes { contended: false, fence: renewal.draw.then_some(state.fence) }
    }
}

/// There is one process and one line for each lock: its first waiter asks when the lock is free, and is
/// answered at once.
impl StoreAdmin for MemoryStore {}

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
            self.leaves_a_trace(&entry.owner, entry.term)?;
            Ok(match self.take(&entry.owner, entry.term) {
                Ok((fence, sent)) => Entered::Granted { fence, sent, contended: false },
                Err(remaining) => {
                    let (ticket, rank) = self.state().stand(&entry);
                    let (remaining, rank) = (Some(remaining), rank as u64);
                    Entered::Queued { ticket, remaining, rank, behind: 0, added: false }
                }
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
            Ok(Freed { was_ours, settled: true, next: Vec::new(), awaited: false })
        })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, _answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { Ok(self.exchange_now(&exchange)) })
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
        if let Some(lease) = state.lease(owner) {
            lease.until = until;
        }
    }

    fn ping(self: Arc<Self>, _answer_by: Moment) -> Op<Duration> {
        Box::pin(ready(Ok(Duration::ZERO)))
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, _answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            let now = self.clock.now();
            let state = self.state();
            let leases = state.held.get(lock.stored()).into_iter().flat_map(Leases::iter);
            let mut leases: Vec<_> = leases.filter(|lease| lease.until > now).collect();
            leases.sort_by_key(|lease| lease.until);
            let holder = |lease: &&Lease| {
                let remaining = Some(lease.remaining(now));
                Holder { token: lease.token.clone(), remaining }
            };
            let holders: Vec<_> = leases.iter().map(holder).collect();
            let queue = state.line.of(lock.stored());
            let queue = queue.map(|(_, token)| token.clone()).collect();
            Ok((!holders.is_empty()).then_some(Held { holders, queue }))
        })
    }
}

impl ProcessDirectory for MemoryStore {
    fn tell_taken(self: Arc<Self>, _lock: Arc<LockName>, _token: String) {}
}

/// The tokens that stand in line for locks, by ticket.
#[derive(Debug, Default)]
struct MemoryLine(HashMap<StoredName, BTreeSet<(u64, String)>, BuildStoredHasher>);

impl MemoryLine {
    /// The tokens that stand in line for a lock, the first one in front.
    fn of(&self, lock: &StoredName) -> impl Iterator<Item = &(u64, String)> {
        self.0.get(lock).into_iter().flatten()
    }

    /// Others stand in line for the lock before this token.
    fn is_behind(&self, owner: &Owner) -> bool {
        let first =
            |line: &BTreeSet<_>| line.first().is_some_and(|(_, token)| *token != owner.token);
        !self.0.is_empty() && self.0.get(owner.lock.stored()).is_some_and(first)
    }

    /// Puts a token in line, where it stood before, or behind all others with a ticket that is drawn for
    /// it. Says its ticket, and how many stand in front.
    fn stand(&mut self, owner: &Owner, ticket: u64, draw: impl FnOnce() -> u64) -> (u64, usize) {
        let line = self.0.entry(owner.lock.stored().clone()).or_default();
        if let Some((rank, (ticket, _))) =
            line.iter().enumerate().find(|(_, (_, token))| *token == owner.token)
        {
            return (*ticket, rank);
        }
        let ticket = if ticket == 0 { draw() } else { ticket };
        let place = (ticket, owner.token.clone());
        let rank = line.range(..&place).count();
        line.insert(place);
        (ticket, rank)
    }

    /// Takes a token out of the line.
    fn leave(&mut self, owner: &Owner) {
        if self.0.is_empty() {
            return;
        }
        let lock = owner.lock.stored();
        let Some(line) = self.0.get_mut(lock) else { return };
        line.retain(|(_, token)| *token != owner.token);
        if line.is_empty() {
            self.0.remove(lock);
            shrink(&mut self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::key::LockKey;
    use distlock_core::name::Label;

    use super::*;
    use crate::namespace::Namespace;

    #[tokio::test]
    async fn f24_very_many_locks_leave_no_memory_behind() {
        let (store, namespace) = (MemoryStore::new(), Namespace::new("").expect("no prefix"));
        let ttl = Duration::from_secs(60);
        let term = Term { ttl, renewed: true, max_hold: None, min_hold: None };
        let mut owners = Vec::new();
        for n in 0..20_000 {
            let key = LockKey::from(n.to_string());
            let lock = namespace.name(Label::Given("test".into()), key).expect("a key");
            let owner = Owner::new(lock, format!("token-{n}"), Limit::ALONE);
            store.take(&owner, term).expect("free");
            owners.push(owner);
        }
        for owner in owners {
            assert!(store.free(&owner, None));
        }
        assert!(store.state().held.capacity() <= 128, "{}", store.state().held.capacity());
    }
    fn owner(namespace: &Namespace, token: &str, limit: Limit) -> Owner {
        let lock = namespace.name(Label::Given("test".into()), LockKey::from("key"));
        Owner::new(lock.expect("a key"), token.to_owned(), limit)
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_admitted_by_its_own_limit() {
        let (store, namespace) = (MemoryStore::new(), Namespace::new("").expect("no prefix"));
        let term = |secs| {
            let ttl = Duration::from_secs(secs);
            Term { ttl, renewed: false, max_hold: None, min_hold: None }
        };
        let [one, other] = ["1", "2"].map(|token| owner(&namespace, token, Limit::READ));
        let two = |token| owner(&namespace, token, Limit::permits(2).expect("2"));
        let (permit, writer) = (two("3"), owner(&namespace, "4", Limit::ALONE));
        store.take(&one, term(20)).expect("free");
        store.take(&permit, term(30)).expect("the second of two");
        store.take(&other, term(10)).expect("any number");
        // Two leases have to end before there is room, and all of them.
        assert_eq!(store.take(&two("5"), term(9)), Err(Duration::from_secs(20)));
        assert_eq!(store.take(&writer, term(9)), Err(Duration::from_secs(30)));
        assert!(store.free(&one, None) && !store.free(&one, None));
        tokio::time::advance(Duration::from_secs(10)).await;
        // The other reader's lease is over: its place counts no more.
        store.take(&two("6"), term(5)).expect("the second of two");
        assert!(store.free(&permit, None));
        assert_eq!(store.take(&writer, term(9)), Err(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(5)).await;
        store.take(&writer, term(9)).expect("no holder is left");
        assert_eq!(store.take(&one, term(9)), Err(Duration::from_secs(9)));
    }
}
