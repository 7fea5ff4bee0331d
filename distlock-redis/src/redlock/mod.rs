//! Locks on a quorum of independent Redis servers: a lock is held by the token that has it at a majority.
//!
//! The way of a majority is Redlock's, as the Redis documentation describes it: ask all at once, count
//! from before the question, release everywhere. What it leaves out is here: fencing tokens over the
//! quorum, first come first served, nodes that are not waited for, leases that are renewed by majority and
//! come to rest on all nodes, and nodes that have restarted.
//!
//! Each node is a [`RedisStore`] of its own, with its queue, its messages and its scripts; this is what
//! counts their answers.
//!
//! - `node`: one of them; `members`: whether it belongs to the quorum; `guard`: since when its answers count
//! - `round`: a question to all; `late`: answers that are not waited for; `votes`: what the answers come to
//! - `fences`: fencing tokens and tickets; `missing`: errors that name the servers that did not answer
//! - `minorities`: waiters that have some nodes, and none a majority
//! - `take`: trying and waiting; `keep`: renewing and exchanging; `free`: releasing; `look`: questions that
//!   change nothing; `console`: what tools ask

mod acquire;
mod admin;
mod fences;
pub(crate) mod identity;
mod members;
mod missing;
mod node;
mod queries;
mod release;
mod renew;
mod request;
mod split_votes;
mod stragglers;
pub(crate) mod vote;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use distlock_core::alarm::Alarms;
use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::process_info::ProcessInfo;
use distlock_core::redlock::votes::{Ballot, Verdict, Votes, majority};
use distlock_core::store::owner::Owner;
use distlock_core::store::status::{DrivenBy, StoreStatus, WakeUps};
use distlock_core::store::{
    Answer, Attempt, Entered, Entry, Exchange, Exchanged, Fault, Freed, Held, Letter, Listener,
    Message, Notification, Op, OpOn, Outage, Records, Renewal, Renewed, Store, StoreEvents,
};
use fences::Proposals;
use members::Members;
use missing::Missing;
use node::{Common, Node};
use request::{GRACE, Round};
use split_votes::Minorities;
use stragglers::LateAnswers;
use tokio::runtime::Handle;

use crate::{RedisConfig, RedisStore};

/// Locks on several independent servers.
pub struct QuorumStore {
    nodes: Arc<[Arc<Node>]>,
    proposals: Proposals,
    minorities: Arc<Minorities>,
    handle: Handle,
    alarms: Arc<Alarms>,
    late: Arc<LateAnswers>,
    command_timeout: Duration,
    /// Of the manager that uses this store.
    events: Arc<dyn StoreEvents>,
}

impl QuorumStore {
    /// Over these servers, at least three. A server that has restarted does not count for `guard`.
    pub fn start(
        servers: Vec<RedisConfig>,
        guard: Duration,
        events: Arc<dyn StoreEvents>,
        handle: &Handle,
        alarms: &Arc<Alarms>,
    ) -> Self {
        let command_timeout = servers.iter().map(|server| server.command_timeout).max();
        let command_timeout = command_timeout.unwrap_or(GRACE);
        let addrs: Vec<_> = servers.iter().map(RedisConfig::address).collect();
        let common = Arc::new(Common {
            members: Members::at(addrs.clone(), guard),
            guard,
            handle: handle.clone(),
            alarms: alarms.clone(),
            command_timeout,
            all: OnceLock::new(),
        });
        let node = |(place, (server, addr))| {
            let store = Arc::new(RedisStore::start(server, handle, alarms));
            Arc::new(Node::new(place, store, addr, &common))
        };
        let nodes: Arc<[_]> = servers.into_iter().zip(addrs).enumerate().map(node).collect();
        let _ = common.all.set(nodes.iter().map(Arc::downgrade).collect());
        nodes.iter().for_each(Node::attend);
        let minorities = Minorities::new(nodes.clone(), handle.clone(), command_timeout);
        Self {
            nodes,
            proposals: Proposals::new(),
            minorities,
            handle: handle.clone(),
            alarms: alarms.clone(),
            late: LateAnswers::new(handle, alarms),
            command_timeout,
            events,
        }
    }

    fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// The nodes that are asked: those that are known to be down are not.
    fn up(&self) -> impl Iterator<Item = (usize, &Arc<Node>)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.is_down())
    }

    /// Asks these nodes.
    fn ask<T: Send + 'static>(&self, asked: impl Iterator<Item = (usize, Op<T>)>) -> Round<'_, T> {
        self.late.look();
        Round::new(asked, &self.alarms)
    }

    /// Counts what the nodes say until they have decided, or until a majority has answered without a
    /// decision and the others take their time.
    async fn count<T: Send + 'static>(
        &self,
        round: &mut Round<'_, T>,
        mut ballot: impl FnMut(usize, Result<T, Fault>) -> Result<Ballot, Fault>,
    ) -> Result<Votes, Fault> {
        let mut votes = Votes::of(self.nodes.len(), round.unanswered());
        while votes.verdict() == Verdict::Open {
            let Some((node, answer)) = round.next_unless(votes.has_quorum()).await else { break };
            votes.add(node, ballot(node, answer)?);
        }
        Ok(votes)
    }

    /// Asks every node something that is no vote, and has the answers of a majority at least, and of all that
    /// take no longer.
    async fn answers<T: Send + 'static>(
        &self,
        ask: impl Fn(Arc<RedisStore>) -> Op<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut round = self.ask(self.up().map(|(at, node)| (at, ask(node.store.clone()))));
        let mut missing = Missing::default();
        let mut answers = Vec::with_capacity(self.nodes.len());
        // A majority may be of nodes that have not heard of the latest yet: the others have a moment.
        while let Some((at, answer)) = round.next_unless(answers.len() >= self.majority()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(fault) => missing.add(at, fault),
            }
        }
        round.leave(&self.late);
        match answers.len() >= self.majority() {
            true => Ok(answers),
            false => Err(self.no_majority(missing)),
        }
    }
}

