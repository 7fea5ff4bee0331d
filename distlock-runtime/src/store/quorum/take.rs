//! Taking a lock at a majority: a try by itself, and a place in the queue.

use std::time::Duration;

use super::QuorumStore;
use super::fences::Proposals;
use super::node::Voted;
use super::votes::{Ballot, Verdict, Votes};
use crate::clock::{Clock, Moment};
use crate::store::redis::vote::{Accepted, Vote};
use crate::store::{Answer, Attempt, Entered, Entry, Fault, Store};

/// The quorum's own number for a connection: which node's it was is known for each part of a token.
pub(super) const ALL: u64 = 1;

/// What the nodes have said beside yes and no.
#[derive(Default)]
struct Said {
    /// How many nodes whose yes counts have accepted the fencing token that was proposed with the question.
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
        match accepted {
            Accepted::Yes => self.accepted += usize::from(counts),
            Accepted::Above(other) => proposals.saw(other)?,
        }
        Ok(if counts { Ballot::Yes { sent } } else { Ballot::Uncounted })
    }

    /// A node has answered an entry. With `steady` nothing is under way that may take its vote back.
    fn entered(&mut self, answer: Result<Voted<Entered>, Fault>, steady: bool) -> Ballot {
        match answer {
            Ok(Voted { answer: Entered::Granted { sent, contended, .. }, counts }) => {
                self.contended |= contended;
                if counts && steady { Ballot::Yes { sent } } else { Ballot::Uncounted }
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
        Ballot::Unknown
    }

    /// When so many may be free that this token has a majority; `None` if nobody can tell.
    fn remaining(&self, votes: &Votes, majority: usize) -> Option<Duration> {
        let missing = majority.saturating_sub(votes.granted().count());
        let mut known: Vec<_> = self.remaining.iter().flatten().collect();
        known.sort_unstable();
        known.get(missing.saturating_sub(1)).or(known.last()).map(|remaining| **remaining)
    }

    /// Most nodes have put it into the queue now: it did not stand there.
    fn is_added(&self, votes: &Votes) -> bool {
        2 * self.added > votes.answered()
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
        owner.sending(Clock::Boottime.now(), attempt.term.stored_for(), ALL);
        let proposal = self.proposals.next(&self.nodes);
        let parts = owner.parts(self.nodes.len());
        let mut round = self.ask(self.up().map(|(at, node)| {
            let attempt = Attempt { owner: parts[at].owner.clone(), ..attempt.clone() };
            let store = node.store.clone();
            let vote = async move { store.vote(&attempt, proposal, answer_by).await };
            (at, node.ask(answer_by, vote))
        }));
        let mut said = Said::default();
        let (votes, verdict) =
            self.count(&mut round, |_, answer| said.tried(answer, &self.proposals)).await?;
        round.leave(&self.handle);
        if votes.standing().next().is_some() {
            owner.leaves_a_trace();
        }
        match verdict {
            Verdict::Won { sent } => {
                let fence = match said.accepted >= self.majority() {
                    true => proposal,
                    false => {
                        let granted: Vec<_> = votes.granted().collect();
                        self.proposals.draw(self, &granted, &owner.lock, answer_by).await?
                    }
                };
                owner.answered(ALL);
                Ok(Answer::Granted { fence, sent })
            }
            // Somebody else has it, or wants it at the same time. What nodes have given, or may give yet, is
            // released unless the token goes on to wait: it has left a trace.
            _ if votes.has_no() && votes.has_quorum() => {
                owner.answered(ALL);
                Ok(Answer::Taken { remaining: said.remaining(&votes, self.majority()) })
            }
            _ => Err(said.failed.unwrap_or_else(|| self.no_majority())),
        }
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

    /// A place in the queue of every node, at one ticket, so that all of them order the same waiters
    /// alike.
    pub(super) async fn stand(&self, entry: Entry, answer_by: Moment) -> Result<Entered, Fault> {
        let Entry { owner, term, ticket } = entry;
        let ticket = if ticket == 0 { self.proposals.next(&self.nodes) } else { ticket };
        owner.sending(Clock::Boottime.now(), term.stored_for(), ALL);
        owner.leaves_a_trace();
        self.minorities.asking(&owner, ticket);
        let parts = owner.parts(self.nodes.len());
        let mut round = self.ask(self.up().map(|(at, node)| {
            let entry = Entry { owner: parts[at].owner.clone(), term, ticket };
            (at, node.ask(answer_by, node.store.clone().enter(entry, answer_by)))
        }));
        let mut said = Said::default();
        let (votes, verdict) = self
            .count(&mut round, |at, answer| Ok(said.entered(answer, parts[at].is_steady())))
            .await?;
        round.leave(&self.handle);
        owner.answered(ALL);
        if let Verdict::Won { sent } = verdict {
            self.minorities.settled(&owner);
            let granted: Vec<_> = votes.granted().collect();
            let fence = self.proposals.draw(self, &granted, &owner.lock, answer_by).await?;
            let contended = said.contended || votes.has_no();
            return Ok(Entered::Granted { fence, sent, contended });
        }
        if !votes.has_no() {
            // Nobody else is there: it is the nodes.
            self.minorities.counted(&owner, [].into_iter());
            return Err(said.failed.unwrap_or_else(|| self.no_majority()));
        }
        // What votes for it after this was counted is offered as well: nobody would know of it.
        self.minorities.counted(&owner, votes.standing());
        let (remaining, added) = (said.remaining(&votes, self.majority()), said.is_added(&votes));
        Ok(Entered::Queued { ticket, remaining, rank: said.rank, behind: said.behind, added })
    }
}
