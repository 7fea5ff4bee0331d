//! Counting the votes of a quorum's nodes. Pure: no node, no clock.

use crate::clock::Moment;

/// How many of so many nodes decide.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// One question to the nodes, and what each has said so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Votes {
    nodes: Box<[Vote]>,
}

/// What a node has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Vote {
    /// Nothing was asked.
    Unasked,
    Awaited,
    Said(Ballot),
}

/// What a node says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ballot {
    /// It was asked then.
    Yes {
        /// When that was.
        sent: Moment,
    },
    /// Yes, but its word does not count: it may have forgotten another's, or be about to take this one back.
    Uncounted,
    /// It is another's.
    No,
    /// It has not said: it may have done what it was asked, or do so later.
    Unknown,
}

/// What votes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has said yes. What it has granted counts from `sent`.
    Won {
        /// Not later than the majority's yes.
        sent: Moment,
    },
    /// A majority cannot be had any more.
    Lost,
    /// What is still out decides.
    Open,
    /// All votes are in, and what decides is unknown.
    Undecided,
}

impl Votes {
    /// A question to these of so many nodes.
    pub fn of(nodes: usize, asked: impl Iterator<Item = usize>) -> Self {
        let mut votes = vec![Vote::Unasked; nodes];
        asked.for_each(|node| votes[node] = Vote::Awaited);
        Self { nodes: votes.into() }
    }

    /// How many there are, asked or not.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

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

    pub fn has_no(&self) -> bool {
        self.no() != 0
    }

    /// How many nodes have said something.
    pub fn answered(&self) -> usize {
        let unanswered = [Vote::Unasked, Vote::Awaited, Vote::Said(Ballot::Unknown)];
        self.count(|vote| !unanswered.contains(vote))
    }

    /// As many nodes as decide have said something.
    pub fn has_quorum(&self) -> bool {
        self.answered() >= majority(self.nodes.len())
    }

    /// The nodes whose yes counts.
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

    /// The nodes that have said no.
    pub fn refused(&self) -> impl Iterator<Item = usize> {
        self.which(|vote| *vote == Vote::Said(Ballot::No))
    }

    /// The nodes that have said yes, or may come to it: all that were asked and did not say no.
    pub fn standing(&self) -> impl Iterator<Item = usize> {
        self.which(|vote| !matches!(vote, Vote::Unasked | Vote::Said(Ballot::No)))
    }

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

    /// From when a majority counts what it has granted: a lease is over as soon as one node fewer than a
    /// majority keeps it, so the majority that was asked last counts, and of it the node that was asked
    /// first.
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