/// Has `work` send what it has to send, here and now, and see to the answer by itself.
fn send(handle: &Handle, work: impl Future<Output = ()> + Send + 'static) {
    let mut work = Box::pin(work);
    if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        handle.spawn(work);
    }
}

impl Store for QuorumStore {
    fn clock(&self) -> Clock {
        Clock::Boottime
    }

    fn ready(self: Arc<Self>, answer_by: Moment) -> Op<()> {
        Box::pin(async move { queries::ready(&self, answer_by).await })
    }

    fn is_notified(&self, lock: &LockName) -> bool {
        let notified = self.nodes.iter().filter(|node| node.store.is_notified(lock)).count();
        notified >= self.majority()
    }

    fn outage(&self) -> Option<Outage> {
        let mut outages: Vec<_> =
            self.nodes.iter().filter_map(|node| node.store.outage()).collect();
        // From when on a majority could not be had any more.
        let spare = self.nodes.len() - self.majority();
        outages.sort_unstable_by_key(|outage| outage.since);
        (outages.len() > spare).then(|| outages.swap_remove(spare))
    }

    fn listen(&self, process: &str, listener: Listener) {
        let listener: Arc<Listener> = Arc::new(listener);
        for node in self.nodes.iter() {
            // Weak, because the minorities own the nodes, and a node owns its listener.
            let (listener, minorities) = (listener.clone(), Arc::downgrade(&self.minorities));
            let both = move |notification: Notification<'_>| {
                if let Notification::WaiterBehind(Message { token, .. }) = notification
                    && let Some(minorities) = minorities.upgrade()
                {
                    minorities.behind(token);
                }
                listener(notification);
            };
            node.store.listen(process, Box::new(both));
        }
    }

    fn try_acquire(&self, attempt: Attempt, answer_by: Moment) -> OpOn<'_, Answer> {
        Box::pin(self.take(attempt, answer_by))
    }

    fn enter(self: Arc<Self>, entry: Entry, answer_by: Moment) -> Op<Entered> {
        Box::pin(async move { self.stand(entry, answer_by).await })
    }

    fn release(
        self: Arc<Self>,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Op<Freed> {
        Box::pin(async move { self.free(owner, keep, answer_by).await })
    }

    fn exchange(self: Arc<Self>, exchange: Exchange, answer_by: Moment) -> Op<Exchanged> {
        Box::pin(async move { self.swap(exchange, answer_by).await })
    }

    fn renew(self: Arc<Self>, renewals: Vec<Renewal>) -> Op<Renewed> {
        Box::pin(async move { self.extend(renewals).await })
    }

    fn introduce(&self, itself: &ProcessInfo) {
        self.nodes.iter().for_each(|node| node.store.introduce(itself));
    }

    fn take_leave(self: Arc<Self>, process: String, answer_by: Moment) -> Op<()> {
        Box::pin(async move {
            let left = self.answers(|node| node.take_leave(process.clone(), answer_by)).await;
            left.map(|_| ())
        })
    }

    fn tell(self: Arc<Self>, letters: Vec<Letter>, answer_by: Moment) -> Op<Vec<bool>> {
        Box::pin(async move { queries::tell(&self, letters, answer_by).await })
    }

    fn recorded(self: Arc<Self>, prefix: String, answer_by: Moment) -> Op<Vec<String>> {
        Box::pin(async move {
            let all = self.answers(|node| node.recorded(prefix.clone(), answer_by)).await?;
            let mut processes: Vec<_> = all.into_iter().flatten().collect();
            processes.sort_unstable();
            processes.dedup();
            Ok(processes)
        })
    }

    fn records(
        self: Arc<Self>,
        prefix: String,
        processes: Vec<String>,
        answer_by: Moment,
    ) -> Op<Records> {
        Box::pin(async move { queries::records(&self, prefix, processes, answer_by).await })
    }

    fn tell_taken(self: Arc<Self>, lock: Arc<LockName>, token: String) {
        for node in self.nodes.iter() {
            node.store.clone().tell_taken(lock.clone(), token.clone());
        }
    }

    fn status(&self) -> StoreStatus {
        let all: Vec<_> = self.nodes.iter().map(|node| node.store.status()).collect();
        let enough = |is: &dyn Fn(&StoreStatus) -> bool| {
            all.iter().filter(|status| is(status)).count() >= self.majority()
        };
        let by_callers = all.iter().any(|status| status.driven_by == DrivenBy::Callers);
        StoreStatus {
            connected: enough(&|status| status.connected),
            wake_ups: match enough(&|status| status.wake_ups == WakeUps::Notified) {
                true => WakeUps::Notified,
                false => WakeUps::Polling,
            },
            driven_by: if by_callers { DrivenBy::Callers } else { DrivenBy::Manager },
        }
    }

    fn ping(self: Arc<Self>, answer_by: Moment) -> Op<Duration> {
        Box::pin(async move {
            let times = self.answers(|node| node.ping(answer_by)).await?;
            Ok(times.into_iter().max().unwrap_or_default())
        })
    }

    fn inspect(self: Arc<Self>, lock: Arc<LockName>, answer_by: Moment) -> Op<Option<Held>> {
        Box::pin(async move { queries::inspect(&self, lock, answer_by).await })
    }
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumStore")
            .field("nodes", &self.nodes.len())
            .field("up", &self.up().count())
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
