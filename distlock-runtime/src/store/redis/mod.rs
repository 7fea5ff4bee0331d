//! Locks on one Redis (or Valkey) primary.
//!
//! The way `SET NX` with a random value and compare-and-delete make a lock is the one the Redis
//! documentation describes; what it leaves out is here: fencing tokens that grow over lost data, a
//! fair queue, and releases that are never overtaken by what was sent before them.
//!
//! - `acquire`: the fast path of a lock that is taken alone, without Lua
//! - `queue`: waiting behind others; `grant`: how this and an `exchange` run their scripts
//! - `renew`, `release`, `exchange`, `inspect`
//! - `replicas`: what was written is confirmed by replicas
//! - `record`: which process this is, for others
//! - `fence`: the counters of fencing tokens; `server_clock`
//! - `pubsub`, `prefixes`: notifications
//! - `server`: what all of these share
//! - `layout` → `node` → `pool` → `link` → `connection` → `io`: the way of a command to the server that
//!   keeps the lock; `target`, `connect`, `tls`, `greeting`, `able`, `previous`; `sentinels`, `primary`
//! - `script`, `lua/`: what runs there; `error`: what its errors mean

mod able;
mod acquire;
mod connect;
mod connection;
mod console;
mod error;
mod eviction;
mod exchange;
mod fence;
mod grant;
mod greeting;
mod inspect;
mod io;
mod layout;
mod link;
mod node;
mod pool;
mod prefixes;
mod previous;
mod primary;
mod pubsub;
mod queue;
mod record;
mod release;
mod renew;
mod replicas;
pub(crate) mod script;
mod sentinels;
mod server;
mod server_clock;
mod target;
#[cfg_attr(not(feature = "tls"), path = "tls_off.rs")]
mod tls;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::runtime::Handle;

use super::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Freed, Held, Letter, Listener, Op, OpOn,
    Outage, Records, Renewal, Renewed, Store,
};
use crate::clock::{Clock, Moment};
use crate::engine::alarm::Alarms;
use crate::error::BackendKind;
use crate::name::LockName;
use crate::observe::Observers;
use crate::process::Itself;
use crate::status::{DrivenBy, StoreStatus};
use crate::store::console::{StoreCommand, StoreReply};
use crate::store::owner::Owner;
use able::{Expects, Mode};
use exchange::Exchanges;
use fence::Fences;
use layout::Layout;
use link::LinkConfig;
use node::Node;
use queue::Queue;
use record::Record;
use release::Releases;
use renew::Renewals;
pub(crate) use replicas::Replicas;
pub(crate) use sentinels::Sentinels;
use server::Server;
pub(crate) use target::Target;
pub(crate) use tls::TlsClient;

/// How to reach a Redis.
pub(crate) struct RedisConfig {
    pub(crate) target: Target,
    pub(crate) tls: Option<Arc<TlsClient>>,
    /// Who has to confirm grants and renewals.
    pub(crate) replicas: Option<Replicas>,
    pub(crate) command_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) io_on_caller_runtime: bool,
    /// Where the counter of fencing tokens is stored.
    pub(crate) fence: String,
    /// What all names in the store begin with.
    pub(crate) prefix: String,
    pub(crate) observers: Observers,
}

/// Locks on one Redis.
pub(crate) struct RedisStore {
    server: Server,
    queue: Queue,
    renewals: Renewals,
    releases: Releases,
    exchanges: Exchanges,
    handle: Handle,
}

impl RedisStore {
    pub(crate) fn start(config: RedisConfig, handle: &Handle, alarms: &Arc<Alarms>) -> Self {
        let RedisConfig {
            target,
            tls,
            replicas,
            command_timeout,
            connect_timeout,
            connections,
            io_on_caller_runtime: by_callers,
            fence,
            prefix,
            observers,
        } = config;
        let expects = Expects { mode: Mode::Standalone, replicas: replicas.is_some() };
        let link = LinkConfig {
            target,
            tls,
            expects,
            command_timeout,
            connect_timeout,
            by_callers,
            observers,
        };
        let links = AtomicU64::new(0);
        let node = Node::start(link, connections, prefix.clone(), &links, handle, alarms);
        let server = Server {
            layout: Layout::One(node),
            fences: Fences::new(fence),
            record: Arc::new(Record::new(prefix)),
            command_timeout,
            replicas,
        };
        Self {
            server,
            queue: Queue::new(),
            renewals: Renewals::new(),
            releases: Releases::new(),
            exchanges: Exchanges::new(),
            handle: handle.clone(),
        }
    }

