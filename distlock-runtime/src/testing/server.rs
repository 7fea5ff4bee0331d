//! A store in this process that behaves as one on a server: several managers share it, a lease ends unless it is
//! renewed, and a release reserves the lock for the next in the queue. Time is tokio's, which a test may have paused.

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::{LockName, StoredName};
use distlock_core::process_info::ProcessInfo;
use distlock_core::store::admin::StoreAdmin;
use distlock_core::store::owner::Owner;
use distlock_core::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Limit,
    Listener, Message, Notification, Op, OpOn, Outage, Owned, ProcessDirectory, ProcessMessage,
    Records, Renewal, Renewed, Store, StoreStatus, Term,
};
use distlock_core::token::Token;
use tokio::runtime::Handle;

use crate::memory::callers_time;

/// How much longer a lock is kept after its `min_hold` if others wait for it.
const KEPT_LONGER: Duration = Duration::from_millis(100);

/// The server that all replicas of a test share.
#[derive(Debug)]
pub(super) struct VirtualServer {
    clock: Clock,
    /// If false, every lock is granted to every call.
    excludes: bool,
    state: Mutex<ServerState>,
}

impl VirtualServer {
    pub(super) fn new(excludes: bool) -> Self {
        // A moment of zero means that something has not happened, so time begins later.
        let now = callers_time();
        let start = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let clock = Clock::of_callers(start, callers_time);
        Self { clock, excludes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` under the mutex of the state, and delivers the notifications after unlocking it.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut ServerState, Moment, &mut Vec<QueuedNotification>) -> T,
    ) -> T {
        let mut told = Vec::new();
        let done = act(&mut self.state(), self.clock.now(), &mut told);
        told.into_iter().for_each(QueuedNotification::deliver);
        done
    }

    /// Holds a lock for a process that is no replica, until [`free`](Self::free). Returns false if a present holder
    /// excludes it.
    pub(super) fn hold(
        &self,
        stored: &StoredName,
        token: &str,
        limit: Limit,
        ttl: Duration,
    ) -> bool {
        self.with(|state, now, told| {
            told.extend(state.settle(stored, now));
            let lock = state.lock(stored);
            let fits = lock.fits(limit);
            if fits {
                let (token, until) = (token.to_owned(), Moment::NEVER);
                lock.holders.push(StoredHolder { token, limit, ttl, until });
            }
            fits
        })
    }

    /// Frees a lock if this token holds it, or without a token, from all holders. Returns their tokens.
    pub(super) fn free(&self, stored: &StoredName, token: Option<&str>) -> Vec<String> {
        self.with(|state, now, told| {
            let holders = &mut state.lock(stored).holders;
            let is_it = |kept: &mut StoredHolder| token.is_none_or(|token| token == kept.token);
            let freed: Vec<_> = holders.extract_if(.., is_it).collect();
            told.extend(state.settle(stored, now));
            let held = freed.into_iter().filter(|kept| kept.until > now);
            held.map(|kept| kept.token).collect()
        })
    }

    /// Notes that a process is dead: it renews and releases nothing. Its locks are free after their ttl, as if they had
    /// just been renewed. Returns these locks.
    pub(super) fn bury(&self, process: &str) -> Vec<(StoredName, Duration)> {
        let is_its =
            |token: &str| Token::parse(token).is_some_and(|token| token.process == process);
        self.with(|state, now, _| {
            state.processes.remove(process);
            let mut held = Vec::new();
            for (stored, lock) in &mut state.locks {
                lock.queue.retain(|(_, token), _| !is_its(token));
                for holder in lock.holders.iter_mut().filter(|holder| is_its(&holder.token)) {
                    holder.until = now.after(holder.ttl);
                    held.push((StoredName::new(stored.clone()), holder.ttl));
                }
            }
            held
        })
    }

    /// Lets the next waiters have a lock whose leases have expired, without a command.
    pub(super) fn expire(&self, stored: &StoredName) {
        self.with(|state, now, told| told.extend(state.settle(stored, now)));
    }

    /// Makes all waiters poll again, as after a reconnect.
    pub(super) fn interrupt(&self) {
        self.with(|state, _, told| {
            let nothing = || (StoredName::new(String::new()), String::new());
            told.extend(state.processes.values().map(|process| {
                let (stored, token) = nothing();
                QueuedNotification {
                    process: process.clone(),
                    stored,
                    token,
                    kind: NotificationKind::Interrupted,
                }
            }));
        });
    }
}

/// The connection of one replica to the server.
#[derive(Debug)]
pub(super) struct ReplicaConnection {
    pub(super) server: Arc<VirtualServer>,
    pub(super) runtime: Handle,
    /// The prefix of its manager, with its separator.
    pub(super) prefix: String,
}

impl ReplicaConnection {
    fn try_now(&self, attempt: &Attempt) -> Result<Answer, Fault> {
        let Attempt { owner: claim, term, .. } = attempt;
        if claim.is_retired() {
            return Err(Fault::given_up());
        }
        let stored = claim.lock.stored();
        Ok(self.server.with(|state, now, told| {
            told.extend(state.settle(stored, now));
            let lock = state.lock(stored);
            let is_next = lock.queue.is_empty() && lock.fits(claim.limit);
            if is_next || lock.holder(&claim.token).is_some() || !self.server.excludes {
                return Answer::Granted { fence: state.grant(claim, *term, now), sent: now };
            }
            Answer::Taken { remaining: Some(lock.remaining(claim.limit, now)) }
        }))
    }

    fn enter_now(&self, entry: &Entry) -> Result<Entered, Fault> {
        let Entry { owner: claim, term, ticket } = entry;
        if claim.is_retired() {
            return Err(Fault::given_up());
        }
        let stored = claim.lock.stored();
        Ok(self.server.with(|state, now, told| {
            told.extend(state.settle(stored, now));
            let lock = state.lock(stored);
            let is_next = lock.queue.is_empty() && lock.fits(claim.limit);
            if is_next || lock.holder(&claim.token).is_some() || !self.server.excludes {
                let fence = state.grant(claim, *term, now);
                let contended = !state.lock(stored).queue.is_empty();
                return Entered::Granted { fence, sent: now, contended };
            }
            let remaining = Some(lock.remaining(claim.limit, now));
            let place = state.queue(claim, *ticket, now);
            told.extend(state.tell_behind(claim, &place));
            let QueuePlace { ticket, added, .. } = place;
            let (rank, behind) = (place.rank as u64, place.behind as u64);
            Entered::Queued { ticket, remaining, rank, behind, added }
        }))
    }

    fn release_now(&self, claim: &Owner, keep: Option<Duration>) -> Freed {
        let stored = claim.lock.stored();
        self.server.with(|state, now, told| {
            let lock = state.lock(stored);
            lock.queue.retain(|(_, token), _| *token != claim.token);
            let awaited = keep.is_some() && !lock.queue.is_empty();
            let holder = lock.holder(&claim.token).filter(|holder| holder.until > now);
            let was_ours = holder.is_some() || !self.server.excludes;
            match (keep, holder) {
                (Some(keep), Some(holder)) => {
                    let longer = if awaited { KEPT_LONGER } else { Duration::ZERO };
                    holder.until = now.after(keep + longer);
                }
                _ => lock.holders.retain(|holder| holder.token != claim.token),
            }
            let let_in = state.settle(stored, now);
            let next = let_in.iter().map(|told| told.token.as_str().into()).collect();
            told.extend(let_in);
            Freed { was_ours, settled: true, next, awaited: awaited && was_ours }
        })
    }

    fn exchange_now(&self, exchange: &Exchange) -> Result<Exchanged, Fault> {
        let Exchange { old, new, term } = exchange;
        if new.is_retired() {
            return Err(Fault::given_up());
        }
        let stored = new.lock.stored();
        Ok(self.server.with(|state, now, told| {
            told.extend(state.settle(stored, now));
            let lock = state.lock(stored);
            if lock.holder(&old.token).is_none() && lock.holder(&new.token).is_none() {
                return Exchanged::NotHeld;
            }
            lock.holders.retain(|holder| holder.token != old.token);
            let fence = state.grant(new, *term, now);
            told.extend(state.settle(stored, now));
            let contended = !state.lock(stored).queue.is_empty();
            Exchanged::Granted { fence, sent: now, contended }
        }))
    }

    fn renew_now(&self, renewal: &Renewal) -> Owned {
        let Renewal { owner: claim, ttl, draw, .. } = renewal;
        self.server.with(|state, now, _| {
            let until = now.after(*ttl);
            let lock = state.lock(claim.lock.stored());
            match lock.holder(&claim.token).filter(|holder| holder.until > now) {
                Some(holder) => {
                    claim.stored_until(until);
                    (holder.until, holder.ttl) = (holder.until.max(until), *ttl);
                }
                None if self.server.excludes => return Owned::No,
                None => {}
            }
            let contended = !lock.queue.is_empty();
            Owned::Yes { contended, fence: draw.then(|| state.draw()) }
        })
    }
}

impl StoreAdmin for ReplicaConnection {}

impl Store for ReplicaConnection {
    fn clock(&self) -> Clock {
        self.server.clock
    }

    fn ready(self: Arc<Self>, _answer_by: Moment) -> Op<()> {
        Box::pin(ready(Ok(())))
    }

    fn is_notified(&self, _lock: &LockName) -> bool {
        true
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    fn listen(&self, process: &str, listener: Listener) {
        let (listener, runtime) = (Arc::new(listener), self.runtime.clone());
        let listening =
            ListeningProcess { listener, runtime, prefix: self.prefix.clone(), itself: None };
        self.server.state().processes.insert(process.to_owned(), listening);
    }

    fn try_acquire(&self, attempt: Attempt, _answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move { self.try_now(&attempt) })
    }

    fn enter(self: Arc<Self>, entry: Entry, _answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { self.enter_now(&entry) })
    }

    fn release(
        self: Arc<Self>,
        claim: Arc<Owner>,
        keep: Option<Duration>,
        _answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { Ok(self.release_now(&claim, keep)) })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, _answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { self.exchange_now(&exchange) })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let sent = self.server.clock.now();
            let answers = renewals.iter().map(|renewal| Ok(self.renew_now(renewal))).collect();
            Ok(Renewed { sent, answers })
        })
    }

    fn status(&self) -> StoreStatus {
        StoreStatus::LOCAL
    }

    fn ping(self: Arc<Self>, _answer_by: Moment) -> Op<Duration> {
        Box::pin(ready(Ok(Duration::ZERO)))
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, _answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            let now = self.server.clock.now();
            let state = self.server.state();
            let queue = state.locks.get(&**lock.stored()).map(|lock| &lock.queue);
            let queue: Vec<_> =
                queue.into_iter().flatten().map(|((_, token), _)| token.clone()).collect();
            let holders = state.locks.get(&**lock.stored()).map(|lock| &lock.holders);
            let held = holders.into_iter().flatten().filter(|holder| holder.until > now);
            let mut holders: Vec<_> = held.collect();
            holders.sort_by_key(|holder| holder.until);
            let holder = |kept: &&StoredHolder| Holder {
                token: kept.token.clone(),
                remaining: Some(kept.remaining(now)),
            };
            let holders: Vec<_> = holders.iter().map(holder).collect();
            Ok((!holders.is_empty()).then_some(Held { holders, queue }))
        })
    }
}

impl ProcessDirectory for ReplicaConnection {
    fn introduce(&self, itself: &ProcessInfo) {
        if let Some(process) = self.server.state().processes.get_mut(itself.id()) {
            process.itself = Some(itself.clone());
        }
    }

    fn take_leave(self: Arc<Self>, process: String, _answer_by: Moment) -> Op<()> {
        if let Some(process) = self.server.state().processes.get_mut(&process) {
            process.itself = None;
        }
        Box::pin(ready(Ok(())))
    }

    fn tell(self: Arc<Self>, messages: Vec<ProcessMessage>, _answer_by: Moment) -> Op<Vec<bool>> {
        let tell = |ProcessMessage { prefix, to, text }| {
            let process = self.server.state().processes.get(&to).cloned();
            let process = process.filter(|process| process.prefix == prefix);
            process.map(|process| process.receive(text)).is_some()
        };
        Box::pin(ready(Ok(messages.into_iter().map(tell).collect())))
    }

    fn recorded(self: Arc<Self>, prefix: String, _answer_by: Moment) -> Op<Vec<String>> {
        let state = self.server.state();
        let known = state
            .processes
            .iter()
            .filter(|(_, process)| process.prefix == prefix && process.itself.is_some());
        Box::pin(ready(Ok(known.map(|(id, _)| id.clone()).collect())))
    }

    fn records(
        self: Arc<Self>,
        _prefix: String,
        processes: Vec<String>,
        _answer_by: Moment,
    ) -> Op<Records> {
        let state = self.server.state();
        // A record has the time when the process was started, which is counted back from this.
        const TIME: u64 = u32::MAX as u64;
        let text = |id: &String| Some(state.processes.get(id)?.itself.as_ref()?.record(TIME));
        Box::pin(ready(Ok(Records { time: TIME, texts: processes.iter().map(text).collect() })))
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        self.server.with(|state, _, told| {
            told.extend(state.tell(lock.stored(), &token, NotificationKind::TakenAway));
        });
    }
}

/// The data of a server, and the steps that its scripts would take.
#[derive(Debug, Default)]
struct ServerState {
    locks: HashMap<String, StoredLock>,
    processes: HashMap<String, ListeningProcess>,
    fence: u64,
}

#[derive(Debug, Default)]
struct StoredLock {
    /// One exclusive holder, or any others together. Leases that have expired may still be among them.
    holders: Vec<StoredHolder>,
    /// The waiting tokens, by ticket.
    queue: BTreeMap<(u64, String), Arc<Owner>>,
}

impl StoredLock {
    /// Returns whether one more holder fits.
    fn fits(&self, limit: Limit) -> bool {
        let first = self.holders.first();
        first.is_none_or(|first| limit.joins(first.limit, self.holders.len()))
    }

    fn holder(&mut self, token: &str) -> Option<&mut StoredHolder> {
        self.holders.iter_mut().find(|holder| holder.token == token)
    }

    /// Returns how long it takes until one more holder fits, if no holder leaves or is renewed.
    fn remaining(&self, limit: Limit, now: Moment) -> Duration {
        let mut remaining: Vec<_> = self.holders.iter().map(|kept| kept.remaining(now)).collect();
        remaining.sort_unstable();
        // At least one has to leave: an exclusive holder is alone.
        let leave = limit.too_many(remaining.len()).max(1);
        remaining.get(leave - 1).copied().unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
struct StoredHolder {
    token: String,
    limit: Limit,
    ttl: Duration,
    until: Moment,
}

impl StoredHolder {
    /// Returns the rest of its lease. A lease without an end always has its whole ttl.
    fn remaining(&self, now: Moment) -> Duration {
        if self.until == Moment::NEVER { self.ttl } else { self.until.since(now) }
    }
}

/// A process that can be notified.
#[derive(Clone)]
struct ListeningProcess {
    listener: Arc<Listener>,
    runtime: Handle,
    /// The prefix, with its separator.
    prefix: String,
    /// Its record, if others may know it.
    itself: Option<ProcessInfo>,
}

impl ListeningProcess {
    /// Delivers a message of another process, on this one's runtime.
    fn receive(self, text: String) {
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

impl std::fmt::Debug for ListeningProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListeningProcess")
    }
}

/// A notification, which is delivered once the mutex of the state is free.
struct QueuedNotification {
    process: ListeningProcess,
    stored: StoredName,
    token: String,
    kind: NotificationKind,
}

#[derive(Clone, Copy)]
enum NotificationKind {
    Reserved,
    WaiterBehind,
    TakenAway,
    Interrupted,
}

impl QueuedNotification {
    /// Delivers it on the process's own runtime.
    fn deliver(self) {
        let Self { process, stored, token, kind } = self;
        process.runtime.clone().spawn(async move {
            let message = Message { stored: &stored, token: &token };
            (process.listener)(match kind {
                NotificationKind::Reserved => Notification::Reserved(message),
                NotificationKind::WaiterBehind => Notification::WaiterBehind(message),
                NotificationKind::TakenAway => Notification::TakenAway(message),
                NotificationKind::Interrupted => Notification::Interrupted,
            });
        });
    }
}

impl ServerState {
    fn lock(&mut self, stored: &str) -> &mut StoredLock {
        self.locks.entry(stored.to_owned()).or_default()
    }

    fn draw(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }

    fn tell(
        &self,
        stored: &StoredName,
        token: &str,
        kind: NotificationKind,
    ) -> Option<QueuedNotification> {
        let process = self.processes.get(Token::parse(token)?.process)?.clone();
        Some(QueuedNotification { process, stored: stored.clone(), token: token.to_owned(), kind })
    }

    /// Removes expired leases, and lets in the first waiters that can be notified, as long as they fit.
    fn settle(&mut self, stored: &StoredName, now: Moment) -> Vec<QueuedNotification> {
        let mut let_in = Vec::new();
        self.lock(stored).holders.retain(|holder| holder.until > now);
        loop {
            let lock = self.lock(stored);
            if lock.holders.first().is_some_and(|holder| holder.limit.is_alone()) {
                return let_in;
            }
            let Some(((ticket, token), waiter)) = lock.queue.pop_first() else { return let_in };
            // Its release is on the way. A real server does not know that, and hands the lock over a moment later.
            if waiter.is_retired() {
                continue;
            }
            let fits = lock.fits(waiter.limit);
            // A dead waiter is removed in any case: those after it may fit where it does not.
            let Some(told) = self.tell(stored, &token, NotificationKind::Reserved) else {
                continue;
            };
            if !fits {
                self.lock(stored).queue.insert((ticket, token), waiter);
                return let_in;
            }
            let ttl = Token::parse(&token).map_or(Duration::ZERO, |token| token.reservation);
            let kept = StoredHolder { token, limit: waiter.limit, ttl, until: now.after(ttl) };
            self.lock(stored).holders.push(kept);
            let_in.push(told);
        }
    }

    fn grant(&mut self, claim: &Owner, term: Term, now: Moment) -> u64 {
        let (ttl, stored) = (term.stored_for(), claim.lock.stored());
        sent(claim, now, ttl);
        let lock = self.lock(stored);
        lock.queue.retain(|(_, waiting), _| *waiting != claim.token);
        let until = now.after(ttl);
        match lock.holder(&claim.token) {
            Some(kept) => (kept.ttl, kept.until) = (ttl, kept.until.max(until)),
            None => {
                let token = claim.token.clone();
                lock.holders.push(StoredHolder { token, limit: claim.limit, ttl, until });
            }
        }
        self.draw()
    }

    /// Enters the queue, or finds the present place there.
    fn queue(&mut self, claim: &Arc<Owner>, ticket: u64, now: Moment) -> QueuePlace {
        sent(claim, now, Duration::ZERO);
        let drawn = if ticket == 0 { self.draw() } else { ticket };
        let queue = &mut self.lock(claim.lock.stored()).queue;
        let stands = queue.keys().find(|(_, token)| *token == claim.token).map(|(at, _)| *at);
        let ticket = stands.unwrap_or(drawn);
        queue.insert((ticket, claim.token.clone()), claim.clone());
        let rank = queue.keys().take_while(|(_, token)| *token != claim.token).count();
        let mut behind = queue.values().skip(rank + 1);
        // A reader that is followed by readers alone does not keep them waiting.
        let behind = match claim.limit.is_read() {
            true => usize::from(behind.any(|other| !other.limit.is_read())),
            false => behind.count(),
        };
        QueuePlace {
            ticket,
            rank,
            behind,
            added: stands.is_none(),
            is_last: rank + 1 == queue.len(),
        }
    }

    /// Notifies the calls before this place that somebody waits after them.
    fn tell_behind(&self, claim: &Owner, place: &QueuePlace) -> Vec<QueuedNotification> {
        let stored = claim.lock.stored();
        let Some(lock) = self.locks.get(&**stored) else { return Vec::new() };
        let tell = |token: &str| self.tell(stored, token, NotificationKind::WaiterBehind);
        let in_front = lock.queue.values().take(place.rank).rev();
        let readers = in_front.clone().take_while(|waiter| waiter.limit.is_read());
        match in_front.clone().next() {
            None => lock.holders.iter().filter_map(|holder| tell(&holder.token)).collect(),
            Some(_) if !(place.added && place.is_last) => Vec::new(),
            Some(last) if !last.limit.is_read() => tell(&last.token).into_iter().collect(),
            // Consecutive readers are let in together, and one more only joins them.
            Some(_) if claim.limit.is_read() => Vec::new(),
            Some(_) => readers.filter_map(|reader| tell(&reader.token)).collect(),
        }
    }
}

/// The place of a token in a queue.
struct QueuePlace {
    ticket: u64,
    rank: usize,
    behind: usize,
    added: bool,
    is_last: bool,
}

/// Notes that the claim may be in the store from now on.
fn sent(claim: &Owner, now: Moment, ttl: Duration) {
    claim.sending(now, ttl, 1);
    claim.answered(1);
    claim.leaves_a_trace();
}
