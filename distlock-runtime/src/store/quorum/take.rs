//! Taking a lock at a majority: a try by itself, and a place in the queue.

use std::sync::Arc;
use std::time::Duration;

use super::fences::Proposals;
use super::node::Voted;
use super::round::Round;
use super::votes::{Ballot, Verdict};
use super::{QuorumStore, send};
use crate::clock::{Clock, Moment};
use crate::store::owner::Owner;
use crate::store::redis::vote::{Accepted, Vote};
use crate::store::{Answer, Attempt, Entered, Entry, Fault, Store};

/// The quorum's own number for a connection: which node's it was is known for each part of a token.
pub(super) const ALL: u64 = 1;

/// What the nodes have said.
#[derive(Default)]
struct Said {
    /// Those that have the lock for the token.
    granted: Vec<usize>,
    /// How many of these have accepted the fencing token that was proposed with the question.
    accepted: usize,
    /// For how long it is another's, by those where it is.
    remaining: Vec<Option<Duration>>,
    rank: u64,
    behind: u64,
    added: usize,
    contended: bool,
    failed: Option<Fault>,
}

impl Said {
    /// A node has answered a try.
    fn tried(
        &mut self,
        at: usize,
        answer: Result<Voted<Vote>, Fault>,
        proposals: &Proposals,
    ) -> Result<Ballot, Fault> {
        let (Vote { sent, given, accepted }, counts) = match answer {
            Ok(Voted { answer, counts }) => (answer, counts),
            Err(fault) => return Ok(self.failed(fault)),
        };
        if let Err(remaining) = given {
            self.remaining.push(remaining);
            return Ok(Ballot::No);
        }
        self.granted.push(at);
        match accepted {
            Accepted::Yes => self.accepted += usize::from(counts),
            Accepted::Above(other) => proposals.saw(other)?,
        }
        Ok(if counts { Ballot::Yes { sent } } else { Ballot::Silent })
    }

    /// A node has answered an entry. With `steady` nothing is under way that may take its vote back.
    fn entered(
        &mut self,
        at: usize,
        answer: Result<Voted<Entered>, Fault>,
        steady: bool,
    ) -> Ballot {
        match answer {
            Ok(Voted { answer: Entered::Granted { sent, contended, .. }, counts }) => {
                self.granted.push(at);
                self.contended |= contended;
                if counts && steady { Ballot::Yes { sent } } else { Ballot::Silent }
            }
            Ok(Voted {
                answer: Entered::Queued { remaining, rank, behind, added, .. }, ..
            }) => {
                self.remaining.push(remaining);
                self.rank = self.rank.max(rank);
                self.behind = self.behind.max(behind);
                self.added += usize::from(added);
                Ballot::No
            }
            Err(fault) => self.failed(fault),
        }
    }

    fn failed(&mut self, fault: Fault) -> Ballot {
        self.failed = Some(fault);
        Ballot::Silent
    }

    /// When so many may be free that this token has a majority; `None` if nobody can tell.
    fn remaining(&self, majority: usize) -> Option<Duration> {
        let missing = majority.saturating_sub(self.granted.len());
        let mut known: Vec<_> = self.remaining.iter().flatten().collect();
        known.sort_unstable();
        known.get(missing.saturating_sub(1)).or(known.last()).map(|remaining| **remaining)
    }

    /// Most nodes have put it into the queue now: it did not stand there.
    fn is_added(&self) -> bool {
        2 * self.added > self.granted.len() + self.remaining.len()
    }
}

impl QuorumStore {
    /// A try by itself: one write to each node, and one round trip if the token that was proposed with
    /// it is accepted.
    pub(super) async fn take(&self, attempt: Attempt, answer_by: Moment) -> Result<Answer, Fault> {
        let owner = attempt.owner.clone();
        // R2: the engine has sent this token since, and only the answer to that counts.
        if !owner.is_unsent() {
            return Err(Fault::given_up());
        }
        self.sending(&owner, attempt.term.stored_for());
        let proposal = self.proposals.next(&self.nodes);
        let parts = owner.parts(self.nodes.len());
        let mut round = Round::new(self.up().map(|(at, node)| {
            let attempt = Attempt { owner: parts[at].owner.clone(), ..attempt.clone() };
            let store = node.store.clone();
            let vote = async move { store.vote(&attempt, proposal, answer_by).await };
            (at, node.ask(answer_by, vote))
        }));
        let mut said = Said::default();
        let (votes, verdict) =
            self.count(&mut round, |at, answer| said.tried(at, answer, &self.proposals)).await?;
        match verdict {
            Verdict::Won { sent } => {
                round.leave(&self.handle);
                let fence = match said.accepted >= self.majority() {
                    true => proposal,
                    false => {
                        let lock = &owner.lock;
                        self.proposals.draw(&self.nodes, &said.granted, lock, answer_by).await?
                    }
                };
                owner.answered(ALL);
                Ok(Answer::Granted { fence, sent })
            }
            // Somebody else has it, or wants it at the same time.
            Verdict::Lost | Verdict::Undecided | Verdict::Open if votes.has_no() => {
                let remaining = said.remaining(self.majority());
                let nodes = said.granted.into_iter().chain(round.unanswered());
                self.give_back(&owner, nodes, answer_by);
                round.leave(&self.handle);
                owner.answered(ALL);
                Ok(Answer::Taken { remaining })
            }
            _ => Err(said.failed.unwrap_or_else(|| self.no_majority())),
        }
    }

