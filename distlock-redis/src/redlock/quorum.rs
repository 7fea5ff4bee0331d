//! The quorum: its servers, how they are asked, and how their replies are counted.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::redlock::{Accepted, Ballot, Drawn, Verdict, Votes, majority};
use distlock_core::store::{BackendKind, Fault, Op, Store, StoreEvents};
use distlock_core::timers::Alarms;
use tokio::runtime::Handle;

use super::fences::{GrantingNodes, Proposals, TRIES};
use super::members::Members;
use super::node::{Node, NodeReply, QuorumContext};
use super::request::{GRACE, QuorumRequest};
use super::split_votes::SplitVotes;
use super::stragglers::Stragglers;
use crate::{RedisConfig, RedisStore};

/// A store of locks on several independent servers.
pub struct QuorumStore {
    pub(super) nodes: Arc<[Arc<Node>]>,
    pub(super) proposals: Proposals,
    pub(super) split_votes: Arc<SplitVotes>,
    pub(super) handle: Handle,
    pub(super) alarms: Arc<Alarms>,
    pub(super) stragglers: Arc<Stragglers>,
    pub(super) command_timeout: Duration,
    /// Receives reports for the manager that uses this store.
    pub(super) events: Arc<dyn StoreEvents>,
}

impl QuorumStore {
    /// Starts a store over these servers, of which there are at least three. A server that has restarted does not count
    /// for `guard`.
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
        let common = Arc::new(QuorumContext {
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
        let split_votes = SplitVotes::new(nodes.clone(), handle.clone(), command_timeout);
        Self {
            nodes,
            proposals: Proposals::new(),
            split_votes,
            handle: handle.clone(),
            alarms: alarms.clone(),
            stragglers: Stragglers::new(handle, alarms),
            command_timeout,
            events,
        }
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// Returns the nodes that are not known to be down. Only these are asked.
    pub(super) fn up(&self) -> impl Iterator<Item = (usize, &Arc<Node>)> {
        self.nodes.iter().enumerate().filter(|(_, node)| !node.is_down())
    }

    /// Asks these nodes.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        asked: impl Iterator<Item = (usize, Op<T>)>,
    ) -> QuorumRequest<'_, T> {
        self.stragglers.look();
        QuorumRequest::new(asked, &self.alarms)
    }

