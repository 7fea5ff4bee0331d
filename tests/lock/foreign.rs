//! A store that is no part of distlock: written against its hidden seam, and nothing else of it. Several managers
//! share it, each of which is a process to the others.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use distlock::LockManager;
use distlock_runtime::store::{
    Answer, Attempt, Clock, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Limit,
    Listener, LockName, Message, Moment, Notification, Op, OpOn, Outage, Owned, Owner,
    ProcessDirectory, Renewal, Renewed, Store, StoreAdmin, StoreStatus, StoredName, Token,
};
use distlock_testkit::conformance::Subject;

/// Where the locks are.
#[derive(Clone, Default)]
pub(crate) struct Shelf(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    fence: u64,
    locks: HashMap<String, Lock>,
    processes: HashMap<String, Arc<Listener>>,
}

/// The holders of a lock and its waiters, by ticket.
#[derive(Default)]
struct Lock {
    leases: Vec<Lease>,
    queue: BTreeMap<u64, Waiter>,
}

struct Lease {
    token: String,
    limit: Limit,
    until: Moment,
}

struct Waiter {
    token: String,
    limit: Limit,
    /// For how long the lock is reserved for it.
    claim: Duration,
}

/// A message to the process of a token.
struct News {
    kind: for<'a> fn(Message<'a>) -> Notification<'a>,
    name: String,
    token: String,
}

impl Lock {
    fn end(&mut self, now: Moment) {
        self.leases.retain(|lease| lease.until > now);
    }

    fn fits(&self, limit: Limit) -> bool {
        !self.leases.iter().any(|lease| lease.limit.is_alone()) && limit.fits(self.leases.len())
    }

    /// Until one more fits, if no holder leaves or is renewed.
    fn remaining(&self, limit: Limit, now: Moment) -> Option<Duration> {
        let mut ends: Vec<_> = self.leases.iter().map(|lease| lease.until.since(now)).collect();
        ends.sort_unstable();
        ends.get(limit.too_many(ends.len()).saturating_sub(1)).copied()
    }

    fn leave(&mut self, token: &str) {
        self.queue.retain(|_, waiter| waiter.token != token);
    }

    /// Reserves it for the first of the queue, as many as fit.
    fn admit(&mut self, name: &str, now: Moment) -> Vec<News> {
        let mut news = Vec::new();
        while let Some((_, first)) = self.queue.first_key_value()
            && self.fits(first.limit)
            && let Some((_, Waiter { token, limit, claim })) = self.queue.pop_first()
        {
            self.leases.push(Lease { token: token.clone(), limit, until: now.after(claim) });
            news.push(News {
                kind: |message| Notification::Reserved(message),
                name: name.to_owned(),
                token,
            });
        }
        news
    }
}

/// A manager's way to the shelf.
struct Way(Shelf);

