//! Fencing tokens of a quorum: proposed by the process, accepted by the nodes.
//!
//! A later grant shares a node with every earlier one, which has accepted the earlier token while the
//! lock was the earlier holder's there, and accepts a larger one only. So tokens grow as long as that
//! node remembers; [`guard`](super::guard) sees to that. What is proposed is the time in µs by the median
//! of the nodes' clocks, and more than was ever seen: one wrong clock does not matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::QuorumStore;
use super::node::{Node, Voted};
use super::tally::{Drawn, accepted, median, proposal};
use super::votes::Ballot;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::name::LockName;
use crate::store::Fault;
use crate::store::redis::vote::Accepted;

/// How often a token is proposed that others have gone beyond.
const TRIES: usize = 5;
/// No honest token is so large: it is a time in µs, which comes to this in 2255.
const LAST_FENCE: u64 = 1 << 53;

/// What this process knows of the tokens.
pub(super) struct Proposals {
    /// The largest that was seen.
    seen: AtomicU64,
}

impl Proposals {
    pub(super) fn new() -> Self {
        Self { seen: AtomicU64::new(0) }
    }

    /// A number above all that were seen, and near the time: a token, or a ticket.
    pub(super) fn next(&self, nodes: &[Arc<Node>]) -> u64 {
        let time = median(nodes.iter().map(|node| node.store.time()));
        let above = |seen: u64| Some(proposal(seen, time));
        let before = self.seen.fetch_update(Ordering::AcqRel, Ordering::Acquire, above);
        proposal(before.unwrap_or_default(), time)
    }

    /// A token that a node has accepted, or is to go beyond.
    pub(super) fn saw(&self, token: u64) -> Result<(), Fault> {
        if token >= LAST_FENCE {
            return Err(Fault::lasting(
                BackendKind::Other,
                "the fencing tokens of a node (`<prefix>:fence:quorum`) are at a value that they cannot have: \
                 something else has written there, or the clock of a server was wrong; delete that key",
            ));
        }
        self.seen.fetch_max(token, Ordering::AcqRel);
        Ok(())
    }

    /// Has a majority accept a token for a lock that these nodes, a majority, have granted. At other nodes
    /// another process may have the lock, and have proposed a token there before.
    pub(super) async fn draw(
        &self,
        quorum: &QuorumStore,
        granted: &[usize],
        lock: &Arc<LockName>,
        answer_by: Moment,
    ) -> Result<u64, Fault> {
        let nodes = &quorum.nodes;
        for _ in 0..TRIES {
            let proposal = self.next(nodes);
            let mut round = quorum.ask(granted.iter().map(|node| {
                let (store, lock) = (nodes[*node].store.clone(), lock.clone());
                let propose =
                    move || async move { store.propose(&lock, proposal, answer_by).await };
                (*node, nodes[*node].ask(answer_by, propose))
            }));
            let mut failed = None;
            let accepts = |_, answer: Result<Voted<Accepted>, Fault>| match answer {
                Ok(Voted { answer, counts }) => {
                    if let Accepted::Above(other) = answer {
                        self.saw(other)?;
                    }
                    Ok(accepted(Clock::Boottime.now(), answer, counts))
                }
                Err(fault) => {
                    failed = Some(fault);
                    Ok(Ballot::Unknown)
                }
            };
            let votes = quorum.count(&mut round, accepts).await?;
            round.leave(&quorum.late);
            match Drawn::of(&votes) {
                Drawn::Accepted => return Ok(proposal),
                Drawn::Beaten => {}
                Drawn::Unknown => return Err(failed.unwrap_or_else(|| quorum.no_majority())),
            }
        }
        Err(Fault::passing(BackendKind::Other, "others go on raising the fencing tokens"))
    }
}
