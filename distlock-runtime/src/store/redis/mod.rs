//! Locks on one Redis (or Valkey) primary.
//!
//! The fast path needs no Lua: `SET lock token NX PX ttl` and `INCR fence` in one write. Release
//! and renewal are scripts, because they must compare before they act. The way `SET NX` with a
//! random value and compare-and-delete make a lock is the one the Redis documentation describes;
//! the fence counter, raised to the server's time at every connect, is what it leaves out.

mod connection;
mod driver;
mod fault;
mod link;
mod pool;
mod script;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;

use super::{Answer, Claim, Fault, Freed, Holder, Op, OpOn, Renewal, Renewed, Store};
use crate::clock::{Clock, Moment};
use crate::engine::schedule::Schedule;
use crate::error::{BackendKind, LockName};
use crate::options::millis;
use connection::{Connection, Live, RedisOr, integer};
use fault::{fault, is_missing_script, unexpected};
use link::LinkConfig;
use pool::ConnectionPool;
use script::Script;

/// Public fencing tokens leave room under each counter value for holders of one process that hand
/// a lease on without asking the server.
const TOKENS_PER_FENCE: u64 = 1024;
/// The highest counter value that Lua's numbers count to exactly; with the room for holders under it
/// a fencing token is still a positive number of 64 bits. Microseconds reach it in 2255.
const LAST_FENCE: u64 = 1 << 53;
/// A counter that went backwards was lost with the server's data; raising it once is enough.
const FENCE_TRIES: usize = 3;

/// How to reach a Redis.
pub(crate) struct RedisConfig {
    pub(crate) info: ConnectionInfo,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
    /// Where the counter of fencing tokens is stored.
    pub(crate) fence: String,
}

/// Locks on one Redis.
pub(crate) struct RedisStore {
    pool: ConnectionPool,
    command_timeout: Duration,
    fence: Fence,
    /// Of other prefixes that requests have named, by their keys.
    other_fences: Mutex<HashMap<Arc<str>, Arc<Fence>>>,
    release: Script,
    renew: Script,
    raise: Script,
}

impl RedisStore {
    pub(crate) fn start(config: RedisConfig, handle: &Handle, schedule: &Arc<Schedule>) -> Self {
        let RedisConfig { info, command_timeout, connect_timeout, connections, fence } = config;
        let link = LinkConfig { info, command_timeout, connect_timeout };
        Self {
            pool: ConnectionPool::start(&link, connections, handle, schedule),
            command_timeout,
            fence: Fence::new(fence.into()),
            other_fences: Mutex::default(),
            release: Script::release(),
            renew: Script::renew(),
            raise: Script::raise(),
        }
    }

    /// Runs a script that answers with a number.
    async fn run(
        &self,
        live: &mut Connection,
        script: &Script,
        key: &str,
        args: &[&[u8]],
        limit: Moment,
    ) -> Result<i64, Fault> {
        let answer = match live.command(&script.by_hash(key, args), limit).await {
            Err(RedisOr::Redis(error)) if is_missing_script(&error) => {
                live.command(&script.by_text(key, args), limit).await
            }
            answer => answer,
        };
        integer(&answer.map_err(RedisOr::into_fault)?)
    }