impl Way {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.0.lock().expect("no panic")
    }

    /// Once the books are closed: a listener may open them.
    fn send(&self, news: Vec<News>) {
        for News { kind, name, token } in news {
            let process = token.split('.').next().unwrap_or_default();
            let listener = self.books().processes.get(process).cloned();
            if let Some(listener) = listener {
                listener(kind(Message { stored: &StoredName::new(name), token: &token }));
            }
        }
    }

    /// Takes the lock, or stands in its queue unless it is a try.
    fn take(&self, entry: &Entry, is_try: bool) -> Result<Entered, Fault> {
        let Entry { owner, term, ticket } = entry;
        let (now, ttl) = (Clock::Boottime.now(), term.stored_for());
        owner.sending(now, ttl, 1);
        owner.answered(1);
        if owner.is_retired() {
            return Err(Fault::given_up());
        }
        let (name, mut news) = (owner.lock.stored().to_string(), Vec::new());
        let mut books = self.books();
        books.fence += 1;
        let fence = books.fence;
        let lock = books.locks.entry(name.clone()).or_default();
        lock.end(now);
        if is_try {
            news.extend(lock.admit(&name, now));
        }
        let own = lock.leases.iter().position(|lease| lease.token == owner.token);
        let first = lock.queue.first_key_value().map(|(_, waiter)| &waiter.token);
        let is_next = first.is_none_or(|first| *first == owner.token);
        let is_granted = match own {
            Some(own) => {
                let until = &mut lock.leases[own].until;
                *until = now.after(ttl).max(*until);
                true
            }
            None if is_next && lock.fits(owner.limit) => {
                let (token, limit, until) = (owner.token.clone(), owner.limit, now.after(ttl));
                lock.leases.push(Lease { token, limit, until });
                true
            }
            None => false,
        };
        let entered = if is_granted {
            lock.leave(&owner.token);
            news.extend(lock.admit(&name, now));
            owner.leaves_a_trace();
            Entered::Granted { fence, sent: now, contended: !lock.queue.is_empty() }
        } else if is_try {
            let remaining = lock.remaining(owner.limit, now);
            Entered::Queued { ticket: 0, remaining, rank: 0, behind: 0, added: false }
        } else {
            owner.leaves_a_trace();
            lock.stand(owner, if *ticket == 0 { fence } else { *ticket }, now, &mut news)
        };
        drop(books);
        self.send(news);
        Ok(entered)
    }

    fn free(&self, owner: &Owner, keep: Option<Duration>) -> Freed {
        let (now, name) = (Clock::Boottime.now(), owner.lock.stored().to_string());
        let mut books = self.books();
        let lock = books.locks.entry(name.clone()).or_default();
        lock.end(now);
        lock.leave(&owner.token);
        let awaited = keep.is_some() && !lock.queue.is_empty();
        let own = lock.leases.iter().position(|lease| lease.token == owner.token);
        match (own, keep) {
            (Some(own), Some(keep)) => {
                let spare = Duration::from_millis(if awaited { 100 } else { 0 });
                lock.leases[own].until = now.after(keep + spare);
            }
            (Some(own), None) => drop(lock.leases.remove(own)),
            (None, _) => {}
        }
        let news = lock.admit(&name, now);
        let next = news.iter().map(|news| news.token.as_str().into()).collect();
        drop(books);
        self.send(news);
        Freed { was_ours: own.is_some(), settled: true, next, awaited: awaited && own.is_some() }
    }

    fn swap(&self, exchange: &Exchange) -> Exchanged {
        let Exchange { old, new, term } = exchange;
        let (now, ttl) = (Clock::Boottime.now(), term.stored_for());
        new.sending(now, ttl, 1);
        new.answered(1);
        new.leaves_a_trace();
        let name = new.lock.stored().to_string();
        let mut books = self.books();
        books.fence += 1;
        let fence = books.fence;
        let lock = books.locks.entry(name.clone()).or_default();
        lock.end(now);
        let is_one = |lease: &&mut Lease| lease.token == old.token || lease.token == new.token;
        let Some(lease) = lock.leases.iter_mut().find(is_one) else { return Exchanged::NotHeld };
        *lease = Lease { token: new.token.clone(), limit: new.limit, until: now.after(ttl) };
        let news = lock.admit(&name, now);
        let contended = !lock.queue.is_empty();
        drop(books);
        self.send(news);
        Exchanged::Granted { fence, sent: now, contended }
    }

    fn extend(&self, renewal: &Renewal, now: Moment) -> Owned {
        let Renewal { owner, ttl, draw, .. } = renewal;
        let mut books = self.books();
        books.fence += 1;
        let fence = draw.then_some(books.fence);
        let Some(lock) = books.locks.get_mut(&**owner.lock.stored()) else { return Owned::No };
        lock.end(now);
        let contended = !lock.queue.is_empty();
        match lock.leases.iter_mut().find(|lease| lease.token == owner.token) {
            Some(lease) => {
                owner.stored_until(now.after(*ttl));
                lease.until = lease.until.max(now.after(*ttl));
                Owned::Yes { contended, fence }
            }
            None => Owned::No,
        }
    }
}

