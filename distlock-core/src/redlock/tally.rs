//! The results of one question to a quorum, from the answers of its nodes.

use std::time::Duration;

use super::votes::{Ballot, Verdict, Votes, majority};
use crate::clock::Moment;
use crate::store::{Entered, Owned};

/// A node's answer to a proposed fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// The node has accepted the token, which is its largest now.
    Yes,
    /// The node has accepted a larger token before: this one, or one above it.
    Above(u64),
}

/// The weight of a node's answer.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Whether the node counted, by the [restart guard](super::RestartGuard), when it was asked.
    pub counts: bool,
    /// Whether no unanswered offer may take back the node's grant.
    pub steady: bool,
}

/// The parts of the nodes' answers beside yes and no.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Tally {
    /// How many nodes whose yes counts have accepted the fencing token that was proposed with the question.
    accepted: usize,
    /// The rest of another token's lease, at each node that has granted the lock to another token.
    remaining: Vec<Option<Duration>>,
    /// The largest number of waiters before the token.
    rank: u64,
    /// The largest number of waiters after the token.
    behind: u64,
    /// How many nodes have added the token to their queues.
    added: usize,
    /// How many nodes have granted the lock and would count, but have an unanswered offer that may take the grant back.
    unsteady: usize,
    /// Whether a node knows of other waiters.
    contended: bool,
}

impl Answered {
    fn yes(self, sent: Moment) -> Ballot {
        if self.counts && self.steady { Ballot::Yes { sent } } else { Ballot::Uncounted }
    }
}

impl Tally {
    /// Adds a node's answer to a try that was sent at `sent`, and returns the node's ballot. If the lock is taken, `given` is
    /// the rest of the other token's lease.
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

    /// Adds a node's answer to an entry, and returns the node's ballot.
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

    /// Adds a node's answer to a renewal that was sent at `sent`, and returns the node's ballot.
    pub fn renewed(&mut self, sent: Moment, answer: Owned, answered: Answered) -> Ballot {
        match answer {
            Owned::Yes { contended, .. } => {
                self.contended |= contended;
                answered.yes(sent)
            }
            Owned::No => Ballot::No,
        }
    }

    /// Returns whether a node knows of other waiters.
    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// Returns how long it takes until enough leases of other tokens have ended for a majority; `None` if that is unknown.
    fn remaining(&self, votes: &Votes) -> Option<Duration> {
        let missing = majority(votes.nodes()).saturating_sub(votes.granted().count());
        let mut known: Vec<_> = self.remaining.iter().flatten().collect();
        known.sort_unstable();
        known.get(missing.saturating_sub(1)).or(known.last()).map(|remaining| **remaining)
    }
}

/// Returns the ballot of a node on a proposed fencing token. The yes of a node that may have forgotten a larger token does
/// not count.
pub fn accepted(sent: Moment, answer: Accepted, counts: bool) -> Ballot {
    match answer {
        Accepted::Above(_) => Ballot::No,
        Accepted::Yes => Answered { counts, steady: true }.yes(sent),
    }
}

/// The result of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// A majority has granted the lock.
    Won {
        /// When the lease begins.
        sent: Moment,
        /// Whether a majority has also accepted the fencing token that was proposed with the question.
        accepted: bool,
    },
    /// Another token holds the lock, or wants it at the same time.
    Taken {
        /// How long it takes until a majority may be free; `None` if that is unknown.
        remaining: Option<Duration>,
    },
    /// It is unknown who holds the lock, because too few nodes have answered, or their yes does not count.
    Unknown,
}

impl Tried {
    /// Returns the result of these votes.
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

/// The result of an entry into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// A majority has granted the lock.
    Won {
        /// When the lease begins.
        sent: Moment,
        /// Whether others wait.
        contended: bool,
    },
    /// The token waits, because other tokens have votes as well. The votes that this token has, or may have, are offered to
    /// an earlier token.
    Queued {
        /// How long it takes until a majority may be free; `None` if that is unknown.
        remaining: Option<Duration>,
        /// The largest number of waiters before the token.
        rank: u64,
        /// The largest number of waiters after the token.
        behind: u64,
        /// Whether the token was not in the queues before, or is useless and must be replaced by another one.
        added: bool,
    },
    /// Too few nodes have answered, or their yes does not count, and there is no other token that could be the reason.
    Unknown,
}

impl Stands {
    /// Returns the result of these votes.
    pub fn of(votes: &Votes, tally: &Tally) -> Self {
        if let Verdict::Won { sent } = votes.verdict() {
            return Self::Won { sent, contended: tally.contended || votes.has_no() };
        }
        // A connection has died with an unanswered offer, so nobody knows whose vote it is. The token is useless, like one
        // that missed its turn (R12).
        let useless = votes.granted().count() + tally.unsteady >= majority(votes.nodes());
        if !votes.has_no() && !useless {
            return Self::Unknown;
        }
        // The next look comes at once.
        let remaining = if useless { Some(Duration::ZERO) } else { tally.remaining(votes) };
        let (rank, behind) = (tally.rank, tally.behind);
        // If most nodes have added the token now, it was not in the queues before.
        let added = useless || 2 * tally.added > votes.answered();
        Self::Queued { remaining, rank, behind, added }
    }
}

/// The result of a proposed fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// A majority has accepted the token.
    Accepted,
    /// A node has accepted a larger token.
    Beaten,
    /// Too few nodes have answered, or their yes does not count.
    Unknown,
}

impl Drawn {
    /// Returns the result of these votes.
    pub fn of(votes: &Votes) -> Self {
        match votes.verdict() {
            Verdict::Won { .. } => Self::Accepted,
            _ if votes.has_no() => Self::Beaten,
            _ => Self::Unknown,
        }
    }
}

/// Returns the median of the nodes' times, so that one wrong clock does not matter. A time of 0 is unknown and ignored.
pub fn median(times: impl Iterator<Item = u64>) -> u64 {
    let mut times: Vec<_> = times.filter(|time| *time != 0).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

/// Returns a new fencing token or ticket. It is above all numbers that were `seen`, and not below the `time`.
pub fn proposal(seen: u64, time: u64) -> u64 {
    (seen + 1).max(time)
}
