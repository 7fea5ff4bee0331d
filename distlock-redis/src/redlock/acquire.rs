//! Acquires a lock at a majority: an attempt without a place in the queue, and a place in the queue.

use distlock_core::clock::{Clock, Moment};
use distlock_core::redlock::{Accepted, Answered, Ballot, Stands, Tally, Tried};
use distlock_core::store::{Answer, Attempt, Entered, Entry, Fault, Store};

use super::fences::GrantingNodes;
use super::node::NodeReply;
use super::quorum::{FailedNodes, QuorumStore};
use crate::redlock::vote::NodeVote;

/// The quorum's own number for a connection. Each part of a token has the number of its node's connection.
pub(super) const ALL: u64 = 1;

/// Tries to acquire the lock: one write to each node. It takes one round trip if the proposed fencing token is accepted
/// as well.
pub(super) async fn try_acquire(
    quorum: &QuorumStore,
    attempt: Attempt,
    answer_by: Moment,
) -> Result<Answer, Fault> {
    let (owner, term) = (attempt.owner.clone(), attempt.term);
    // R2: the engine has sent this token meanwhile, and only the reply to that counts.
    if !owner.is_unsent() {
        return Err(Fault::given_up());
    }
    owner.sending(Clock::Boottime.now(), attempt.term.stored_for(), ALL);
    let proposal = quorum.proposals.next(&quorum.nodes);
    let parts = owner.parts(quorum.nodes.len());
    let mut request = quorum.ask(quorum.up().map(|(at, node)| {
        let attempt = Attempt { owner: parts[at].owner.clone(), ..attempt.clone() };
        let store = node.store.clone();
        (at, node.ask(answer_by, move || store.vote(attempt, proposal, answer_by)))
    }));
    let (mut tally, mut missing) = (Tally::default(), FailedNodes::default());
    let ballot = |at, answer| match answer {
        Ok(NodeReply { answer: NodeVote { sent, given, accepted }, counts }) => {
            if let (Ok(()), Accepted::Above(other)) = (given, accepted) {
                quorum.proposals.saw(other)?;
            }
            Ok(tally.tried(sent, given, accepted, counts))
        }
        Err(fault) => {
            missing.add(at, fault);
            Ok(Ballot::Unknown)
        }
    };
    let votes = quorum.count(&mut request, ballot).await?;
    request.leave(&quorum.stragglers);
    if votes.standing().next().is_some() {
        owner.leaves_a_trace();
    }
    match Tried::of(&votes, &tally) {
        Tried::Won { sent, accepted } => {
            let fence = match accepted {
                true => proposal,
                false => {
                    let granted = GrantingNodes::by(&votes, term.ttl);
                    quorum.draw_fence(granted, &owner.lock, answer_by).await?
                }
            };
            owner.answered(ALL);
            Ok(Answer::Granted { fence, sent })
        }
        // Another token has the lock, or wants it at the same time. Votes that nodes have given, or may give yet, are
        // released unless the token goes on to wait: it has left a trace.
        Tried::Taken { remaining } => {
            owner.answered(ALL);
            Ok(Answer::Taken { remaining })
        }
        Tried::Unknown => Err(quorum.no_majority(missing)),
    }
}

/// Enters the queue of every node with one ticket, so that all nodes order the same waiters alike.
pub(super) async fn enqueue(
    quorum: &QuorumStore,
    entry: Entry,
    answer_by: Moment,
) -> Result<Entered, Fault> {
    let Entry { owner, term, ticket } = entry;
    let ticket = if ticket == 0 { quorum.proposals.next(&quorum.nodes) } else { ticket };
    owner.sending(Clock::Boottime.now(), term.stored_for(), ALL);
    owner.leaves_a_trace();
    quorum.split_votes.asking(&owner, ticket);
    let parts = owner.parts(quorum.nodes.len());
    let mut request = quorum.ask(quorum.up().map(|(at, node)| {
        let entry = Entry { owner: parts[at].owner.clone(), term, ticket };
        let enter = node.store.clone().enter(entry, answer_by);
        (at, node.ask(answer_by, || enter))
    }));
    let (mut tally, mut missing) = (Tally::default(), FailedNodes::default());
    let ballot = |at: usize, answer| match answer {
        Ok(NodeReply { answer, counts }) => {
            let steady = parts[at].is_steady();
            Ok(tally.entered(answer, Answered { counts, steady }))
        }
        Err(fault) => {
            missing.add(at, fault);
            Ok(Ballot::Unknown)
        }
    };
    let votes = quorum.count(&mut request, ballot).await?;
    request.leave(&quorum.stragglers);
    owner.answered(ALL);
    match Stands::of(&votes, &tally) {
        Stands::Won { sent, contended } => {
            quorum.split_votes.settled(&owner);
            let granted = GrantingNodes::by(&votes, term.ttl);
            let fence = quorum.draw_fence(granted, &owner.lock, answer_by).await?;
            Ok(Entered::Granted { fence, sent, contended })
        }
        Stands::Queued { remaining, rank, behind, added } => {
            // A vote that arrives after this count is offered as well: otherwise it would go unnoticed.
            quorum.split_votes.counted(&owner, votes.standing());
            Ok(Entered::Queued { ticket, remaining, rank, behind, added })
        }
        Stands::Unknown => {
            quorum.split_votes.counted(&owner, [].into_iter());
            Err(quorum.no_majority(missing))
        }
    }
}
