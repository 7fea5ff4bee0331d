//! A claim: an owner token that owns the lock at the store, and those of this process that hold the
//! lock by it, one after the other (R6), each with a fencing token and a deadline of its own.

use std::time::Duration;

use super::holder::{Holder, Holders, Phase};
use super::{Kinds, Request};
use crate::clock::Moment;
use crate::store::Term;
use crate::store::owner::TOKENS_PER_FENCE;
use crate::store::term::deadline;

/// While others of this process wait behind the holder, the lease is kept young enough to be handed
/// on as it is.
const YOUNG: Duration = Duration::from_millis(500);
/// A lease that was not confirmed for so long is renewed before it is handed on.
const STALE: Duration = Duration::from_secs(1);
/// The claims by which a batch owns the lock: one, as long as locks are exclusive. Permits will have
/// one for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claims<K: Kinds>(Claim<K>);

/// An owner token that owns the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim<K: Kinds> {
    /// What is stored as the lock's value.
    pub token: K::Token,
    /// The counter value that its fencing tokens are counted under.
    pub fence: u64,
    /// The first counter value that it was granted with, as a ticket for those who waited with it.
    pub ticket: u64,
    /// The last fencing token that was given out under it.
    pub issued: u64,
    /// Until when it is ours.
    pub deadline: Moment,
    /// When the last command was sent to which the store said that it owns the lock.
    pub confirmed: Moment,
    /// The terms of the holder that it was granted for.
    pub term: Term,
    /// What the engine is about.
    pub renewal: Renewal,
    /// Whose it is at present.
    pub holders: Holders<K>,
}

/// Whether a renewal is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// None is.
    Idle,
    /// Its answer is awaited.
    Sent {
        /// It is to draw a counter value.
        draw: bool,
    },
    /// The last one has failed.
    Failed {
        /// When to try again.
        retry_at: Moment,
        /// It was to draw a counter value: the next one does not, because the counter may be what is
        /// wrong.
        draw: bool,
    },
}

/// Whether a claim can be handed to the next holder (R6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    AsItIs,
    /// Too little is left of it, or it was not confirmed for too long.
    AfterRenewal,
    /// More is left than was asked for, and a lease in use is never shortened.
    TooLong,
}

