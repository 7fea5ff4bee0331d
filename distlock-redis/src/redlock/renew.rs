//! Renews a lock that a majority has granted, and exchanges its token.

use std::sync::Arc;

use distlock_core::clock::{Clock, Moment};
use distlock_core::redlock::{Answered, Ballot, Tally, Verdict, Votes};
use distlock_core::store::owner::Owner;
use distlock_core::store::{
    Entry, Exchange, Exchanged, Fault, Owned, Renewal, Renewed, Store, Term,
};

use super::fences::GrantingNodes;
use super::node::NodeReply;
use super::quorum::{FailedNodes, QuorumStore};
use super::release::release_at;

/// Renews each lease if a majority does. A renewal that reaches only a minority changes nothing: the old end stays, and
/// the body runs until then.
pub(super) async fn renew(quorum: &QuorumStore, renewals: Vec<Renewal>) -> Result<Renewed, Fault> {
    let sent = Clock::Boottime.now();
    let answer_by = sent.after(quorum.command_timeout);
    let mut request = quorum.ask(quorum.up().map(|(at, node)| {
        let part = |renewal: &Renewal| {
            let owner = renewal.owner.parts(quorum.nodes.len())[at].owner.clone();
            Renewal { owner, draw: false, ..renewal.clone() }
        };
        let parts = renewals.iter().map(part).collect();
        let renewed = node.store.clone().renew(parts);
        (at, node.ask(answer_by, || renewed))
    }));
    let mut counts: Vec<_> = renewals
        .iter()
        .map(|renewal| RenewalVotes::new(&renewal.owner, quorum.nodes.len(), request.unanswered()))
        .collect();
    while let Some((at, answer)) = request.next().await {
        for (number, counted) in counts.iter_mut().enumerate() {
            counted.add(at, sent, &answer, number);
        }
        if counts.iter().all(|counted| counted.votes.verdict() != Verdict::Open) {
            break;
        }
    }
    request.leave(&quorum.stragglers);
    let mut answers = Vec::with_capacity(renewals.len());
    for (renewal, counted) in renewals.iter().zip(counts) {
        answers.push(count_renewal(quorum, renewal, counted, answer_by).await);
    }
    Ok(Renewed { sent, answers })
}

async fn count_renewal(
    quorum: &QuorumStore,
    renewal: &Renewal,
    counted: RenewalVotes,
    answer_by: Moment,
) -> Result<Owned, Fault> {
    match counted.votes.verdict() {
        Verdict::Won { .. } => {}
        Verdict::Lost => return Ok(Owned::No),
        Verdict::Open | Verdict::Undecided => {
            return Err(quorum.no_majority(counted.missing));
        }
    }
    fill(quorum, renewal, counted.votes.refused());
    let fence = match renewal.draw {
        false => None,
        true => {
            quorum.proposals.saw(renewal.fence)?;
            let lock = &renewal.owner.lock;
            let granted = GrantingNodes::by(&counted.votes, renewal.ttl);
            Some(quorum.draw_fence(granted, lock, answer_by).await?)
        }
    };
    Ok(Owned::Yes { contended: counted.tally.is_contended(), fence })
}

/// Extends the lease to all nodes, not only a bare majority: where the lock is free, it is acquired.
fn fill(quorum: &QuorumStore, renewal: &Renewal, without: impl Iterator<Item = usize>) {
    let term = Term { ttl: renewal.ttl, renewed: true, max_hold: None, min_hold: None };
    let answer_by = Clock::Boottime.now().after(quorum.command_timeout);
    for at in without {
        let (store, owner) = (quorum.nodes[at].store.clone(), renewal.owner.clone());
        let nodes = quorum.nodes.len();
        quorum.handle.spawn(async move {
            let part = owner.parts(nodes)[at].owner.clone();
            let entry = Entry { owner: part.clone(), term, ticket: 0 };
            let filled = store.clone().fill(entry, answer_by).await;
            // Its release may have been sent before this acquire, and may have passed this node over.
            if part.is_retired() && part.may_be_stored() {
                let _ = store.release(part, None, answer_by).await;
            }
            filled
        });
    }
}