    /// Counts the nodes' replies until they have decided, or until a majority has replied without a decision and the
    /// others are late.
    pub(super) async fn count<T: Send + 'static>(
        &self,
        request: &mut QuorumRequest<'_, T>,
        mut ballot: impl FnMut(usize, Result<T, Fault>) -> Result<Ballot, Fault>,
    ) -> Result<Votes, Fault> {
        let mut votes = Votes::of(self.nodes.len(), request.unanswered());
        while votes.verdict() == Verdict::Open {
            let Some((node, answer)) = request.next_unless(votes.has_quorum()).await else { break };
            votes.add(node, ballot(node, answer)?);
        }
        Ok(votes)
    }

    /// Asks every node a question that is no vote. Returns the replies of a majority at least, and of all nodes that
    /// are not late.
    pub(super) async fn answers<T: Send + 'static>(
        &self,
        ask: impl Fn(Arc<RedisStore>) -> Op<T>,
    ) -> Result<Vec<T>, Fault> {
        let mut request = self.ask(self.up().map(|(at, node)| (at, ask(node.store.clone()))));
        let mut missing = FailedNodes::default();
        let mut answers = Vec::with_capacity(self.nodes.len());
        // A majority may consist of nodes that do not have the latest state yet, so the others get a moment.
        while let Some((at, answer)) = request.next_unless(answers.len() >= self.majority()).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(fault) => missing.add(at, fault),
            }
        }
        request.leave(&self.stragglers);
        match answers.len() >= self.majority() {
            true => Ok(answers),
            false => Err(self.no_majority(missing)),
        }
    }

    /// Makes a majority accept a token for a lock. `granted` are the nodes, a majority, that have granted the lock.
    ///
    /// At other nodes another process may have the lock, and may have proposed a token there before. The same can
    /// happen at one of these nodes once its grant has ended, so a later acceptance does not count.
    pub(super) async fn draw_fence(
        &self,
        granted: GrantingNodes,
        lock: &Arc<LockName>,
        answer_by: Moment,
    ) -> Result<u64, Fault> {
        let nodes = &self.nodes;
        let answer_by = answer_by.min(granted.ends);
        for _ in 0..TRIES {
            let proposal = self.proposals.next(nodes);
            let mut request = self.ask(granted.by.iter().map(|node| {
                let (store, lock) = (nodes[*node].store.clone(), lock.clone());
                let propose =
                    move || async move { store.propose(&lock, proposal, answer_by).await };
                (*node, nodes[*node].ask(answer_by, propose))
            }));
            let mut missing = FailedNodes::default();
            let accepts = |at, answer: Result<NodeReply<Accepted>, Fault>| match answer {
                Ok(NodeReply { answer, counts }) => {
                    if let Accepted::Above(other) = answer {
                        self.proposals.saw(other)?;
                    }
                    Ok(granted.counted(Clock::Boottime.now(), answer, counts))
                }
                Err(fault) => {
                    missing.add(at, fault);
                    Ok(Ballot::Unknown)
                }
            };
            let votes = self.count(&mut request, accepts).await?;
            request.leave(&self.stragglers);
            match Drawn::of(&votes) {
                Drawn::Accepted => return Ok(proposal),
                Drawn::Beaten => {}
                Drawn::Unknown => return Err(self.no_majority(missing)),
            }
        }
        Err(Fault::passing(BackendKind::Other, "others go on raising the fencing tokens"))
    }

    /// Returns how long it takes until a majority counts again; `None` if nodes do not count for other reasons.
    pub(super) fn starting(&self) -> Option<Duration> {
        let mut waits: Vec<_> = self.up().filter_map(|(_, node)| node.wait()).collect();
        waits.sort_unstable();
        waits.get(self.majority() - 1).copied().filter(|wait| !wait.is_zero())
    }

    /// Returns the fault for a question to which too few servers have replied, or too few of those count.
    pub(super) fn no_majority(&self, FailedNodes(failed): FailedNodes) -> Fault {
        // This error does not go away by itself.
        if let Some((place, fault)) = failed.iter().find(|(_, fault)| !fault.passing) {
            return fault.clone().and(&format!(" (that was {})", self.nodes[*place].addr));
        }
        let why = |place: usize| {
            let failed = failed.iter().find(|(failed, _)| *failed == place);
            let fault = failed.map(|(_, fault)| fault.clone());
            fault.or_else(|| self.nodes[place].store.outage().map(|outage| outage.fault))
        };
        let missing: Vec<_> = (0..self.nodes.len()).filter_map(|at| Some((at, why(at)?))).collect();
        let answered = self.nodes.len() - missing.len();
        if answered >= self.majority() {
            return self.starting().map_or_else(Fault::timed_out, too_new);
        }
        let (all, needed) = (self.nodes.len(), self.majority());
        let mut text = format!("{answered} of {all} servers answered, {needed} are needed;");
        for (number, (at, fault)) in missing.iter().enumerate() {
            let and = if number == 0 { " missing:" } else { "," };
            let _ = write!(text, "{and} {} ({})", self.nodes[*at].addr, fault.reason());
        }
        let kind = missing.first().map_or(BackendKind::TimedOut, |(_, fault)| fault.kind);
        Fault::passing(kind, text)
    }
}

/// Servers that have not replied to a question as they should.
#[derive(Default)]
pub(super) struct FailedNodes(Vec<(usize, Fault)>);

impl FailedNodes {
    pub(super) fn add(&mut self, place: usize, fault: Fault) {
        self.0.push((place, fault));
    }
}

/// Returns the fault for a quorum in which less than a majority was watched for long enough.
pub(super) fn too_new(wait: Duration) -> Fault {
    let detail = format!(
        "a majority of the servers was started, or first used, too recently to count; locks are granted in {} s, if \
         this process lives as long (`restart_guard`, or `guard=` in the URL, is the longest ttl that is used)",
        wait.as_secs() + 1
    );
    Fault::passing(BackendKind::Other, detail)
}
