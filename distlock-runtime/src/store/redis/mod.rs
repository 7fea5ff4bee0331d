//! Locks on one Redis (or Valkey) primary.
//!
//! The fast path needs no Lua: `SET lock token NX PX ttl` and `INCR fence` in one write. Release
//! and renewal are scripts, because they must compare before they act. The way `SET NX` with a
//! random value and compare-and-delete make a lock is the one the Redis documentation describes;
//! the fence counter, raised to the server's time at every connect and now and then, is what it leaves
//! out.

mod connection;
mod driver;
mod eviction;
mod fault;
mod link;
mod pool;
mod prefixes;
mod resident;
mod script;
mod socket;
mod wakes;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;

use super::{
    Answer, Attempt, Ears, Entered, Entry, Fault, Freed, Holder, Op, OpOn, Outage, Owned, Renewal,
    Renewed, Store,
};
use crate::clock::{Clock, Moment};
use crate::engine::schedule::Schedule;
use crate::error::{BackendKind, LockName};
use crate::lock::claim::{Claim, TOKENS_PER_FENCE};
use crate::options::millis;
use crate::shrink::shrink;
use crate::status::{DrivenBy, StoreStatus};
use crate::token::Token;
use connection::{Connection, Live, RedisOr, integer};
use fault::{fault, is_denied, is_missing_script, unexpected};
use link::LinkConfig;
use pool::ConnectionPool;
use prefixes::kept_until;
use script::{Script, Word};
use wakes::Wakes;

/// The highest counter value that Lua's numbers count to exactly; with the room for holders under it
/// a fencing token is still a positive number of 64 bits. Microseconds reach it in 2255.
const LAST_FENCE: u64 = 1 << 53;
const _: () = assert!(LAST_FENCE.checked_mul(TOKENS_PER_FENCE).is_some());
/// How far an honest counter may be ahead of the server's time, in µs: a hundred years. It is ahead
/// where a clock was set back, even to the epoch; what is further ahead was written by something else.
const AHEAD: u64 = 100 * 366 * 24 * 3600 * 1_000_000;
/// A counter that went backwards was lost with the server's data; raising it once is enough.
const FENCE_TRIES: usize = 3;
/// `INCR` alone does not show whether data went back under a live connection, as behind a proxy that
/// fails over without a word: the counter is raised again before it, in the same write, unless it
/// was a moment ago. No failover is that quick.
const RAISE_AFTER: Duration = Duration::from_millis(100);
/// A queue that nobody looks at any more is forgotten after so many ms; everybody in it looks more
/// often than that.
const QUEUE_EXPIRY: u64 = 20_000;
const CLOCK: &str = "the server's clock is past the year 2255: set it to the time";
/// What was sent longer ago than its answer is waited for, and this, must not run any more.
const NOT_AFTER: Duration = Duration::from_secs(1);

/// How to reach a Redis.
pub(crate) struct RedisConfig {
    pub(crate) info: ConnectionInfo,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
    /// Where the counter of fencing tokens is stored.
    pub(crate) fence: String,
    /// What all names in the store begin with.
    pub(crate) prefix: String,
}

/// Locks on one Redis.
pub(crate) struct RedisStore {
    pool: ConnectionPool,
    command_timeout: Duration,
    fence: Fence,
    /// Of other prefixes that requests have named, by their keys.
    other_fences: Mutex<OtherFences>,
    wakes: Arc<Wakes>,
    link: LinkConfig,
    handle: Handle,
    /// By how many µs the server's clock is ahead of ours; `i64::MIN` while that is not known.
    server_ahead: AtomicI64,
    /// The highest counter value that can be an honest one, by the server's time when a counter was
    /// raised last.
    highest_fence: AtomicU64,
    /// How many renewals were sent.
    renewals: AtomicU64,
    acquire: Script,
    release: Script,
    renew: Script,
    raise: Script,
}

impl RedisStore {
    pub(crate) fn start(config: RedisConfig, handle: &Handle, schedule: &Arc<Schedule>) -> Self {
        let RedisConfig { info, command_timeout, connect_timeout, connections, fence, prefix } =
            config;
        let link = LinkConfig { info, command_timeout, connect_timeout };
        Self {
            pool: ConnectionPool::start(&link, connections, handle, schedule),
            command_timeout,
            fence: Fence::new(fence.into()),
            other_fences: Mutex::default(),
            wakes: Arc::new(Wakes::new(prefix)),
            link,
            handle: handle.clone(),
            server_ahead: AtomicI64::new(i64::MIN),
            highest_fence: AtomicU64::new(LAST_FENCE),
            renewals: AtomicU64::new(0),
            acquire: Script::acquire(),
            release: Script::release(),
            renew: Script::renew(),
            raise: Script::raise(),
        }
    }

