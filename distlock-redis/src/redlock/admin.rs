//! Commands of operators' tools: the names of the locks on all nodes, and the state of each lock at a majority.

use std::sync::Arc;

use distlock_core::clock::Moment;
use distlock_core::name::LockName;
use distlock_core::store::admin::{Glance, StoreAdmin, StoreCommand, StoreReply, Walked};
use distlock_core::store::{BackendKind, Fault, Op};

use super::node::Node;
use super::queries::by_majority;
use super::quorum::QuorumStore;
use crate::store::RedisStore;

impl StoreAdmin for QuorumStore {
    fn nodes(&self) -> Vec<Option<String>> {
        self.nodes.iter().flat_map(|node| node.store.nodes()).collect()
    }

    fn ask(
        self: Arc<Self>,
        node: Option<String>,
        commands: Vec<StoreCommand>,
        answer_by: Moment,
    ) -> Op<Vec<StoreReply>> {
        let is_it = |one: &&Arc<Node>| {
            node.as_ref().map_or(!one.is_down(), |_| one.store.nodes().contains(&node))
        };
        match self.nodes.iter().find(is_it) {
            Some(one) => one.store.clone().ask(node, commands, answer_by),
            None => {
                let fault = Fault::passing(BackendKind::Unreachable, "no node can be reached");
                Box::pin(std::future::ready(Err(fault)))
            }
        }
    }

    /// Visits one node after the other. A cursor is the number of a node and its own cursor: `2 10.0.0.1:6379 17`.
    /// Locks that a majority has are seen by each majority.
    fn walk(self: Arc<Self>, prefix: String, cursor: String, answer_by: Moment) -> Op<Walked> {
        Box::pin(async move {
            let (at, of_node) = cursor.split_once(' ').unwrap_or(("0", ""));
            let at: usize = at.parse().unwrap_or_default();
            let Some(node) = self.nodes.get(at) else { return Ok(Walked::default()) };
            let next_node = (at + 1 < self.nodes.len()).then(|| format!("{} ", at + 1));
            if node.is_down() {
                return Ok(Walked { next: next_node, ..Walked::default() });
            }
            match node.store.clone().walk(prefix, of_node.to_owned(), answer_by).await {
                Ok(Walked { names, next, .. }) => {
                    let next = next.map(|next| format!("{at} {next}")).or(next_node);
                    Ok(Walked { names, next, missed: None })
                }
                Err(fault) if !fault.passing => Err(fault),
                Err(_) => Ok(Walked { next: next_node, ..Walked::default() }),
            }
        })
    }

    fn glance(
        self: Arc<Self>,
        locks: &[Arc<LockName>],
        answer_by: Moment,
    ) -> Option<Op<Vec<Option<Glance>>>> {
        let locks = locks.to_vec();
        Some(Box::pin(async move { glances(&self, &locks, answer_by).await }))
    }
}

async fn glances(
    quorum: &QuorumStore,
    locks: &[Arc<LockName>],
    answer_by: Moment,
) -> Result<Vec<Option<Glance>>, Fault> {
    let ask = |node: Arc<RedisStore>| -> Op<Vec<Option<Glance>>> {
        let locks = locks.to_vec();
        Box::pin(async move { node.server.glances(&locks, answer_by).await })
    };
    let mut all = quorum.answers(ask).await?;
    let of_lock = |at: usize| {
        let (mut holders, mut waiting, mut amiss) = (Vec::new(), 0, None);
        for of_node in &mut all {
            let Some(glance) = of_node.get_mut(at).and_then(Option::take) else { continue };
            holders.extend(glance.holders);
            waiting = waiting.max(glance.waiting);
            amiss = amiss.or(glance.amiss);
        }
        let holders = by_majority(quorum.majority(), holders);
        // A single node with other data is outvoted.
        let amiss = amiss.filter(|_| holders.is_empty());
        let is_seen = !holders.is_empty() || amiss.is_some();
        is_seen.then_some(Glance { holders, waiting, amiss })
    };
    Ok((0..locks.len()).map(of_lock).collect())
}