    /// Raises the manager's counter on every connection, so that a bad address shows.
    async fn first_contact(&self, answer_by: Moment) -> Result<(), super::Fault> {
        let Server { layout, fences, .. } = &self.server;
        let Node { pool, subscription, .. } = &**layout.any();
        let prefix = subscription.prefix();
        let unused = LockName::of_stored(prefix, &[prefix, "lock:{cluster?}"].concat());
        for link in pool.all_commands() {
            let mut live = link.first(answer_by).await?;
            // With the names of a lock that is never taken: an ACL may allow others only.
            let mut raised = fences.raise(&fences.own, unused.as_ref(), &mut live, answer_by).await;
            if raised.as_ref().is_err_and(|fault| fault.kind == BackendKind::Refused) {
                let again = fences.raise(&fences.own, None, &mut live, answer_by).await;
                // A connection that would have to sign in is left by then: what it failed with first
                // says more.
                if again.as_ref().err().is_none_or(|fault| fault.kind == BackendKind::Refused) {
                    raised = again;
                }
            }
            match raised {
                // A server that is out of memory can still free and renew; acquires will say so.
                Err(fault) if fault.kind != BackendKind::OutOfMemory => return Err(fault),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Store for RedisStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { self.first_contact(answer_by).await })
    }

    fn is_notified(&self, lock: &LockName) -> bool {
        self.server.layout.node(lock.stored()).subscription.covers(lock)
    }

    fn outage(&self) -> Option<Outage> {
        self.server.layout.any().pool.outage()
    }

    fn listen(&self, process: &str, listener: Listener) {
        self.server.layout.any().listen(process, listener, &self.handle);
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        if !attempt.owner.limit.is_alone() {
            return Box::pin(async move {
                let Self { server, queue, .. } = self;
                let mut live = server.commands(attempt.owner.lock.stored(), answer_by).await?;
                queue.try_share(server, &attempt, &mut live, answer_by).await
            });
        }
        Box::pin(async move {
            let Self { server, renewals, .. } = self;
            let mut live = server.commands(attempt.owner.lock.stored(), answer_by).await?;
            acquire::try_acquire(server, renewals, &attempt, &mut live, answer_by).await
        })
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move {
            let mut live = self.server.commands(entry.owner.lock.stored(), answer_by).await?;
            self.queue.enter(&self.server, &entry, &mut live, answer_by).await
        })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move {
            let mut live = self.server.commands(owner.lock.stored(), answer_by).await?;
            self.releases.release(&owner, keep, &mut live, answer_by).await
        })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move {
            let mut live = self.server.commands(exchange.new.lock.stored(), answer_by).await?;
            self.exchanges.exchange(&self.server, &exchange, &mut live, answer_by).await
        })
    }

    fn lane(&self, lock: &LockName) -> usize {
        self.server.layout.node(lock.stored()).pool.lane(lock.stored())
    }

    fn part(&self, lock: &LockName) -> usize {
        self.server.layout.part(lock.stored())
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move {
            let Self { server, renewals: of_server, .. } = &*self;
            let answer_by = Clock::Boottime.now().after(server.command_timeout);
            let Some(first) = renewals.first() else {
                return Ok(Renewed { sent: Clock::Boottime.now(), answers: Vec::new() });
            };
            let node = server.layout.node(first.owner.lock.stored());
            let mut live = node.pool.renewals().live(answer_by).await?;
            of_server.extend(server, &renewals, &mut live, answer_by).await
        })
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            inspect::ping(&self.server.fences.own, &mut live, answer_by).await
        })
    }

    fn introduce(&self, itself: &Itself) {
        let Self { server, handle, .. } = self;
        let link = server.layout.any().any_link().clone();
        server.record.start(itself, link, server.command_timeout, handle);
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            self.server.record.remove(&process, &mut live, answer_by).await
        })
    }

    fn tell(self: Arc<Self>, letters: Vec<Letter>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            pubsub::tell(&mut live, &letters, answer_by).await
        })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            record::recorded(&prefix, &mut live, answer_by).await
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            record::records(&prefix, &processes, &mut live, answer_by).await
        })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            let answer_by = Clock::Boottime.now().after(self.server.command_timeout);
            let Ok(mut live) = self.server.commands(lock.stored(), answer_by).await else { return };
            // Its owner also finds out at its next renewal.
            pubsub::notify_taken(&mut live, &lock, &token, answer_by).await;
        });
    }

    fn status(&self) -> StoreStatus {
        let Node { pool, subscription, .. } = &**self.server.layout.any();
        let mut connected = pool.all_commands().iter().filter_map(|link| link.driven_by());
        let first = connected.next();
        let by_callers = first.into_iter().chain(connected).any(|by| by == DrivenBy::Callers);
        StoreStatus {
            connected: first.is_some(),
            wake_ups: subscription.state(),
            driven_by: if by_callers { DrivenBy::Callers } else { DrivenBy::Manager },
        }
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move {
            let mut live = self.server.commands(lock.stored(), answer_by).await?;
            inspect::inspect(&lock, &mut live, answer_by).await
        })
    }

    fn ask(self: Arc<Self>, commands: Vec<StoreCommand>, answer_by: Moment) -> Op<Vec<StoreReply>> {
        Box::pin(async move {
            let mut live = self.server.any(answer_by).await?;
            console::ask(&mut live, &commands, answer_by).await
        })
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = self.server.layout.any().any_link().able();
        f.debug_struct("RedisStore")
            .field("server", &server)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
