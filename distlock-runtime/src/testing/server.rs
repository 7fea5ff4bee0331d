//! A store in this process that behaves as one on a server: several managers have it in common, a lease
//! ends unless it is renewed, and a release reserves the lock for the next in the queue. Time is
//! tokio's, which a test may have paused.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::state::{Kept, Kind, Place, Process, State, Told};
use crate::clock::{Clock, Moment};
use crate::itself::Itself;
use crate::memory::callers_time;
use crate::name::{LockName, StoredName};
use crate::store::StoreStatus;
use crate::store::admin::StoreAdmin;
use crate::store::owner::Owner;
use crate::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Holder, Letter,
    Limit, Listener, Op, OpOn, Outage, Owned, ProcessDirectory, Records, Renewal, Renewed, Store,
};
use crate::token::Token;

/// How much longer a lock is kept for its `min_hold` if others wait for it.
const KEPT_LONGER: Duration = Duration::from_millis(100);

/// What all replicas of a test have in common.
#[derive(Debug)]
pub(super) struct Server {
    clock: Clock,
    /// Without it every lock is granted to every call.
    excludes: bool,
    state: Mutex<State>,
}

impl Server {
    pub(super) fn new(excludes: bool) -> Self {
        // Moments of zero mean that something has not happened.
        let now = callers_time();
        let start = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let clock = Clock::of_callers(start, callers_time);
        Self { clock, excludes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the state's mutex, and delivers the notifications after unlocking it.
    fn with<T>(&self, act: impl FnOnce(&mut State, Moment, &mut Vec<Told>) -> T) -> T {
        let mut told = Vec::new();
        let done = act(&mut self.state(), self.clock.now(), &mut told);
        told.into_iter().for_each(Told::deliver);
        done
    }

    /// Holds a lock for a process that is no replica, until [`free`](Self::free). False if a present
    /// holder excludes it.
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
                lock.holders.push(Kept { token, limit, ttl, until });
            }
            fits
        })
    }

    /// Frees a lock if this token has it, or without a token from all that have it. Returns those that did.
    pub(super) fn free(&self, stored: &StoredName, token: Option<&str>) -> Vec<String> {
        self.with(|state, now, told| {
            let holders = &mut state.lock(stored).holders;
            let is_it = |kept: &mut Kept| token.is_none_or(|token| token == kept.token);
            let freed: Vec<_> = holders.extract_if(.., is_it).collect();
            told.extend(state.settle(stored, now));
            let held = freed.into_iter().filter(|kept| kept.until > now);
            held.map(|kept| kept.token).collect()
        })
    }

    /// The process is dead: it renews nothing and frees nothing. What it holds is free after its ttl,
    /// as if it had been renewed just now. Says what that is.
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

    /// Lets the next ones have a lock whose leases are over, without a command.
    pub(super) fn expire(&self, stored: &StoredName) {
        self.with(|state, now, told| told.extend(state.settle(stored, now)));
    }

    /// All waiters poll again: connections have come back.
    pub(super) fn interrupt(&self) {
        self.with(|state, _, told| {
            let nothing = || (StoredName::new(String::new()), String::new());
            told.extend(state.processes.values().map(|process| {
                let (stored, token) = nothing();
                Told { process: process.clone(), stored, token, kind: Kind::Interrupted }
            }));
        });
    }
}

/// One replica's way to the server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: Arc<Server>,
    pub(super) runtime: Handle,
    /// Of its manager, with its separator.
    pub(super) prefix: String,
}

impl Connection {
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
            let Place { ticket, added, .. } = place;
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

impl StoreAdmin for Connection {}

impl Store for Connection {
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
        let listening = Process { listener, runtime, prefix: self.prefix.clone(), itself: None };
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
            let holder = |kept: &&Kept| Holder {
                token: kept.token.clone(),
                remaining: Some(kept.remaining(now)),
            };
            let holders: Vec<_> = holders.iter().map(holder).collect();
            Ok((!holders.is_empty()).then_some(Held { holders, queue }))
        })
    }
}

impl ProcessDirectory for Connection {
    fn introduce(&self, itself: &Itself) {
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

    fn tell(self: Arc<Self>, letters: Vec<Letter>, _answer_by: Moment) -> Op<Vec<bool>> {
        let tell = |Letter { prefix, to, text }| {
            let process = self.server.state().processes.get(&to).cloned();
            let process = process.filter(|process| process.prefix == prefix);
            process.map(|process| process.receive(text)).is_some()
        };
        Box::pin(ready(Ok(letters.into_iter().map(tell).collect())))
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
        // Its record says when it was made, which is counted back from this.
        const TIME: u64 = u32::MAX as u64;
        let text = |id: &String| Some(state.processes.get(id)?.itself.as_ref()?.record(TIME));
        Box::pin(ready(Ok(Records { time: TIME, texts: processes.iter().map(text).collect() })))
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        self.server.with(|state, _, told| {
            told.extend(state.tell(lock.stored(), &token, Kind::TakenAway));
        });
    }
}
