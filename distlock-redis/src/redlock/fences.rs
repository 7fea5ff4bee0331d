//! Fencing tokens of a quorum: proposed by the process, accepted by the nodes.
//!
//! A later grant shares a node with every earlier one. That node has accepted the earlier token while the earlier
//! holder had the lock there, and accepts only larger ones. So tokens grow as long as that node remembers, which the
//! [restart guard](distlock_core::redlock::RestartGuard) ensures. The proposal is the time in µs by the median of the
//! nodes' clocks, and more than all values seen. So one wrong clock does not matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use distlock_core::clock::Moment;
use distlock_core::redlock::{Accepted, Ballot, Votes, accepted, median, proposal};
use distlock_core::store::{BackendKind, Fault};

use super::node::Node;

/// How often a token is proposed if others have proposed larger ones.
pub(super) const TRIES: usize = 5;
/// The upper limit of valid tokens: times in µs reach it in 2255.
const LAST_FENCE: u64 = 1 << 53;

/// The proposals of this process.
pub(super) struct Proposals {
    /// The largest token that was seen.
    seen: AtomicU64,
}

/// The nodes that have granted a lock, and until when each of them keeps the lock at least.
pub(super) struct GrantingNodes {
    pub(super) by: Vec<usize>,
    pub(super) ends: Moment,
}

impl GrantingNodes {
    /// Makes it from these votes, for leases of `ttl`.
    pub(super) fn by(votes: &Votes, ttl: Duration) -> Self {
        Self { by: votes.granted().collect(), ends: votes.first_sent().after(ttl) }
    }

    /// Judges a reply to a proposed token that arrived `now`.
    pub(super) fn counted(&self, now: Moment, answer: Accepted, counts: bool) -> Ballot {
        accepted(now, answer, counts && now < self.ends)
    }
}

impl Proposals {
    pub(super) fn new() -> Self {
        Self { seen: AtomicU64::new(0) }
    }

    /// Returns a number above all that were seen, and near the time. It is a fencing token or a ticket.
    pub(super) fn next(&self, nodes: &[Arc<Node>]) -> u64 {
        let time = median(nodes.iter().map(|node| node.time()));
        let above = |seen: u64| Some(proposal(seen, time));
        let before = self.seen.fetch_update(Ordering::AcqRel, Ordering::Acquire, above);
        proposal(before.unwrap_or_default(), time)
    }

    /// Notes a token that a node has accepted, or that later ones must exceed.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc9_an_acceptance_counts_until_the_first_vote_ends() {
        let at = |millis| Moment::from_nanos(0).after(Duration::from_millis(millis));
        let mut votes = Votes::of(3, 0..3);
        for (node, sent) in [1_040, 1_000, 1_070].into_iter().enumerate() {
            votes.add(node, Ballot::Yes { sent: at(sent) });
        }
        let granted = GrantingNodes::by(&votes, Duration::from_millis(100));
        let last = at(1_099);
        assert_eq!(granted.counted(last, Accepted::Yes, true), Ballot::Yes { sent: last });
        assert_eq!(granted.counted(last, Accepted::Yes, false), Ballot::Uncounted);
        // The second server may have given the lock to another process, which has proposed a token as well.
        assert_eq!(granted.counted(at(1_100), Accepted::Yes, true), Ballot::Uncounted);
        assert_eq!(granted.counted(last, Accepted::Above(7), true), Ballot::No);
    }
}