    /// Raises the fence counter above everything this process has seen and to the server's time.
    async fn raise_fence(
        &self,
        fence: &Fence,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<(), Fault> {
        let floor = (fence.seen.load(Ordering::Acquire) + 1).to_string();
        self.run(live, &self.raise, &fence.key, &[floor.as_bytes()], limit).await?;
        self.set_raised(fence, live, true);
        Ok(())
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

    /// The counter of a prefix that a request has named.
    fn other_fence(&self, key: &Arc<str>) -> Arc<Fence> {
        let mut fences = self.other_fences.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(Fence::new(key.clone()));
        fences.entry(key.clone()).or_insert_with(made).clone()
    }

    async fn acquire(&self, claim: &Claim, limit: Moment) -> Result<Answer, Fault> {
        let mut live = self.pool.commands(claim.lock.stored()).live(limit).await?;
        let other = claim.lock.fence().map(|key| self.other_fence(key));
        let counter = other.as_deref().unwrap_or(&self.fence);
        for _ in 0..FENCE_TRIES {
            // Before the first grant on a connection: the server behind it may have lost its data.
            if !self.is_raised(counter, &live) {
                self.raise_fence(counter, &mut live, limit).await?;
            }
            let Fast { granted, fence, sent, seen } =
                self.fast_path(claim, counter, &mut live, limit).await?;
            let mut sent = sent;
            if !granted {
                // `SET NX` says no to whatever is there. A look tells a lock from something that is
                // none, for which nobody should wait, and from our own: an acquire that was
                // delivered twice finds itself.
                match self.holder(claim.lock.stored(), &mut live, limit).await? {
                    Some(holder) if holder.token == claim.token => sent = claim.first_sent(),
                    Some(Holder { rest, .. }) => return Ok(Answer::Taken { rest }),
                    None => return Ok(Answer::Taken { rest: Some(Duration::ZERO) }),
                }
            }
            let fence = u64::try_from(fence).unwrap_or(0);
            if fence > LAST_FENCE {
                return Err(Fault::lasting(
                    BackendKind::Other,
                    "the counter of fencing tokens is used up: something else has written to it",
                ));
            }
            if fence > seen {
                counter.seen.fetch_max(fence, Ordering::AcqRel);
                return Ok(Answer::Granted { fence: fence * TOKENS_PER_FENCE, sent });
            }
            // Data was lost under a live connection: give the lock back, raise, try again.
            self.set_raised(counter, &live, false);
            self.free(claim, None, &mut live, limit).await?;
        }
        Err(Fault::lasting(BackendKind::Other, "the counter of fencing tokens goes backwards"))
    }

    /// `SET NX` and the fence in one write, whose answers come together.
    async fn fast_path(
        &self,
        claim: &Claim,
        counter: &Fence,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<Fast, Fault> {
        let lock = claim.lock.stored();
        let mut set = Cmd::with_capacity(6, lock.len() + claim.token.len() + 32);
        set.arg("SET")
            .arg(lock)
            .arg(&claim.token)
            .arg("NX")
            .arg("PX")
            .arg(millis(claim.term.stored_for()));
        let mut incr = Cmd::with_capacity(2, counter.key.len() + 4);
        incr.arg("INCR").arg(&*counter.key);
        let mut pipeline = redis::Pipeline::with_capacity(2);
        pipeline.add_command(set).add_command(incr);
        let seen = counter.seen.load(Ordering::Acquire);
        // The deadline counts from here: later, and a slow answer would make the lease longer here
        // than it is at the server.
        let sent = Clock::Boottime.now();
        claim.sending(sent, live.number);
        let answers = live.pipeline(&pipeline, sent, limit).await?;
        claim.answered();
        match answers.as_slice() {
            [answer @ (Value::Okay | Value::Nil), fence] => {
                let fence = integer(fence).inspect_err(|_| self.look_after(live, &answers[1]))?;
                Ok(Fast { granted: *answer == Value::Okay, fence, sent, seen })
            }
            [Value::ServerError(error), _] => {
                let error = RedisError::from(error.clone());
                live.heed(&error);
                Err(fault(&error))
            }
            _ => Err(unexpected()),
        }
    }

    fn look_after(&self, live: &Live, answer: &Value) {
        if let Value::ServerError(error) = answer {
            live.heed(&RedisError::from(error.clone()));
        }
    }

    async fn free(
        &self,
        claim: &Claim,
        keep: Option<Duration>,
        live: &mut Connection,
        limit: Moment,
    ) -> Result<bool, Fault> {
        let keep = keep.map_or(Cow::Borrowed("0"), |keep| Cow::Owned(millis(keep).to_string()));
        let args = [claim.token.as_bytes(), keep.as_bytes()];
        Ok(self.run(live, &self.release, claim.lock.stored(), &args, limit).await? == 1)
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
                Ok(Some(Holder { token, rest }))
            }
            [Value::ServerError(error), _] => Err(fault(&RedisError::from(error.clone()))),
            _ => Err(unexpected()),
        }
    }

    async fn extend(&self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let limit = Clock::Boottime.now().after(self.command_timeout);
        let mut live = self.pool.renewals().live(limit).await?;
        let sent = Clock::Boottime.now();
        let mut pipeline = redis::Pipeline::with_capacity(renewals.len());
        for renewal in renewals {
            renewal.claim.stored_until(sent.after(renewal.ttl));
            pipeline.add_command(self.renewal(renewal, Script::by_hash));
        }
        let mut answers: Vec<_> = live.pipeline(&pipeline, sent, limit).await?;
        let missing: Vec<_> = (0..answers.len()).filter(|at| is_unknown(&answers[*at])).collect();
        if !missing.is_empty() {
            let mut again = redis::Pipeline::with_capacity(missing.len());
            for at in &missing {
                again.add_command(self.renewal(&renewals[*at], Script::by_text));
            }
            let repeated = live.pipeline(&again, Clock::Boottime.now(), limit).await?;
            missing.iter().zip(repeated).for_each(|(at, answer)| answers[*at] = answer);
        }
        answers.iter().for_each(|answer| self.look_after(&live, answer));
        let answers = answers.iter().map(|answer| Ok(integer(answer)? == 1)).collect();
        Ok(Renewed { sent, answers })
    }

    fn renewal(&self, renewal: &Renewal, form: fn(&Script, &str, &[&[u8]]) -> Cmd) -> Cmd {
        let ttl = millis(renewal.ttl).to_string();
        let Claim { lock, token, .. } = &*renewal.claim;
        form(&self.renew, lock.stored(), &[token.as_bytes(), ttl.as_bytes()])
    }
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
}

impl Fence {
    fn new(key: Arc<str>) -> Self {
        Self { key, seen: AtomicU64::new(0), raised_on: AtomicU64::new(0) }
    }
}

/// What the fast path was answered.
struct Fast {
    granted: bool,
    /// The counter of fencing tokens, drawn for this try.
    fence: i64,
    sent: Moment,
    /// The highest counter that was known when it was sent.
    seen: u64,
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
            for link in self.pool.all_commands() {
                let mut live = link.first(limit).await?;
                match self.raise_fence(&self.fence, &mut live, limit).await {
                    // Whoever is out of memory can still free and renew; acquires will say so.
                    Err(fault) if fault.kind != BackendKind::OutOfMemory => return Err(fault),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn try_acquire(&self, claim: Arc<Claim>, limit: Moment) -> OpOn<'_, Answer> {
        Box::pin(async move { self.acquire(&claim, limit).await })
    }

    fn release(
        self: Arc<Self>,
        claim: Arc<Claim>,
        keep: Option<Duration>,
        limit: Moment,
    ) -> Op<Freed> {
        Box::pin(async move {
            let mut live = self.pool.commands(claim.lock.stored()).live(limit).await?;
            let in_doubt = claim.in_doubt();
            let was_ours = self.free(&claim, keep, &mut live, limit).await?;
            // An acquire that died unanswered with an older connection may still run.
            let settled =
                in_doubt.is_none_or(|number| number == live.number || number < live.buried_below);
            Ok(Freed { was_ours, settled })
        })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(&renewals).await })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, limit: Moment) -> Op<Option<Holder>> {
        Box::pin(async move {
            let mut live = self.pool.commands(lock.stored()).live(limit).await?;
            self.holder(lock.stored(), &mut live, limit).await
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}
