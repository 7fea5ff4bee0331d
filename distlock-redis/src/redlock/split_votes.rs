//! Tokens that wait with the votes of some nodes, but not of a majority.
//!
//! Several waiters may have the votes of some nodes each, and none a majority. So a token without a majority offers its
//! votes to an earlier one (`RedisStore::offer`). The earliest token never gives votes back and all others do, so the
//! earliest has a majority after one more round. A node that learns of an earlier token later notifies the token that
//! it has voted for (R4), which then offers again.
//!
//! An offer is never in flight together with a request whose votes count: otherwise a vote could be taken back
//! unnoticed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use distlock_core::clock::Clock;
use distlock_core::store::owner::Owner;
use tokio::runtime::Handle;

use super::node::Node;
use super::request::send;

/// The tokens that wait with the votes of some nodes.
pub(super) struct SplitVotes {
    nodes: Arc<[Arc<Node>]>,
    handle: Handle,
    command_timeout: Duration,
    waiting: Mutex<HashMap<String, SplitVote>>,
}

/// One token that waits.
struct SplitVote {
    owner: Arc<Owner>,
    ticket: u64,
    /// Whether its votes are being counted. Afterwards it offers them in any case.
    asking: bool,
}

/// An offer that is about to be sent.
struct Offer {
    owner: Arc<Owner>,
    ticket: u64,
    nodes: Vec<usize>,
}

impl SplitVotes {
    pub(super) fn new(
        nodes: Arc<[Arc<Node>]>,
        handle: Handle,
        command_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self { nodes, handle, command_timeout, waiting: Mutex::default() })
    }

    /// Notes that the votes of a token are being counted.
    pub(super) fn asking(&self, owner: &Arc<Owner>, ticket: u64) {
        let waiting = SplitVote { owner: owner.clone(), ticket, asking: true };
        self.waiting().insert(owner.token.clone(), waiting);
    }

    /// Removes a token that has a majority, or nothing, or was given up.
    pub(super) fn settled(&self, owner: &Owner) {
        let settled = self.waiting().remove(&owner.token);
        drop(settled);
    }

    /// Offers the votes of a token that has these nodes, or may get them, because others have the rest.
    pub(super) fn counted(&self, owner: &Owner, has: impl Iterator<Item = usize>) {
        let offered = {
            let mut waiting = self.waiting();
            let Some(token) = waiting.get_mut(&owner.token) else { return };
            token.asking = false;
            self.returning(token, has)
        };
        self.offer(offered);
    }

    /// Offers the votes of a token, because a node reports that another one waits behind it.
    pub(super) fn behind(&self, token: &str) {
        let offered = {
            let waiting = self.waiting();
            let Some(token) = waiting.get(token).filter(|token| !token.asking) else { return };
            self.returning(token, 0..self.nodes.len())
        };
        self.offer(offered);
    }

    /// Prepares an offer, under the mutex: the token's votes may be counted again as soon as the mutex is free, and
    /// votes that arrive before the reply to the offer must not count.
    fn returning(&self, token: &SplitVote, nodes: impl Iterator<Item = usize>) -> Offer {
        let (owner, ticket) = (token.owner.clone(), token.ticket);
        let parts = owner.parts(self.nodes.len());
        let may_stand = |at: &usize| !parts[*at].owner.is_unsent() && !self.nodes[*at].is_down();
        let nodes: Vec<_> = nodes.filter(may_stand).collect();
        nodes.iter().for_each(|at| parts[*at].returning());
        Offer { owner, ticket, nodes }
    }

    /// Sends the offers before it returns.
    fn offer(&self, Offer { owner, ticket, nodes }: Offer) {
        let all = self.nodes.len();
        let answer_by = Clock::Boottime.now().after(self.command_timeout);
        for at in nodes {
            let (store, owner) = (self.nodes[at].store.clone(), owner.clone());
            send(&self.handle, async move {
                let part = &owner.parts(all)[at];
                // Without a reply the offer may still run, and no vote of this node counts for the token any more.
                if store.offer(&part.owner, ticket, answer_by).await.is_ok() {
                    part.returned();
                }
            });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, SplitVote>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