    fn sending(&self, owner: &Owner, stored_for: Duration) {
        owner.sending(Clock::Boottime.now(), stored_for, ALL);
        owner.leaves_a_trace();
    }

    /// Nodes can be asked, but fewer than a majority count.
    pub(super) fn no_majority(&self) -> Fault {
        match self.starting() {
            Some(wait) => super::look::too_new(wait),
            None => self.too_few(),
        }
    }

    /// How long it takes until a majority counts again; `None` if nodes do not count for other reasons.
    pub(super) fn starting(&self) -> Option<Duration> {
        let mut waits: Vec<_> = self.up().filter_map(|(_, node)| node.wait()).collect();
        waits.sort_unstable();
        waits.get(self.majority() - 1).copied().filter(|wait| !wait.is_zero())
    }

    /// Gives back what a try has that came to nothing, or may come to have: behind it, on the same
    /// connection. Nobody waits for that; until it is confirmed a vote of the node does not count for this
    /// token.
    fn give_back(&self, owner: &Arc<Owner>, nodes: impl Iterator<Item = usize>, answer_by: Moment) {
        let parts = owner.parts(self.nodes.len());
        for at in nodes.filter(|at| !parts[*at].owner.is_unsent()) {
            parts[at].returning();
            let release =
                self.nodes[at].store.clone().release(parts[at].owner.clone(), None, answer_by);
            let (owner, nodes) = (owner.clone(), self.nodes.len());
            send(&self.handle, async move {
                if release.await.is_ok_and(|freed| freed.settled) {
                    owner.parts(nodes)[at].returned();
                }
            });
        }
    }

    /// A place in the queue of every node, at one ticket, so that all of them order the same waiters
    /// alike.
    pub(super) async fn stand(&self, entry: Entry, answer_by: Moment) -> Result<Entered, Fault> {
        let Entry { owner, term, ticket } = entry;
        let ticket = if ticket == 0 { self.proposals.next(&self.nodes) } else { ticket };
        self.sending(&owner, term.stored_for());
        self.minorities.asking(&owner, ticket);
        let parts = owner.parts(self.nodes.len());
        let mut round = Round::new(self.up().map(|(at, node)| {
            let entry = Entry { owner: parts[at].owner.clone(), term, ticket };
            (at, node.ask(answer_by, node.store.clone().enter(entry, answer_by)))
        }));
        let mut said = Said::default();
        let (votes, verdict) = self
            .count(&mut round, |at, answer| Ok(said.entered(at, answer, parts[at].is_steady())))
            .await?;
        let unanswered: Vec<_> = round.unanswered().collect();
        round.leave(&self.handle);
        owner.answered(ALL);
        if let Verdict::Won { sent } = verdict {
            self.minorities.settled(&owner);
            let lock = &owner.lock;
            let fence = self.proposals.draw(&self.nodes, &said.granted, lock, answer_by).await?;
            let contended = said.contended || votes.has_no();
            return Ok(Entered::Granted { fence, sent, contended });
        }
        if !votes.has_no() {
            // Nobody else is there: it is the nodes.
            self.minorities.counted(&owner, [].into_iter());
            return Err(said.failed.unwrap_or_else(|| self.no_majority()));
        }
        let (remaining, added) = (said.remaining(self.majority()), said.is_added());
        // What votes for it after this was counted is offered as well: nobody would know of it.
        self.minorities.counted(&owner, said.granted.into_iter().chain(unanswered));
        Ok(Entered::Queued { ticket, remaining, rank: said.rank, behind: said.behind, added })
    }
}