/// Replaces one token by another at a majority.
pub(super) async fn exchange(
    quorum: &QuorumStore,
    exchange: Exchange,
    answer_by: Moment,
) -> Result<Exchanged, Fault> {
    let Exchange { old, new, term } = exchange;
    new.sending(Clock::Boottime.now(), term.stored_for(), super::acquire::ALL);
    new.leaves_a_trace();
    let (old_parts, new_parts) = (old.parts(quorum.nodes.len()), new.parts(quorum.nodes.len()));
    let mut request = quorum.ask(quorum.up().map(|(at, node)| {
        let (old, new) = (old_parts[at].owner.clone(), new_parts[at].owner.clone());
        let op = node.store.clone().exchange(Exchange { old, new, term }, answer_by);
        (at, node.ask(answer_by, || op))
    }));
    let (mut behind, mut missing) = (false, FailedNodes::default());
    let votes = quorum
        .count(&mut request, |at, answer| match answer {
            Ok(NodeReply { answer: Exchanged::Granted { sent, contended, .. }, counts }) => {
                behind |= contended;
                Ok(if counts { Ballot::Yes { sent } } else { Ballot::Uncounted })
            }
            Ok(NodeReply { answer: Exchanged::NotHeld, .. }) => Ok(Ballot::No),
            Err(fault) => {
                missing.add(at, fault);
                Ok(Ballot::Unknown)
            }
        })
        .await?;
    request.leave(&quorum.stragglers);
    match votes.verdict() {
        Verdict::Won { sent } => {
            let granted: Vec<_> = votes.granted().collect();
            let by = GrantingNodes::by(&votes, term.ttl);
            let fence = quorum.draw_fence(by, &new.lock, answer_by).await?;
            new.answered(super::acquire::ALL);
            // The other nodes may still have the old token, which is no longer renewed or released otherwise.
            let others = (0..quorum.nodes.len()).filter(|at| !granted.contains(at));
            release_at(quorum, old.clone(), others.collect());
            Ok(Exchanged::Granted { fence, sent, contended: behind })
        }
        Verdict::Lost => {
            new.answered(super::acquire::ALL);
            Ok(Exchanged::NotHeld)
        }
        _ => Err(quorum.no_majority(missing)),
    }
}

/// The votes on one renewal.
struct RenewalVotes {
    owner: Arc<Owner>,
    votes: Votes,
    tally: Tally,
    missing: FailedNodes,
}

impl RenewalVotes {
    fn new(owner: &Arc<Owner>, nodes: usize, asked: impl Iterator<Item = usize>) -> Self {
        let votes = Votes::of(nodes, asked);
        Self {
            owner: owner.clone(),
            votes,
            tally: Tally::default(),
            missing: FailedNodes::default(),
        }
    }

    fn add(
        &mut self,
        at: usize,
        sent: Moment,
        answer: &Result<NodeReply<Renewed>, Fault>,
        number: usize,
    ) {
        let one = match answer {
            Ok(voted) => match voted.answer.answers.get(number) {
                Some(Ok(owned)) => Ok((*owned, voted.counts)),
                Some(Err(fault)) => Err(fault.clone()),
                None => Err(Fault::timed_out()),
            },
            Err(fault) => Err(fault.clone()),
        };
        let ballot = match one {
            Ok((owned, counts)) => {
                // An offer without a reply may still take the vote back.
                let steady = self.owner.parts(self.votes.nodes())[at].is_steady();
                self.tally.renewed(sent, owned, Answered { counts, steady })
            }
            Err(fault) => {
                self.missing.add(at, fault);
                Ballot::Unknown
            }
        };
        self.votes.add(at, ballot);
    }
}
