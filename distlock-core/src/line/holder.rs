//! A caller that holds a lock, from when it was granted until it lets go.

use std::time::Duration;

use super::{Grant, Kinds, Loss, Place, Request, Shell};
use crate::clock::Moment;
use crate::store::term::padded;

/// A caller that was granted a lock has to take it in a poll of its own within this time (R5).
const TAKE: Duration = Duration::from_secs(1);

/// A caller that holds the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder<K: Kinds> {
    /// Its number in the batch.
    pub at: i64,
    /// Where it learns what becomes of its lease.
    pub seat: K::Seat,
    /// What it wants.
    pub request: Request,
    /// Its fencing token.
    pub fencing_token: u64,
    /// The end of its `max_hold`.
    pub max: Moment,
    /// No renewal moves its deadline past this: `max`, or a lease that is not renewed.
    pub last: Moment,
    /// `min_hold`: the lock is not to be free before this.
    pub free_from: Option<Moment>,
    /// How far it has come.
    pub phase: Phase,
}

/// How far a holder has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It was granted the lock and may not have taken it (R5).
    Offered {
        /// From then on the next one gets it.
        until: Moment,
    },
    /// It waits for other locks.
    Part {
        /// Then they are too late.
        until: Moment,
    },
    /// It uses the lock.
    InUse,
}

impl<K: Kinds> Holder<K> {
    /// R5: a caller holds the lock from `since` on, by a claim that ends at `claim`.
    #[inline]
    pub(super) fn new(
        (at, request, seat): (i64, Request, K::Seat),
        fencing_token: u64,
        claim: Moment,
        since: Moment,
    ) -> Self {
        let phase = match request.part_until {
            Some(until) => Phase::Part { until },
            None => Phase::InUse,
        };
        let free_from = request.term.min_hold.map(|min_hold| since.after(min_hold));
        let (max, last) = (Moment::NEVER, Moment::NEVER);
        let mut holder = Self { at, seat, request, fencing_token, max, last, free_from, phase };
        // One of several is kept until its holder has the others, whatever limits it afterwards.
        if request.part_until.is_none() {
            holder.limit(claim, since);
        }
        holder
    }

    /// From `start` on it is held for no longer than its holder asked for. One that was handed on
    /// may have more left than that.
    #[inline]
    pub(super) fn limit(&mut self, claim: Moment, start: Moment) {
        let term = self.request.term;
        self.max = term.max_hold.map_or(Moment::NEVER, |max_hold| start.after(max_hold));
        let fixed = claim.min(start.after(term.ttl));
        self.last = if term.renewed { self.max } else { self.max.min(fixed) };
    }

    /// It has to be taken first.
    pub(super) fn offer(&mut self, now: Moment) {
        let take_by = now.after(TAKE);
        let until = self.request.part_until.map_or(take_by, |part| part.min(take_by));
        self.phase = Phase::Offered { until };
    }

    /// It was taken.
    pub(super) fn taken(&mut self) {
        self.phase = match self.request.part_until {
            Some(until) => Phase::Part { until },
            None => Phase::InUse,
        };
    }

    /// Its deadline under a claim that ends at `claim`.
    #[inline]
    pub fn deadline(&self, claim: Moment) -> Moment {
        claim.min(self.last)
    }

    /// Whether a renewal would move its deadline.
    pub(super) fn is_renewable(&self, claim: Moment) -> bool {
        claim < self.renewed_until()
    }

    /// A renewal past this does not move its deadline. One of several is kept until its holder has all.
    pub(super) fn renewed_until(&self) -> Moment {
        let renewed = self.request.term.renewed || self.is_part();
        if renewed { self.last } else { Moment::from_nanos(0) }
    }

    /// Nothing of it is due before this but the end of its claim.
    #[inline]
    pub(super) fn until(&self) -> Moment {
        self.last.min(self.phase.until())
    }

    fn is_part(&self) -> bool {
        self.request.part_until.is_some() && self.phase != Phase::InUse
    }

    /// A `ttl` from now, not past `max_hold`.
    pub fn capped(&self, ttl: Duration, now: Moment) -> Duration {
        padded(self.max.since(now)).min(ttl)
    }

    /// What it is when it has run out: a `max_hold` is meant to.
    pub(super) fn expiry(&self, claim: Moment) -> Loss {
        if self.deadline(claim) == self.max { Loss::MaxHold } else { Loss::Expired }
    }

    /// `min_hold`: the lock is not to be free before this. Not if nothing was done under it.
    pub(super) fn kept_until<X: Shell<K>>(&self, shell: &X) -> Option<Moment> {
        self.free_from.filter(|_| shell.in_hand(&self.seat))
    }

    #[inline]
    pub(super) fn grant(&self, claim: Moment) -> Grant {
        Grant { fencing_token: self.fencing_token, deadline: self.deadline(claim) }
    }

    pub(super) fn place(&self, batch: u64) -> Place {
        Place { batch, at: self.at }
    }
}

impl Phase {
    #[inline]
    pub(super) fn until(self) -> Moment {
        match self {
            Self::Offered { until } | Self::Part { until } => until,
            Self::InUse => Moment::NEVER,
        }
    }
}
