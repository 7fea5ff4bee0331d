//! What becomes of a lock that a majority has granted: renewing, exchanging, releasing.

use std::sync::Arc;
use std::time::Duration;

use super::QuorumStore;
use super::node::Voted;
use super::round::Round;
use super::votes::{Ballot, Verdict, Votes};
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::select::until;
use crate::store::owner::Owner;
use crate::store::{
    Entry, Exchange, Exchanged, Fault, Freed, Owned, Renewal, Renewed, Store, Term,
};

impl QuorumStore {
    /// Extends each lease where a majority does. A renewal that reaches a minority moves nothing: the
    /// old end stands, and the body runs until then.
    pub(super) async fn extend(&self, renewals: Vec<Renewal>) -> Result<Renewed, Fault> {
        let sent = Clock::Boottime.now();
        let answer_by = sent.after(self.command_timeout);
        let mut round = Round::new(self.up().map(|(at, node)| {
            let part = |renewal: &Renewal| {
                let owner = renewal.owner.parts(self.nodes.len())[at].owner.clone();
                Renewal { owner, draw: false, ..renewal.clone() }
            };
            let parts = renewals.iter().map(part).collect();
            (at, node.ask(answer_by, node.store.clone().renew(parts)))
        }));
        let mut tallies: Vec<_> = renewals
            .iter()
            .map(|_| Tally::new(self.nodes.len(), round.unanswered().count()))
            .collect();
        while let Some((at, answer)) = round.next().await {
            for (number, tally) in tallies.iter_mut().enumerate() {
                tally.add(at, sent, &answer, number);
            }
            if tallies.iter().all(|tally| tally.votes.verdict() != Verdict::Open) {
                break;
            }
        }
        round.leave(&self.handle);
        let mut answers = Vec::with_capacity(renewals.len());
        for (renewal, tally) in renewals.iter().zip(tallies) {
            answers.push(self.renewed(renewal, tally, answer_by).await);
        }
        Ok(Renewed { sent, answers })
    }

    async fn renewed(
        &self,
        renewal: &Renewal,
        tally: Tally,
        answer_by: Moment,
    ) -> Result<Owned, Fault> {
        match tally.votes.verdict() {
            Verdict::Won { .. } => {}
            Verdict::Lost => return Ok(Owned::No),
            Verdict::Open | Verdict::Undecided => {
                return Err(tally.failed.unwrap_or_else(|| self.no_majority()));
            }
        }
        self.fill(renewal, &tally.without);
        let fence = match renewal.draw {
            false => None,
            true => {
                self.proposals.saw(renewal.fence)?;
                let lock = &renewal.owner.lock;
                Some(self.proposals.draw(&self.nodes, &tally.with, lock, answer_by).await?)
            }
        };
        Ok(Owned::Yes { contended: tally.contended, fence })
    }

    /// Has the lease rest on all nodes, not on a bare majority: where the lock is free, it is taken.
    fn fill(&self, renewal: &Renewal, without: &[usize]) {
        let parts = renewal.owner.parts(self.nodes.len());
        let term = Term { ttl: renewal.ttl, renewed: true, max_hold: None, min_hold: None };
        let answer_by = Clock::Boottime.now().after(self.command_timeout);
        for at in without {
            let owner = parts[*at].owner.clone();
            let ticket = 0;
            let fill = self.nodes[*at].store.clone().fill(Entry { owner, term, ticket }, answer_by);
            self.handle.spawn(fill);
        }
    }

