//! What the nodes' answers to one question come to. Pure: no node, no clock and no future in it; the
//! model of a quorum runs it as well.

use std::time::Duration;

use super::votes::{Ballot, Verdict, Votes, majority};
use crate::clock::Moment;
use crate::store::{Entered, Owned};

/// What a node says to a proposed fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It is the largest by now.
    Yes,
    /// It has accepted a larger one: this one, or one above it.
    Above(u64),
}

/// What is known of an answer beside what it says.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The node had been up for longer than the restart guard when it was asked.
    pub counts: bool,
    /// Nothing is under way that may take back what it has given.
    pub steady: bool,
}

/// What the nodes have said beside yes and no.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tally {
    /// How many nodes whose yes counts have accepted the fencing token that was proposed with the question.
    accepted: usize,
    /// For how long it is another's, by those where it is.
    remaining: Vec<Option<Duration>>,
    rank: u64,
    behind: u64,
    added: usize,
    /// How many nodes have given the lock and count, but for an offer without an answer that may take it back.
    unsteady: usize,
    contended: bool,
}

impl Answered {
    fn yes(self, sent: Moment) -> Ballot {
        if self.counts && self.steady { Ballot::Yes { sent } } else { Ballot::Uncounted }
    }
}

impl Tally {
    /// A node's answer to a try that was sent at `sent`.
    pub fn tried(
        &mut self,
        sent: Moment,
        given: Result<(), Option<Duration>>,
        accepted: Accepted,
        counts: bool,
    ) -> Ballot {
        if let Err(remaining) = given {
            self.remaining.push(remaining);
            return Ballot::No;
        }
        self.accepted += usize::from(counts && accepted == Accepted::Yes);
        Answered { counts, steady: true }.yes(sent)
    }

    /// A node's answer to an entry.
    pub fn entered(&mut self, answer: Entered, answered: Answered) -> Ballot {
        match answer {
            Entered::Granted { sent, contended, .. } => {
                self.contended |= contended;
                self.unsteady += usize::from(answered.counts && !answered.steady);
                answered.yes(sent)
            }
            Entered::Queued { remaining, rank, behind, added, .. } => {
                self.remaining.push(remaining);
                self.rank = self.rank.max(rank);
                self.behind = self.behind.max(behind);
                self.added += usize::from(added);
                Ballot::No
            }
        }
    }

    /// A node's answer to a renewal that was sent at `sent`.
    pub fn renewed(&mut self, sent: Moment, answer: Owned, answered: Answered) -> Ballot {
        match answer {
            Owned::Yes { contended, .. } => {
                self.contended |= contended;
                answered.yes(sent)
            }
            Owned::No => Ballot::No,
        }
    }

    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// When so many may be free that this token has a majority; `None` if that is unknown.
    fn remaining(&self, votes: &Votes) -> Option<Duration> {
        let missing = majority(votes.nodes()).saturating_sub(votes.granted().count());
        let mut known: Vec<_> = self.remaining.iter().flatten().collect();
        known.sort_unstable();
        known.get(missing.saturating_sub(1)).or(known.last()).map(|remaining| **remaining)
    }
}

/// A node's answer to a proposed fencing token: that of one that may have forgotten a larger one does not
/// count.
pub fn accepted(sent: Moment, answer: Accepted, counts: bool) -> Ballot {
    match answer {
        Accepted::Above(_) => Ballot::No,
        Accepted::Yes => Answered { counts, steady: true }.yes(sent),
    }
}

/// What a try comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// A majority has given the lock, and `accepted` the fencing token that was proposed with the question.
    Won {
        /// What it has given counts from then.
        sent: Moment,
        /// The fencing token is accepted.
        accepted: bool,
    },
    /// Another token has it, or wants it at the same time.
    Taken {
        /// When so many may be free that the token has a majority.
        remaining: Option<Duration>,
    },
    /// It is not known whose it is.
    Unknown,
}

impl Tried {
    /// Of these votes.
    pub fn of(votes: &Votes, tally: &Tally) -> Self {
        match votes.verdict() {
            Verdict::Won { sent } => {
                Self::Won { sent, accepted: tally.accepted >= majority(votes.nodes()) }
            }
            _ if votes.has_no() && votes.has_quorum() => {
                Self::Taken { remaining: tally.remaining(votes) }
            }
            _ => Self::Unknown,
        }
    }
}

/// What an entry comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// A majority has given the lock.
    Won {
        /// What it has given counts from then.
        sent: Moment,
        /// Others wait.
        contended: bool,
    },
    /// Others have nodes as well. Those that the token has, or may have, are offered to an earlier one.
    Queued {
        /// When so many may be free that the token has a majority.
        remaining: Option<Duration>,
        /// How many stand in front, at most.
        rank: u64,
        /// How many stand behind, at most.
        behind: u64,
        /// It did not stand in the queues before, or another token has to.
        added: bool,
    },
    /// No other token is there: the nodes are the cause.
    Unknown,
}

impl Stands {
    /// Of these votes.
    pub fn of(votes: &Votes, tally: &Tally) -> Self {
        if let Verdict::Won { sent } = votes.verdict() {
            return Self::Won { sent, contended: tally.contended || votes.has_no() };
        }
        // A connection has died with an offer, and so there is no telling whose a vote is. The token is of no
        // more use than one that did not hear that it was called (R12).
        let useless = votes.granted().count() + tally.unsteady >= majority(votes.nodes());
        if !votes.has_no() && !useless {
            return Self::Unknown;
        }
        // It is asked for at once.
        let remaining = if useless { Some(Duration::ZERO) } else { tally.remaining(votes) };
        let (rank, behind) = (tally.rank, tally.behind);
        // Most nodes have put it into the queue now: it did not stand there.
        let added = useless || 2 * tally.added > votes.answered();
        Self::Queued { remaining, rank, behind, added }
    }
}

/// What a proposed fencing token comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// By a majority.
    Accepted,
    /// Others have gone beyond it.
    Beaten,
    /// Too few have answered.
    Unknown,
}

impl Drawn {
    /// Of these votes.
    pub fn of(votes: &Votes) -> Self {
        match votes.verdict() {
            Verdict::Won { .. } => Self::Accepted,
            _ if votes.has_no() => Self::Beaten,
            _ => Self::Unknown,
        }
    }
}

/// The time by the median of the nodes' clocks, of which some are not known (0): one wrong clock does not
/// matter.
pub fn median(times: impl Iterator<Item = u64>) -> u64 {
    let mut times: Vec<_> = times.filter(|time| *time != 0).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// A fencing token or a ticket: above all that were `seen`, and near the `time`.
pub fn proposal(seen: u64, time: u64) -> u64 {
    (seen + 1).max(time)
}
