//! The ballots of a quorum's nodes, and the verdict of their majority.

use crate::clock::Moment;

/// Returns how many of `nodes` nodes are a majority.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The ballots that the nodes have cast on one question so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Votes {
    nodes: Box<[Vote]>,
}

/// The state of one node's ballot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Vote {
    /// The node was not asked.
    Unasked,
    /// The node has not answered.
    Awaited,
    /// The node has cast this ballot.
    Said(Ballot),
}

/// The ballot of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ballot {
    /// The node has granted the request.
    Yes {
        /// When the node was asked.
        sent: Moment,
    },
    /// The node has granted the request, but its yes does not count. It may have forgotten another grant, or it may be about
    /// to take this one back.
    Uncounted,
    /// The node has refused, because of another token.
    No,
    /// The node has not answered. It may have executed the command, or may do so later.
    Unknown,
}

/// The result of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has said yes. Its grant counts from `sent`.
    Won {
        /// A moment that is not later than the majority's yes.
        sent: Moment,
    },
    /// A majority is not possible any more.
    Lost,
    /// The outstanding ballots decide.
    Open,
    /// All ballots are cast, and unknown ones decide.
    Undecided,
}

impl Votes {
    /// Begins a vote in which `asked` are asked, of `nodes` nodes.
    pub fn of(nodes: usize, asked: impl Iterator<Item = usize>) -> Self {
        let mut votes = vec![Vote::Unasked; nodes];
        asked.for_each(|node| votes[node] = Vote::Awaited);
        Self { nodes: votes.into() }
    }

    /// Returns the number of nodes, asked or not.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Sets the ballot of a node.
    pub fn add(&mut self, node: usize, ballot: Ballot) {
        self.nodes[node] = Vote::Said(ballot);
    }

    fn count(&self, is: impl Fn(&Vote) -> bool) -> usize {
        self.nodes.iter().filter(|vote| is(vote)).count()
    }

    fn which(&self, is: impl Fn(&Vote) -> bool) -> impl Iterator<Item = usize> {
        self.nodes.iter().enumerate().filter(move |(_, vote)| is(vote)).map(|(node, _)| node)
    }

    fn yes(&self) -> usize {
        self.count(|vote| matches!(vote, Vote::Said(Ballot::Yes { .. })))
    }

    fn no(&self) -> usize {
        self.count(|vote| *vote == Vote::Said(Ballot::No))
    }

    /// Returns whether a node has said no.
    pub fn has_no(&self) -> bool {
        self.no() != 0
    }

    /// Returns how many nodes have answered.
    pub fn answered(&self) -> usize {
        let unanswered = [Vote::Unasked, Vote::Awaited, Vote::Said(Ballot::Unknown)];
        self.count(|vote| !unanswered.contains(vote))
    }

    /// Returns whether a majority of the nodes has answered.
    pub fn has_quorum(&self) -> bool {
        self.answered() >= majority(self.nodes.len())
    }

    /// Returns the nodes whose yes counts.
    pub fn granted(&self) -> impl Iterator<Item = usize> {
        self.which(|vote| matches!(vote, Vote::Said(Ballot::Yes { .. })))
    }

    /// Returns when the first server whose yes counts was asked, because its grant ends first.
    pub fn first_sent(&self) -> Moment {
        let sent = self.nodes.iter().filter_map(|vote| match vote {
            Vote::Said(Ballot::Yes { sent }) => Some(*sent),
            _ => None,
        });
        sent.min().unwrap_or(Moment::from_nanos(0))
    }

    /// Returns the nodes that have said no.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        self.which(|vote| *vote == Vote::Said(Ballot::No))
    }

    /// Returns the nodes that have said yes, or may have done so or do so later: all that were asked and did not say no.
    pub fn standing(&self) -> impl Iterator<Item = usize> {
        self.which(|vote| !matches!(vote, Vote::Unasked | Vote::Said(Ballot::No)))
    }

    /// Returns the result of the vote so far.
    pub fn verdict(&self) -> Verdict {
        let all = self.nodes.len();
        let needed = majority(all);
        if self.yes() >= needed {
            return Verdict::Won { sent: self.lasting() };
        }
        if self.no() > all - needed {
            return Verdict::Lost;
        }
        match self.count(|vote| *vote == Vote::Awaited) {
            0 => Verdict::Undecided,
            _ => Verdict::Open,
        }
    }

    /// Returns from when the grant of a majority counts. A lease ends as soon as fewer nodes than a majority keep it. So the
    /// majority that was asked last counts, and the node of it that was asked first.
    fn lasting(&self) -> Moment {
        let sent = |vote: &Vote| match vote {
            Vote::Said(Ballot::Yes { sent }) => Some(*sent),
            _ => None,
        };
        let mut sent: Vec<_> = self.nodes.iter().filter_map(sent).collect();
        sent.sort_unstable_by(|one, other| other.cmp(one));
        sent[majority(self.nodes.len()) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn yes(nanos: u64) -> Ballot {
        Ballot::Yes { sent: at(nanos) }
    }

    fn all(nodes: usize) -> Votes {
        Votes::of(nodes, 0..nodes)
    }

    #[test]
    fn a_majority_is_more_than_half() {
        for (nodes, needed) in [(1, 1), (3, 2), (4, 3), (5, 3), (6, 4), (9, 5)] {
            assert_eq!(majority(nodes), needed, "{nodes}");
            assert!(2 * majority(nodes) > nodes, "{nodes}: two majorities share a node");
        }
    }

    #[test]
    fn a_lease_counts_from_when_the_last_majority_was_asked() {
        let mut votes = all(5);
        for (node, sent) in [40, 10, 30].into_iter().enumerate() {
            assert!(!matches!(votes.verdict(), Verdict::Won { .. }));
            votes.add(node, yes(sent));
        }
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(10) });
        votes.add(3, yes(20));
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(20) });
        votes.add(4, yes(50));
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(30) });
    }

    #[test]
    fn it_is_lost_when_no_majority_is_left() {
        let mut votes = all(3);
        votes.add(0, Ballot::No);
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(1, yes(1));
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(2, Ballot::No);
        assert_eq!(votes.verdict(), Verdict::Lost);
    }

    #[test]
    fn silence_decides_nothing() {
        let mut votes = all(3);
        votes.add(0, yes(1));
        votes.add(1, Ballot::Unknown);
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(2, Ballot::Uncounted);
        assert_eq!(votes.verdict(), Verdict::Undecided);
        let mut split = all(4);
        split.add(0, yes(1));
        split.add(1, yes(1));
        split.add(2, Ballot::No);
        assert_eq!(split.verdict(), Verdict::Open);
        split.add(3, Ballot::No);
        assert_eq!(split.verdict(), Verdict::Lost);
    }

    #[test]
    fn whoever_did_not_say_no_may_have_said_yes() {
        let mut votes = Votes::of(5, [0, 1, 2, 3].into_iter());
        for (node, ballot) in [yes(1), Ballot::No, Ballot::Unknown].into_iter().enumerate() {
            votes.add(node, ballot);
        }
        assert_eq!(votes.standing().collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(votes.granted().collect::<Vec<_>>(), [0]);
        assert_eq!(votes.refused().collect::<Vec<_>>(), [1]);
        assert!(!votes.has_quorum(), "two of five have answered");
        votes.add(3, Ballot::Uncounted);
        assert!(votes.has_quorum() && votes.verdict() == Verdict::Undecided);
        assert_eq!(votes.granted().collect::<Vec<_>>(), [0], "what does not count grants nothing");
    }
}