    /// One token for another at a majority.
    pub(super) async fn swap(
        &self,
        exchange: Exchange,
        answer_by: Moment,
    ) -> Result<Exchanged, Fault> {
        let Exchange { old, new, term } = exchange;
        new.sending(Clock::Boottime.now(), term.stored_for(), super::take::ALL);
        new.leaves_a_trace();
        let (old_parts, new_parts) = (old.parts(self.nodes.len()), new.parts(self.nodes.len()));
        let mut round = Round::new(self.up().map(|(at, node)| {
            let (old, new) = (old_parts[at].owner.clone(), new_parts[at].owner.clone());
            let op = node.store.clone().exchange(Exchange { old, new, term }, answer_by);
            (at, node.ask(answer_by, op))
        }));
        let (mut granted, mut behind, mut failed) = (Vec::new(), false, None);
        let (_, verdict) = self
            .count(&mut round, |at, answer| match answer {
                Ok(Voted { answer: Exchanged::Granted { sent, contended, .. }, counts }) => {
                    granted.push(at);
                    behind |= contended;
                    Ok(if counts { Ballot::Yes { sent } } else { Ballot::Silent })
                }
                Ok(Voted { answer: Exchanged::NotHeld, .. }) => Ok(Ballot::No),
                Err(fault) => {
                    failed = Some(fault);
                    Ok(Ballot::Silent)
                }
            })
            .await?;
        round.leave(&self.handle);
        match verdict {
            Verdict::Won { sent } => {
                let lock = &new.lock;
                let fence = self.proposals.draw(&self.nodes, &granted, lock, answer_by).await?;
                new.answered(super::take::ALL);
                Ok(Exchanged::Granted { fence, sent, contended: behind })
            }
            Verdict::Lost => {
                new.answered(super::take::ALL);
                Ok(Exchanged::NotHeld)
            }
            _ => Err(failed.unwrap_or_else(|| self.no_majority())),
        }
    }

    /// Releases a token wherever something of it may be. A majority is waited for, and the others a
    /// moment longer; whoever has not answered goes on by itself.
    pub(super) async fn free(
        &self,
        owner: Arc<Owner>,
        keep: Option<Duration>,
        answer_by: Moment,
    ) -> Result<Freed, Fault> {
        self.minorities.settled(&owner);
        let parts = owner.parts(self.nodes.len());
        // A token of which only the stores know more stands at every node.
        let stray = parts.iter().all(|part| part.owner.is_unsent());
        let asked =
            self.nodes.iter().enumerate().filter(|(at, _)| stray || !parts[*at].owner.is_unsent());
        let mut round = Round::new(asked.map(|(at, node)| {
            (at, node.store.clone().release(parts[at].owner.clone(), keep, answer_by))
        }));
        let all = round.unanswered().count();
        let needed = self.majority().min(all);
        let mut freed = Freed::nothing();
        let (mut answered, mut ours, mut failed) = (0, 0, None);
        let mut grace = None;
        loop {
            if answered >= needed && grace.is_none() {
                grace = Some(self.grace());
            }
            let next = match &mut grace {
                Some(grace) => until(round.next(), grace).await,
                None => Some(round.next().await),
            };
            match next {
                Some(Some((_, Ok(one)))) => {
                    answered += 1;
                    ours += usize::from(one.was_ours);
                    freed.settled &= one.settled;
                    freed.awaited |= one.awaited;
                    for token in one.next {
                        if !freed.next.contains(&token) {
                            freed.next.push(token);
                        }
                    }
                }
                Some(Some((_, Err(fault)))) => failed = Some(fault),
                Some(None) | None => break,
            }
        }
        let out = round.unanswered().count();
        round.leave(&self.handle);
        if answered < needed {
            return Err(failed.unwrap_or_else(|| {
                Fault::passing(
                    BackendKind::Unreachable,
                    "fewer than a majority of the nodes answer",
                )
            }));
        }
        freed.settled &= failed.is_none() && out == 0;
        freed.was_ours = ours != 0 && ours + (self.nodes.len() - answered) >= self.majority();
        Ok(freed)
    }
}

/// The answers to one renewal.
struct Tally {
    votes: Votes,
    /// Nodes that have the lock for the token, and that do not.
    with: Vec<usize>,
    without: Vec<usize>,
    contended: bool,
    failed: Option<Fault>,
}

impl Tally {
    fn new(nodes: usize, asked: usize) -> Self {
        let mut votes = Votes::of(nodes);
        (asked..nodes).for_each(|_| votes.add(Ballot::Silent));
        let (with, without) = Default::default();
        Self { votes, with, without, contended: false, failed: None }
    }

    fn add(
        &mut self,
        at: usize,
        sent: Moment,
        answer: &Result<Voted<Renewed>, Fault>,
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
            Ok((Owned::Yes { contended, .. }, counts)) => {
                self.contended |= contended;
                if counts {
                    self.with.push(at);
                    Ballot::Yes { sent }
                } else {
                    Ballot::Silent
                }
            }
            Ok((Owned::No, _)) => {
                self.without.push(at);
                Ballot::No
            }
            Err(fault) => {
                self.failed = Some(fault);
                Ballot::Silent
            }
        };
        self.votes.add(ballot);
    }
}
