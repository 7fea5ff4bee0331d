//! Counting the votes of a quorum's nodes. Pure: no node, no clock.

use crate::clock::Moment;

/// How many of so many nodes decide.
pub(crate) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The votes on one question, as far as they are in.
#[derive(Debug, Clone)]
pub(crate) struct Votes {
    nodes: usize,
    /// When those were asked that said yes.
    yes: Vec<Moment>,
    no: usize,
    /// Nodes that will not answer, or whose answers do not count.
    silent: usize,
}

/// One node's vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// It was asked at `sent`.
    Yes {
        sent: Moment,
    },
    No,
    /// It will not answer, or its answer does not count.
    Silent,
}

/// What votes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority has said yes. What it has granted counts from `sent`.
    Won { sent: Moment },
    /// A majority cannot be had any more.
    Lost,
    /// What is still out decides.
    Open,
    /// All votes are in, and what decides is unknown.
    Undecided,
}

impl Votes {
    pub(crate) fn of(nodes: usize) -> Self {
        Self { nodes, yes: Vec::with_capacity(nodes), no: 0, silent: 0 }
    }

    pub(crate) fn add(&mut self, ballot: Ballot) {
        match ballot {
            Ballot::Yes { sent } => self.yes.push(sent),
            Ballot::No => self.no += 1,
            Ballot::Silent => self.silent += 1,
        }
    }

    pub(crate) fn has_no(&self) -> bool {
        self.no != 0
    }

    /// Enough nodes have answered to decide, had they all said the same.
    pub(crate) fn has_quorum(&self) -> bool {
        self.yes.len() + self.no >= majority(self.nodes)
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let needed = majority(self.nodes);
        if self.yes.len() >= needed {
            return Verdict::Won { sent: self.lasting() };
        }
        if self.no > self.nodes - needed {
            return Verdict::Lost;
        }
        match self.yes.len() + self.no + self.silent >= self.nodes {
            true => Verdict::Undecided,
            false => Verdict::Open,
        }
    }

    /// From when a majority counts what it has granted: a lease is over as soon as one node fewer than a
    /// majority keeps it, so the majority that was asked last counts, and of it the node that was asked
    /// first.
    fn lasting(&self) -> Moment {
        let mut sent = self.yes.clone();
        sent.sort_unstable_by(|one, other| other.cmp(one));
        sent[majority(self.nodes) - 1]
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

    #[test]
    fn a_majority_is_more_than_half() {
        for (nodes, needed) in [(1, 1), (3, 2), (4, 3), (5, 3), (6, 4), (9, 5)] {
            assert_eq!(majority(nodes), needed, "{nodes}");
            assert!(2 * majority(nodes) > nodes, "{nodes}: two majorities share a node");
        }
    }

    #[test]
    fn a_lease_counts_from_when_the_last_majority_was_asked() {
        let mut votes = Votes::of(5);
        for sent in [40, 10, 30] {
            assert!(!matches!(votes.verdict(), Verdict::Won { .. }));
            votes.add(yes(sent));
        }
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(10) });
        votes.add(yes(20));
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(20) });
        votes.add(yes(50));
        assert_eq!(votes.verdict(), Verdict::Won { sent: at(30) });
    }

    #[test]
    fn it_is_lost_when_no_majority_is_left() {
        let mut votes = Votes::of(3);
        votes.add(Ballot::No);
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(yes(1));
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(Ballot::No);
        assert_eq!(votes.verdict(), Verdict::Lost);
    }

    #[test]
    fn silence_decides_nothing() {
        let mut votes = Votes::of(3);
        votes.add(yes(1));
        votes.add(Ballot::Silent);
        assert_eq!(votes.verdict(), Verdict::Open);
        votes.add(Ballot::Silent);
        assert_eq!(votes.verdict(), Verdict::Undecided);
        let mut split = Votes::of(4);
        split.add(yes(1));
        split.add(yes(1));
        split.add(Ballot::No);
        assert_eq!(split.verdict(), Verdict::Open);
        split.add(Ballot::No);
        assert_eq!(split.verdict(), Verdict::Lost);
    }
}