impl Lock {
    /// Where a token stands in the queue, whose place is that ticket if it stands there not yet.
    fn stand(&mut self, owner: &Owner, ticket: u64, now: Moment, news: &mut Vec<News>) -> Entered {
        let stands = self.queue.iter().find(|(_, waiter)| waiter.token == owner.token);
        let (ticket, added) = stands.map_or((ticket, true), |(ticket, _)| (*ticket, false));
        let claim = Token::parse(&owner.token).map(|token| token.reservation);
        let claim = claim.unwrap_or(Duration::from_secs(1));
        let waiter = Waiter { token: owner.token.clone(), limit: owner.limit, claim };
        self.queue.insert(ticket, waiter);
        // All in front learn that they are not alone.
        let in_front = self.queue.range(..ticket).map(|(_, waiter)| &waiter.token);
        let others = self.leases.iter().map(|lease| &lease.token).chain(in_front);
        let name = owner.lock.stored().to_string();
        let word = |token: &String| {
            let (name, token) = (name.clone(), token.clone());
            News { kind: |message| Notification::WaiterBehind(message), name, token }
        };
        news.extend(others.map(word));
        Entered::Queued {
            ticket,
            remaining: self.remaining(owner.limit, now),
            rank: self.queue.range(..ticket).count() as u64,
            behind: self.queue.range(ticket + 1..).count() as u64,
            added,
        }
    }
}

impl StoreAdmin for Way {}

impl Store for Way {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, _answer_by: Moment) -> Op<()> {
        Box::pin(async { Ok(()) })
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        true
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    fn listen(&self, process: &str, listener: Listener) {
        self.books().processes.insert(process.to_owned(), Arc::new(listener));
    }

    fn try_acquire(&self, attempt: Attempt, _answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move {
            let Attempt { owner, term, .. } = attempt;
            Ok(match self.take(&Entry { owner, term, ticket: 0 }, true)? {
                Entered::Granted { fence, sent, .. } => Answer::Granted { fence, sent },
                Entered::Queued { remaining, .. } => Answer::Taken { remaining },
            })
        })
    }

    fn enter(self: Arc<Self>, entry: Entry, _answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { self.take(&entry, false) })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        _answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { Ok(self.free(&owner, keep)) })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, _answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { Ok(self.swap(&exchange)) })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let sent = Clock::Boottime.now();
            let answers = renewals.iter().map(|one| Ok(self.extend(one, sent))).collect();
            Ok(Renewed { sent, answers })
        })
    }

    fn status(&self) -> StoreStatus {
        StoreStatus::LOCAL
    }

    fn ping(self: Arc<Self>, _answer_by: Moment) -> Op<Duration> {
        Box::pin(async { Ok(Duration::ZERO) })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, _answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            let (now, mut books) = (Clock::Boottime.now(), self.books());
            let Some(lock) = books.locks.get_mut(&**lock.stored()) else { return Ok(None) };
            lock.end(now);
            let mut holders: Vec<_> =
                lock.leases.iter().map(|lease| (lease.until, lease)).collect();
            holders.sort_by_key(|(until, _)| *until);
            let holder = |(until, lease): (Moment, &Lease)| Holder {
                token: lease.token.clone(),
                remaining: Some(until.since(now)),
            };
            let holders: Vec<_> = holders.into_iter().map(holder).collect();
            let queue = lock.queue.values().map(|waiter| waiter.token.clone()).collect();
            Ok((!holders.is_empty()).then_some(Held { holders, queue }))
        })
    }
}

impl ProcessDirectory for Way {
    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let name = lock.stored().to_string();
        self.send(vec![News { kind: |message| Notification::TakenAway(message), name, token }]);
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Way")
    }
}

impl Subject for Shelf {
    fn start() -> Self {
        Self::default()
    }

    async fn manager(&self) -> LockManager {
        let shelf = self.clone();
        LockManager::builder().store("shelf", |_| Way(shelf)).expect("it has no settings")
    }

    fn left(&self) -> Vec<String> {
        let (now, mut books) = (Clock::Boottime.now(), self.0.lock().expect("no panic"));
        books.locks.values_mut().for_each(|lock| lock.end(now));
        let is_left = |lock: &Lock| !lock.leases.is_empty() || !lock.queue.is_empty();
        let left = books.locks.iter().filter(|(_, lock)| is_left(lock));
        left.map(|(name, _)| name.clone()).collect()
    }
}

#[test]
fn a_store_is_given_once() {
    let builder = LockManager::builder().url("memory://");
    let refused = builder.store("shelf", |_| Way(Shelf::default()));
    assert!(matches!(refused, Err(distlock::LockError::InvalidOption { .. })), "{refused:?}");
}