    async fn run(
        &self,
        live: &mut Connection,
        script: &Script,
        keys: &[Word<'_>],
        args: &[Word<'_>],
        limit: Moment,
    ) -> Result<Value, Fault> {
        let answer = self.run_unless(|| false, live, script, keys, args, limit).await;
        answer.map_err(RedisOr::into_fault)
    }

    /// The same for a script that must not be sent any more once `given_up` says so: its text goes
    /// out later than its hash, when what comes behind it may have been sent already.
    async fn run_unless(
        &self,
        given_up: impl Fn() -> bool,
        live: &mut Connection,
        script: &Script,
        keys: &[Word<'_>],
        args: &[Word<'_>],
        limit: Moment,
    ) -> Result<Value, RedisOr> {
        let command = match live.needs_text(script) {
            true => script.by_text(keys, args),
            false => script.by_hash(keys, args),
        };
        let mut answer = live.command(&command, limit).await;
        match answer {
            Err(RedisOr::Redis(error)) if is_missing_script(&error) && given_up() => {
                return Err(RedisOr::Fault(Fault::given_up()));
            }
            Err(RedisOr::Redis(error)) if is_missing_script(&error) => {
                let again = script.by_text(keys, args);
                answer = Box::pin(live.command(&again, limit)).await;
            }
            _ => {}
        }
        answer
    }

    /// Raises the fence counter above everything this process has seen and to the server's time.
    ///
    /// Nothing is taken over that no honest counter can hold: whoever did would write it back after
    /// an operator has mended the counter, and a single wrong answer would spoil a good server.
    ///
    /// The names of a lock go along for a cluster to refuse: before a lock is taken there that can
    /// be freed but not renewed.
    async fn raise_fence(
        &self,
        fence: &Fence,
        lock: Option<&LockName>,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<(), Fault> {
        let known = fence.seen.load(Ordering::Acquire);
        let args = raise_args(known);
        let names = lock.map(|lock| [Word::Text(lock.stored()), Word::Queue(lock)]);
        let keys: Vec<_> =
            iter::once(Word::Text(&fence.key)).chain(names.into_iter().flatten()).collect();
        let sent = Clock::Boottime.now();
        let raised = self.run(live, &self.raise, &keys, &args, limit).await?;
        self.raised(fence, known, sent, &raised, live)
    }

    /// The counter was raised by a command that was sent at `sent`, when `known` was the highest
    /// value that this process knew.
    fn raised(
        &self,
        fence: &Fence,
        known: u64,
        sent: Moment,
        answer: &Value,
        live: &Live,
    ) -> Result<(), Fault> {
        let Value::Array(raised) = answer else { return Err(unfit(live)) };
        let [Value::Int(counter), Value::Int(now)] = raised[..] else { return Err(unfit(live)) };
        let time = u64::try_from(now).map_err(|_| unfit(live))?;
        if time > LAST_FENCE {
            return Err(Fault::lasting(BackendKind::Other, CLOCK));
        }
        let highest = time.saturating_add(AHEAD).min(LAST_FENCE);
        let Some(counter) = u64::try_from(counter).ok().filter(|counter| *counter <= highest)
        else {
            return Err(counter_is_foreign());
        };
        self.server_time(now);
        self.highest_fence.store(highest, Ordering::Release);
        if known > highest {
            // Another server has said so, or this one with another clock: the script left it out.
            let orders = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = fence.seen.compare_exchange(known, counter, orders.0, orders.1);
        }
        // Others may have drawn up to here: what is drawn below, after a loss of data, is not new.
        fence.seen.fetch_max(counter, Ordering::AcqRel);
        fence.raised_at.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        self.set_raised(fence, live, true);
        Ok(())
    }

    /// The server's clock shows so many µs.
    fn server_time(&self, micros: i64) {
        let own = i64::try_from(Clock::Boottime.now().as_nanos() / 1000).unwrap_or(i64::MAX);
        self.server_ahead.store(micros.saturating_sub(own), Ordering::Release);
    }

    /// When a command that is sent now must not run any more, by the server's clock.
    fn not_after(&self) -> u64 {
        match self.server_ahead.load(Ordering::Acquire) {
            i64::MIN => 0,
            ahead => {
                let patience = self.command_timeout.saturating_add(NOT_AFTER);
                let until = Clock::Boottime.now().after(patience);
                (until.as_nanos() / 1000).saturating_add_signed(ahead)
            }
        }
    }

    /// Whether the fence was raised on this connection.
    fn is_raised(&self, fence: &Fence, live: &Live) -> bool {
        match std::ptr::eq(fence, &self.fence) {
            true => live.fence_raised.load(Ordering::Acquire),
            false => fence.raised_on.load(Ordering::Acquire) == live.number,
        }
    }

    fn set_raised(&self, fence: &Fence, live: &Live, raised: bool) {
        match std::ptr::eq(fence, &self.fence) {
            true => live.fence_raised.store(raised, Ordering::Release),
            false => {
                let number = if raised { live.number } else { 0 };
                fence.raised_on.store(number, Ordering::Release);
            }
        }
    }

    /// A prefix that a request has named must be heard of for as long as there may be a lock of ours:
    /// its holder is told who stands behind him, and if it is taken away from him.
    fn keep_hearing(&self, lock: &LockName, ttl: Duration) {
        if lock.fence().is_some() {
            self.wakes.is_used(lock.prefix(), ttl);
        }
    }

    /// The counter of a prefix that a request has named.
    fn other_fence(&self, key: &Arc<str>) -> Arc<Fence> {
        let mut fences = self.other_fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.of(key, Clock::Boottime.now())
    }

    /// What is rare is on the heap: it would make the future of every acquire larger, which is moved
    /// to the heap for each.
    async fn acquire(&self, attempt: &Attempt, limit: Moment) -> Result<Answer, Fault> {
        let claim = &*attempt.claim;
        let mut live = self.pool.commands(claim.lock.stored()).live(limit).await?;
        let other = claim.lock.fence().map(|key| self.other_fence(key));
        self.keep_hearing(&claim.lock, attempt.term.stored_for());
        let counter = other.as_deref().unwrap_or(&self.fence);
        // Before the first grant on a connection: the server behind it may have lost its data.
        if !self.is_raised(counter, &live) {
            let lock = Some(&*claim.lock);
            Box::pin(self.raise_fence(counter, lock, &mut live, limit)).await?;
        }
        let Fast { granted, fence, sent, seen, raised } =
            self.fast_path(attempt, counter, &mut live, limit).await?;
        let mut sent = sent;
        if !granted && !attempt.look {
            return Ok(Answer::Taken { rest: None });
        }
        if !granted {
            // `SET NX` says no to whatever is there. A look tells a lock from something that is
            // none, for which nobody should wait, and from our own: an acquire that was
            // delivered twice finds itself.
            match Box::pin(self.holder(claim.lock.stored(), &mut live, limit)).await? {
                Some(holder) if holder.token == claim.token => sent = claim.first_sent(),
                Some(Holder { rest, .. }) => return Ok(Answer::Taken { rest }),
                None => return Ok(Answer::Taken { rest: Some(Duration::ZERO) }),
            }
        }
        if raised && self.is_new(counter, fence, seen)? {
            return Ok(Answer::Granted { fence, sent });
        }
        self.set_raised(counter, &live, false);
        match Box::pin(self.draw_again(attempt, counter, &mut live, limit)).await? {
            Some(fence) => Ok(Answer::Granted { fence, sent }),
            None => Ok(Answer::Taken { rest: None }),
        }
    }

    /// A counter value for a lock that was granted with one which is not new: data was lost under a
    /// live connection. `None` if the lock is not the claim's any more.
    ///
    /// By a renewal, which neither frees nor makes the lock: others may depend on its token by now.
    async fn draw_again(
        &self,
        attempt: &Attempt,
        counter: &Fence,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<Option<u64>, Fault> {
        for _ in 0..FENCE_TRIES {
            self.raise_fence(counter, None, live, limit).await?;
            let seen = counter.seen.load(Ordering::Acquire);
            let ttl = attempt.term.stored_for();
            let renewal = Renewal { claim: attempt.claim.clone(), ttl, draw: true };
            let number = self.renewals.fetch_add(1, Ordering::Relaxed);
            renewal.claim.stored_until(Clock::Boottime.now().after(ttl));
            let (keys, args) = self.renewal(&renewal, number);
            let answer =
                self.run(live, &self.renew, keys_of(&renewal, &keys), &args, limit).await?;
            match owned(&answer, number, live)? {
                Owned::Yes { fence: Some(fence), .. } if self.is_new(counter, fence, seen)? => {
                    return Ok(Some(fence));
                }
                Owned::Yes { .. } => {}
                Owned::No => return Ok(None),
            }
        }
        Err(Fault::lasting(BackendKind::Other, "the counter of fencing tokens goes backwards"))
    }

    /// Whether a counter value is above all that were known when it was asked for.
    fn is_new(&self, counter: &Fence, fence: u64, seen: u64) -> Result<bool, Fault> {
        if !self.is_honest(fence) {
            return Err(counter_is_foreign());
        }
        let new = fence > seen;
        if new {
            counter.seen.fetch_max(fence, Ordering::AcqRel);
        }
        Ok(new)
    }

    /// Whether a counter can have come to this value by counting and by the server's time.
    fn is_honest(&self, fence: u64) -> bool {
        fence <= self.highest_fence.load(Ordering::Acquire)
    }

    /// Takes the lock if it is free or reserved for the claim, and stands in the queue if not.
    async fn stand_in_queue(&self, entry: &Entry, limit: Moment) -> Result<Entered, Fault> {
        let Entry { claim, term, ticket } = entry;
        let stored = claim.lock.stored();
        let mut live = self.pool.commands(stored).live(limit).await?;
        let other = claim.lock.fence().map(|key| self.other_fence(key));
        self.keep_hearing(&claim.lock, term.stored_for());
        let counter = other.as_deref().unwrap_or(&self.fence);
        let keys = [Word::Text(stored), Word::Queue(&claim.lock), Word::Text(&counter.key)];
        for _ in 0..FENCE_TRIES {
            if !self.is_raised(counter, &live) {
                self.raise_fence(counter, Some(&claim.lock), &mut live, limit).await?;
            }
            if claim.is_retired() {
                return Err(Fault::given_up());
            }
            let args = [
                Word::Text(&claim.token),
                Word::Number(millis(term.stored_for())),
                Word::Number(*ticket),
                Word::Number(QUEUE_EXPIRY),
                Word::Number(self.not_after()),
            ];
            let seen = counter.seen.load(Ordering::Acquire);
            let sent = Clock::Boottime.now();
            claim.sending(sent, term.stored_for(), live.number);
            claim.leaves_a_trace();
            let given_up = || claim.is_retired();
            let answer =
                self.run_unless(given_up, &mut live, &self.acquire, &keys, &args, limit).await;
            // An error of the script is an answer: it does not run any more.
            if let Err(RedisOr::Redis(error)) = &answer
                && error.code().is_some()
            {
                claim.answered(live.number);
            }
            let answer = answer.map_err(RedisOr::into_fault)?;
            let Value::Array(answer) = answer else { return Err(out_of_step(&live)) };
            // Not an answer at all for this claim if it is another's.
            match answer.get(1) {
                Some(Value::BulkString(token)) if *token == claim.token.as_bytes() => {}
                _ => return Err(out_of_step(&live)),
            }
            claim.answered(live.number);
            match ints(&answer) {
                [Some(1), _, Some(fence), Some(behind), ..] => {
                    let fence = u64::try_from(fence).unwrap_or(0);
                    if self.is_new(counter, fence, seen)? {
                        return Ok(Entered::Granted { fence, sent, contended: behind != 0 });
                    }
                    // Data was lost under a live connection: raise, and draw another value.
                    self.set_raised(counter, &live, false);
                }
                [Some(0), _, Some(ticket), Some(rest), Some(rank), Some(behind), Some(added)] => {
                    let number = |number| u64::try_from(number).unwrap_or(0);
                    // It would keep its place behind everybody, also when the counter is mended.
                    if !self.is_honest(number(ticket)) {
                        return Err(counter_is_foreign());
                    }
                    return Ok(Entered::Queued {
                        ticket: number(ticket),
                        rest: u64::try_from(rest).ok().map(Duration::from_millis),
                        rank: number(rank),
                        behind: number(behind),
                        added: added != 0,
                    });
                }
                // It came too late by the server's clock, which may have been set.
                [Some(3), _, Some(now), ..] => self.server_time(now),
                _ => return Err(out_of_step(&live)),
            }
        }
        Err(Fault::passing(BackendKind::Other, "the server's clock or its counters are unsteady"))
    }

    /// `SET NX` and the fence in one write, whose answers come together.
    async fn fast_path(
        &self,
        attempt: &Attempt,
        counter: &Fence,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<Fast, Fault> {
        let Attempt { claim, term, .. } = attempt;
        let lock = claim.lock.stored();
        let mut set = Cmd::with_capacity(6, lock.len() + claim.token.len() + 32);
        set.arg("SET")
            .arg(&**lock)
            .arg(&claim.token)
            .arg("NX")
            .arg("PX")
            .arg(millis(term.stored_for()));
        let mut incr = Cmd::with_capacity(2, counter.key.len() + 4);
        incr.arg("INCR").arg(&*counter.key);
        let mut pipeline = redis::Pipeline::with_capacity(3);
        let seen = counter.seen.load(Ordering::Acquire);
        // The deadline counts from here: later, and a slow answer would make the lease longer here
        // than it is at the server.
        let sent = Clock::Boottime.now();
        let raises = counter.is_stale(sent);
        if raises {
            let raise = self.raise.by_hash(&[Word::Text(&counter.key)], &raise_args(seen));
            pipeline.add_command(raise);
        }
        pipeline.add_command(set).add_command(incr);
        // Says whose answers these are: a network that loses some gives every caller another's.
        let mark = claim.mark();
        if live.echoes(sent) {
            let mut echo = Cmd::with_capacity(2, mark.len() + 4);
            echo.arg("ECHO").arg(mark);
            pipeline.add_command(echo);
        }
        if claim.is_retired() {
            return Err(Fault::given_up());
        }
        claim.sending(sent, term.stored_for(), live.number);
        let answers = live.pipeline(&pipeline, sent, limit).await?;
        let (raise, answers) = answers.split_at(usize::from(raises).min(answers.len()));
        match of_mark(mark, answers, live)? {
            [answer @ (Value::Okay | Value::Nil), fence] => {
                claim.answered(live.number);
                if *answer == Value::Okay {
                    claim.leaves_a_trace();
                }
                let raised = match raise {
                    // Another server, perhaps, which does not have the script.
                    [Value::ServerError(_)] => false,
                    [raised] => {
                        self.raised(counter, seen, sent, raised, live)?;
                        true
                    }
                    _ => true,
                };
                let fence = integer(fence).inspect_err(|_| self.look_after(live, &answers[1]))?;
                let fence = u64::try_from(fence).unwrap_or(0);
                Ok(Fast { granted: *answer == Value::Okay, fence, sent, seen, raised })
            }
            [Value::ServerError(error), _] => {
                claim.answered(live.number);
                let error = RedisError::from(error.clone());
                live.heed(&error);
                Err(fault(&error))
            }
            _ => Err(unfit(live)),
        }
    }

    fn look_after(&self, live: &Live, answer: &Value) {
        if let Value::ServerError(error) = answer {
            live.heed(&RedisError::from(error.clone()));
        }
    }

    /// Runs the script.
    async fn free(
        &self,
        claim: &Claim,
        keep: Option<Duration>,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<Freed, Fault> {
        let keys = [Word::Text(claim.lock.stored()), Word::Queue(&claim.lock)];
        let args = [Word::Text(&claim.token), Word::Number(keep.map_or(0, millis))];
        let args = &args[..1 + usize::from(keep.is_some())];
        match self.run(live, &self.release, &keys, args, limit).await? {
            Value::Int(state) => Ok(freed(state, None)),
            Value::Array(answer) => match answer.as_slice() {
                [Value::Int(state), Value::BulkString(next)] => {
                    let next = String::from_utf8_lossy(next);
                    Ok(freed(*state, (!next.is_empty()).then(|| next.into())))
                }
                _ => Err(unfit(live)),
            },
            _ => Err(unfit(live)),
        }
    }

    async fn holder(
        &self,
        lock: &str,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<Option<Holder>, Fault> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("GET").arg(lock).cmd("PTTL").arg(lock);
        match live.pipeline(&pipeline, Clock::Boottime.now(), limit).await?.as_slice() {
            [Value::Nil, _] => Ok(None),
            [Value::BulkString(token), rest] => {
                let token = String::from_utf8_lossy(token).into_owned();
                let rest = u64::try_from(integer(rest)?).ok().map(Duration::from_millis);
                Ok(Some(Holder { token, rest, waiting: HashSet::new() }))
            }
            [Value::ServerError(error), _] => Err(fault(&RedisError::from(error.clone()))),
            _ => Err(unfit(live)),
        }
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let limit = Clock::Boottime.now().after(self.command_timeout);
        let mut live = self.pool.renewals().live(limit).await?;
        let sent = Clock::Boottime.now();
        let mut pipeline = redis::Pipeline::with_capacity(renewals.len());
        let first = self.renewals.fetch_add(renewals.len() as u64, Ordering::Relaxed);
        for (number, renewal) in (first..).zip(renewals) {
            renewal.claim.stored_until(sent.after(renewal.ttl));
            self.keep_hearing(&renewal.claim.lock, renewal.ttl);
            let (keys, args) = self.renewal(renewal, number);
            pipeline.add_command(self.renew.by_hash(keys_of(renewal, &keys), &args));
        }
        let mut answers: Vec<_> = live.pipeline(&pipeline, sent, limit).await?;
        let missing: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if !missing.is_empty() {
            let mut again = redis::Pipeline::with_capacity(missing.len());
            for (nth, at) in missing.iter().enumerate() {
                let renewal = &renewals[*at];
                let (keys, args) = self.renewal(renewal, first + *at as u64);
                // One text will do: by the next command the server knows it.
                let call = if nth == 0 { Script::by_text } else { Script::by_hash };
                again.add_command(call(&self.renew, keys_of(renewal, &keys), &args));
            }
            let repeated = live.pipeline(&again, Clock::Boottime.now(), limit).await?;
            missing.iter().zip(repeated).for_each(|(at, answer)| answers[*at] = answer);
        }
        answers.iter().for_each(|answer| self.look_after(&live, answer));
        let answers = (first..).zip(renewals).zip(&answers);
        let answers = answers.map(|((number, one), answer)| self.owned(one, number, answer, &live));
        Ok(Renewed { sent, answers: answers.collect() })
    }

    fn owned(
        &self,
        renewal: &Renewal,
        number: u64,
        answer: &Value,
        live: &Live,
    ) -> Result<Owned, Fault> {
        let owned = owned(answer, number, live)?;
        if let Owned::Yes { fence: Some(fence), .. } = owned {
            let other = renewal.claim.lock.fence().map(|key| self.other_fence(key));
            let counter = other.as_deref().unwrap_or(&self.fence);
            if !self.is_new(counter, fence, renewal.claim.fence())? {
                let text = "the counter of fencing tokens goes backwards";
                return Err(Fault::passing(BackendKind::Other, text));
            }
        }
        Ok(owned)
    }

    /// What the script is run with; see [`keys_of`] for how many of the keys.
    fn renewal<'a>(&'a self, renewal: &'a Renewal, number: u64) -> ([Word<'a>; 3], [Word<'a>; 4]) {
        let Claim { lock, token, .. } = &*renewal.claim;
        let counter = lock.fence().unwrap_or(&self.fence.key);
        let keys = [Word::Text(lock.stored()), Word::Queue(lock), Word::Text(counter)];
        let (ttl, draw) = (Word::Number(millis(renewal.ttl)), Word::Number(renewal.draw.into()));
        (keys, [Word::Text(token), ttl, draw, Word::Number(number)])
    }
}

/// The counter is named last, and only where a value is drawn from it.
fn keys_of<'a, 'b>(renewal: &Renewal, keys: &'b [Word<'a>; 3]) -> &'b [Word<'a>] {
    &keys[..2 + usize::from(renewal.draw)]
}

/// What a release was answered, which nothing of the claim can follow.
fn freed(state: i64, next: Option<Box<str>>) -> Freed {
    Freed { was_ours: state != 0, settled: true, next, awaited: state == 3 }
}

/// What the renewal of this number was answered.
fn owned(answer: &Value, number: u64, live: &Live) -> Result<Owned, Fault> {
    let parts = match answer {
        Value::Array(parts) => parts,
        Value::ServerError(error) => return Err(fault(&RedisError::from(error.clone()))),
        _ => return Err(out_of_step(live)),
    };
    match ints(parts) {
        [Some(state), Some(own), fence, ..] if u64::try_from(own) == Ok(number) => match state {
            0 => Ok(Owned::No),
            state => {
                let fence = fence.and_then(|fence| u64::try_from(fence).ok());
                Ok(Owned::Yes { contended: state == 2, fence })
            }
        },
        _ => Err(out_of_step(live)),
    }
}

/// The counter holds what it cannot have.
fn counter_is_foreign() -> Fault {
    Fault::lasting(BackendKind::Other, fault::COUNTER)
}

/// The two answers of the fast path without what is echoed behind them, if they are those of this
/// mark.
fn of_mark<'a>(mark: &str, answers: &'a [Value], live: &Live) -> Result<&'a [Value], Fault> {
    let [set, incr, echoed] = answers else {
        return Ok(answers);
    };
    let both = &answers[..2];
    match echoed {
        Value::BulkString(echoed) if echoed == mark.as_bytes() => Ok(both),
        // Neither the one nor the other: it is busy, or loads its data.
        Value::ServerError(_) if matches!(set, Value::ServerError(_)) => Ok(both),
        Value::ServerError(error) if matches!(incr, Value::Int(_)) => {
            let error = RedisError::from(error.clone());
            if !is_denied(&error) {
                return Err(fault(&error));
            }
            live.must_not_echo();
            Ok(both)
        }
        _ => Err(out_of_step(live)),
    }
}

/// What came is no answer to what was asked: nothing that follows on this connection can be trusted.
fn unfit(live: &Live) -> Fault {
    live.abandon();
    unexpected()
}

/// The same for who asks again on the next connection.
fn out_of_step(live: &Live) -> Fault {
    live.abandon();
    Fault::passing(BackendKind::Other, "an answer that belongs to another command")
}

/// The numbers in an answer of up to seven parts.
fn ints(answer: &[Value]) -> [Option<i64>; 7] {
    std::array::from_fn(|at| match answer.get(at) {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    })
}

/// A counter that fencing tokens are drawn from: one for each prefix.
struct Fence {
    key: Arc<str>,
    /// The highest value that this process was given.
    seen: AtomicU64,
    /// The number of the connection on which it was raised last; 0 if on none. The manager's own
    /// counter is noted on each connection instead. With several connections another prefix's may
    /// be raised more often than needed, which costs a round trip.
    raised_on: AtomicU64,
    /// When the last command was sent that has raised it.
    raised_at: AtomicU64,
}

impl Fence {
    fn new(key: Arc<str>) -> Self {
        let (seen, raised_on, raised_at) = Default::default();
        Self { key, seen, raised_on, raised_at }
    }

    /// Others may have drawn values since it was raised that the server has forgotten.
    fn is_stale(&self, now: Moment) -> bool {
        let raised_at = Moment::from_nanos(self.raised_at.load(Ordering::Acquire));
        now.since(raised_at) >= RAISE_AFTER
    }
}

/// What the counter is raised with by who knows values up to `known`.
fn raise_args(known: u64) -> [Word<'static>; 3] {
    [known + 1, LAST_FENCE, AHEAD].map(Word::Number)
}

/// The counters of other prefixes, for as long as they are used.
#[derive(Default)]
struct OtherFences {
    known: HashMap<Arc<str>, (Arc<Fence>, Moment)>,
    /// When those are forgotten that nobody has used for long.
    tidy_up_at: Option<Moment>,
}

impl OtherFences {
    fn of(&mut self, key: &Arc<str>, now: Moment) -> Arc<Fence> {
        let until = kept_until(now, Duration::ZERO);
        if self.tidy_up_at.is_none_or(|at| at <= now) {
            // What this process has seen of it is lost. It is raised to the server's time when it is
            // used again, as by a process that has seen nothing.
            self.known.retain(|_, (fence, until)| *until >= now || Arc::strong_count(fence) > 1);
            shrink(&mut self.known);
            self.tidy_up_at = Some(until);
        }
        let made = || (Arc::new(Fence::new(key.clone())), until);
        let (fence, kept) = self.known.entry(key.clone()).or_insert_with(made);
        *kept = until;
        fence.clone()
    }
}

/// What the fast path was answered.
struct Fast {
    granted: bool,
    /// The counter of fencing tokens, drawn for this try.
    fence: u64,
    sent: Moment,
    /// The highest counter that was known when it was sent.
    seen: u64,
    /// The counter was raised with it, or a moment before.
    raised: bool,
}

fn is_unknown(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => is_missing_script(&RedisError::from(error.clone())),
        _ => false,
    }
}

impl Store for RedisStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn ready(self: Arc<Self>, limit: Moment) -> Op<()> {
        Box::pin(async move {
            let prefix = self.wakes.prefix();
            let nobodys = LockName::of_stored(prefix, &[prefix, "lock:{cluster?}"].concat());
            for link in self.pool.all_commands() {
                let mut live = link.first(limit).await?;
                // The names of a lock that nobody takes: an ACL may allow others only.
                let mut raised =
                    self.raise_fence(&self.fence, nobodys.as_ref(), &mut live, limit).await;
                if raised.as_ref().is_err_and(|fault| fault.kind == BackendKind::Refused) {
                    raised = self.raise_fence(&self.fence, None, &mut live, limit).await;
                }
                match raised {
                    // Whoever is out of memory can still free and renew; acquires will say so.
                    Err(fault) if fault.kind != BackendKind::OutOfMemory => return Err(fault),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn hears(&self, lock: &LockName) -> bool {
        self.wakes.hears(lock)
    }

    fn outage(&self) -> Option<Outage> {
        self.pool.outage()
    }

    fn listen(&self, process: &str, ears: Ears) {
        let links = self.pool.all_commands().to_vec();
        self.wakes.start(process, ears, self.link.clone(), links, &self.handle);
    }

    fn try_acquire(&self, attempt: Attempt, limit: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move { self.acquire(&attempt, limit).await })
    }

    fn enter(self: Arc<Self>, entry: Entry, limit: Moment) -> Op<Entered> {
        Box::pin(async move { self.stand_in_queue(&entry, limit).await })
    }

    fn release(
        self: Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
        limit: Moment,
    ) -> Op<Freed> {
        Box::pin(async move {
            let mut live = self.pool.commands(claim.lock.stored()).live(limit).await?;
            // An acquire that died unanswered with an older connection may still run.
            let settled = claim.is_behind(live.number, live.buried_below);
            let freed = self.free(&claim, keep, &mut live, limit).await?;
            Ok(Freed { settled, ..freed })
        })
    }

    fn lane(&self, lock: &LockName) -> usize {
        self.pool.lane(lock.stored())
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    fn ping(self: Arc<Self>, limit: Moment) -> Op<Duration> {
        Box::pin(async move {
            let mut live = self.pool.all_commands()[0].live(limit).await?;
            // No `PING`, which needs a right of its own and is answered by a server that cannot read
            // its data yet.
            let mut exists = redis::cmd("EXISTS");
            exists.arg(&*self.fence.key);
            let sent = Clock::Boottime.now();
            match live.command(&exists, limit).await.map_err(RedisOr::into_fault)? {
                Value::Int(_) => Ok(Clock::Boottime.now().since(sent)),
                _ => Err(unfit(&live)),
            }
        })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let Some(owner) = Token::parse(&token).map(|token| token.process) else { return };
            let limit = Clock::Boottime.now().after(self.command_timeout);
            let Ok(mut live) = self.pool.commands(lock.stored()).live(limit).await else { return };
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(Wakes::channels(lock.prefix()) + owner);
            publish.arg(["x ", &token, " ", lock.stored()].concat());
            // Its owner finds out at his next renewal, too.
            let _ = live.command(&publish, limit).await;
        });
    }

    fn status(&self) -> StoreStatus {
        let mut connected = self.pool.all_commands().iter().filter_map(|link| link.driven_by());
        let first = connected.next();
        let by_callers = first.into_iter().chain(connected).any(|by| by == DrivenBy::Callers);
        StoreStatus {
            connected: first.is_some(),
            wake_ups: self.wakes.state(),
            driven_by: if by_callers { DrivenBy::Callers } else { DrivenBy::Manager },
        }
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, limit: Moment) -> Op<Option<Holder>> {
        Box::pin(async move {
            let mut live = self.pool.commands(lock.stored()).live(limit).await?;
            let holder = self.holder(lock.stored(), &mut live, limit).await?;
            let queue = redis::Cmd::zrange(Word::Queue(&lock), 0, -1);
            let queue = live.command(&queue, limit).await.map_err(RedisOr::into_fault)?;
            let Value::Array(queue) = queue else { return Err(unfit(&live)) };
            // A process may stand there more than once.
            let process = |token: &Value| match token {
                Value::BulkString(token) => {
                    let token = String::from_utf8_lossy(token);
                    let process = Token::parse(&token).map(|token| token.process.to_owned());
                    Some(process.unwrap_or_else(|| token.into_owned()))
                }
                _ => None,
            };
            let waiting = queue.iter().filter_map(process).collect();
            Ok(holder.map(|holder| Holder { waiting, ..holder }))
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("status", &self.status()).finish_non_exhaustive()
    }
}