impl<K: Kinds> Claims<K> {
    pub(super) fn one(claim: Claim<K>) -> Self {
        Self(claim)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Claim<K>> {
        std::iter::once(&self.0)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Claim<K>> {
        std::iter::once(&mut self.0)
    }

    /// The one that is handed on.
    pub fn first(&self) -> &Claim<K> {
        &self.0
    }

    pub(super) fn first_mut(&mut self) -> &mut Claim<K> {
        &mut self.0
    }

    pub(super) fn into_first(self) -> Claim<K> {
        self.0
    }
}

/// Until when a lease is worth something here that was asked for at `sent`.
pub(super) fn deadline_of(sent: Moment, term: &Term, needs_renewal: bool) -> Moment {
    // Nothing can keep a renewal from being in time where the store is in this process.
    let endless = term.renewed && !needs_renewal;
    if endless { Moment::NEVER } else { deadline(sent, term.stored_for()) }
}

impl<K: Kinds> Claim<K> {
    /// The store granted it in answer to a command sent at `sent`.
    pub(super) fn granted(
        token: K::Token,
        fence: u64,
        sent: Moment,
        term: Term,
        needs_renewal: bool,
    ) -> Self {
        Self {
            token,
            fence,
            ticket: fence,
            issued: 0,
            deadline: deadline_of(sent, &term, needs_renewal),
            confirmed: sent,
            term,
            renewal: Renewal::Idle,
            holders: Holders::Awaits(Duration::ZERO),
        }
    }

    /// The store confirmed a renewal that was sent at `sent`, and may have drawn a counter value.
    /// Never shortens; too late changes nothing.
    pub(super) fn renewed(&mut self, sent: Moment, ttl: Duration, fence: Option<u64>) {
        self.deadline = self.deadline.max(deadline(sent, ttl));
        self.confirmed = self.confirmed.max(sent);
        self.fence = self.fence.max(fence.unwrap_or_default());
    }

    /// A fencing token for the next holder; `None` if the counter value has no more.
    pub(super) fn issue(&mut self) -> Option<u64> {
        let next = (self.fence * TOKENS_PER_FENCE).max(self.issued + 1);
        if next >= (self.fence + 1) * TOKENS_PER_FENCE {
            return None;
        }
        self.issued = next;
        Some(next)
    }

    /// R5: half of the fencing tokens under its counter value are used.
    pub(super) fn needs_fence(&self) -> bool {
        self.issued >= self.fence * TOKENS_PER_FENCE + TOKENS_PER_FENCE / 2
    }

    /// Whether the next renewal is to draw a counter value. Every other one does where that fails: a
    /// lease that is held does not depend on it.
    pub(super) fn draws(&self) -> bool {
        let failed = matches!(self.renewal, Renewal::Failed { draw: true, .. });
        self.needs_fence() && !(failed && self.holder().is_some())
    }

    /// Whoever holds the lock by it.
    pub fn holder(&self) -> Option<&Holder<K>> {
        match &self.holders {
            Holders::One(holder) => Some(holder),
            Holders::Awaits(_) => None,
        }
    }

    pub(super) fn holder_mut(&mut self) -> Option<&mut Holder<K>> {
        match &mut self.holders {
            Holders::One(holder) => Some(holder),
            Holders::Awaits(_) => None,
        }
    }

    /// R6: whether it can go to a holder on these terms. It is `fresh` if the store has just confirmed
    /// it.
    pub(super) fn fit(&self, term: &Term, fresh: bool, now: Moment) -> Fit {
        if self.deadline == Moment::NEVER {
            // What the store keeps without an end it keeps on the terms that it was asked for.
            let endless = term.renewed && term.max_hold.is_none() && term.stored_for() == term.ttl;
            let same = self.term == *term && (fresh || endless);
            return if same { Fit::AsItIs } else { Fit::TooLong };
        }
        let left = self.deadline.since(now);
        let wanted = term.stored_for();
        let enough = if term.renewed { wanted / 10 * 9 } else { wanted / 100 * 99 };
        let too_long = wanted + (wanted / 10).max(Duration::from_millis(100));
        if left > too_long {
            Fit::TooLong
        } else if left < enough || now.since(self.confirmed) > STALE {
            Fit::AfterRenewal
        } else {
            Fit::AsItIs
        }
    }

    /// R5: the caller is the holder from `now` on, and may have to take it first.
    pub(super) fn hold(
        &mut self,
        at: i64,
        request: Request,
        seat: K::Seat,
        fencing_token: u64,
        since: Moment,
    ) -> &mut Holder<K> {
        let phase = match request.part_until {
            Some(until) => Phase::Part { until },
            None => Phase::InUse,
        };
        let free_from = request.term.min_hold.map(|min_hold| since.after(min_hold));
        let (max, last) = (Moment::NEVER, Moment::NEVER);
        let mut holder = Holder { at, seat, request, fencing_token, max, last, free_from, phase };
        // One of several is kept until its holder has the others, whatever limits it afterwards.
        if request.part_until.is_none() {
            holder.limit(self.deadline, since);
        }
        self.holders = Holders::One(holder);
        match &mut self.holders {
            Holders::One(holder) => holder,
            Holders::Awaits(_) => unreachable!("it was just given a holder"),
        }
    }

    /// Nobody holds it until it was renewed to `ttl`.
    pub(super) fn await_renewal(&mut self, ttl: Duration, now: Moment) {
        self.holders = Holders::Awaits(ttl);
        if let Renewal::Failed { retry_at, .. } = &mut self.renewal {
            *retry_at = now;
        }
    }

    /// The end of what its holder has, or of the claim if it has none.
    pub(super) fn ends_at(&self) -> Moment {
        self.holder().map_or(self.deadline, |holder| holder.deadline(self.deadline))
    }

    /// How much of it is left.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        match (self.ends_at(), self.holder()) {
            // It has no end, which is to say its whole ttl at any time.
            (Moment::NEVER, Some(holder)) => holder.request.term.ttl,
            (Moment::NEVER, None) => self.term.ttl,
            (end, _) => end.since(now),
        }
    }

    /// R10: when to renew it next, if that would move its holder's deadline.
    pub(super) fn renewal_at(&self, crowded: bool) -> Moment {
        let wanted = match &self.holders {
            Holders::Awaits(_) => true,
            Holders::One(holder) => self.needs_fence() || holder.is_renewable(self.deadline),
        };
        match (&self.renewal, &self.holders) {
            _ if !wanted => Moment::NEVER,
            (Renewal::Sent { .. }, _) => Moment::NEVER,
            (Renewal::Failed { retry_at, .. }, _) => *retry_at,
            (Renewal::Idle, Holders::Awaits(_)) => Moment::from_nanos(0),
            (Renewal::Idle, Holders::One(_)) if self.needs_fence() => Moment::from_nanos(0),
            (Renewal::Idle, Holders::One(holder)) => {
                self.next_renewal(&holder.request.term, crowded)
            }
        }
    }

    /// Some time after the last renewal, on a grid, so that leases taken one after the other are
    /// renewed together in one pipeline.
    fn next_renewal(&self, term: &Term, crowded: bool) -> Moment {
        let third = term.ttl / 3;
        let period = match crowded {
            true => third.min(term.ttl / 10).clamp(Duration::from_millis(5), YOUNG),
            false => third,
        };
        let grid = u64::try_from((period / 8).as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        let due = self.confirmed.after(period).as_nanos();
        Moment::from_nanos(due - due % grid)
    }

    /// When it is to be looked at next.
    pub(super) fn due(&self, crowded: bool) -> Moment {
        let phase = self.holder().map_or(Moment::NEVER, |holder| holder.phase.until());
        self.ends_at().min(phase).min(self.renewal_at(crowded))
    }

    /// When to try a failed renewal again, inside what is left of the lease.
    pub(super) fn retry_at(&self, now: Moment) -> Moment {
        const UNHELD: Duration = Duration::from_millis(50);
        match self.holder() {
            None => now.after(UNHELD),
            Some(holder) => {
                let pause = holder.request.term.ttl / 20;
                let pause = pause.clamp(Duration::from_millis(5), Duration::from_secs(1));
                now.after(pause).min(self.ends_at())
            }
        }
    }
}
