//! Callers that hold a lock, from when it was granted until they let go.

use std::collections::BTreeMap;
use std::time::Duration;

use super::request::{Grant, Kinds, Loss, Place, Request};
use super::shell::Shell;
use crate::clock::Moment;
use crate::store::Term;
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

    /// What is left of its terms.
    pub(super) fn left(&self, now: Moment) -> Term {
        let term = self.request.term;
        let ttl = match term.renewed {
            true => self.capped(term.ttl, now),
            false => padded(self.last.since(now)).min(term.ttl),
        };
        let kept = self.free_from.map(|free_from| free_from.since(now));
        let min_hold = kept.filter(|kept| *kept > Duration::ZERO);
        Term { ttl, max_hold: None, min_hold, ..term }
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

/// The holders of the lock by one claim, which readers share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holders<K: Kinds> {
    /// No caller.
    None,
    /// One caller.
    One(Holder<K>),
    /// Readers, at least one.
    Several(Box<Several<K>>),
}

/// Readers, and what all of them come to. That is not found out anew whenever one comes or goes: it is
/// the least or the most that it may be until it is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Several<K: Kinds> {
    by_at: BTreeMap<i64, Holder<K>>,
    /// Nothing of theirs is due before.
    until: Moment,
    /// A renewal past this moves no deadline of theirs.
    renewed_until: Moment,
    /// None of them wants more.
    ttl: Duration,
}

impl<K: Kinds> Several<K> {
    fn of(holders: impl IntoIterator<Item = Holder<K>>) -> Self {
        let (until, renewed_until) = (Moment::NEVER, Moment::from_nanos(0));
        let (by_at, ttl) = (BTreeMap::new(), Duration::ZERO);
        let mut several = Self { by_at, until, renewed_until, ttl };
        for holder in holders {
            several.add(holder);
        }
        several
    }

    #[inline]
    fn add(&mut self, holder: Holder<K>) {
        self.note(&holder);
        self.by_at.insert(holder.at, holder);
    }

    fn note(&mut self, holder: &Holder<K>) {
        self.until = self.until.min(holder.until());
        self.renewed_until = self.renewed_until.max(holder.renewed_until());
        self.ttl = self.ttl.max(holder.request.term.ttl);
    }

    fn look(&mut self) {
        *self = Self::of(std::mem::take(&mut self.by_at).into_values());
    }
}

impl<K: Kinds> Holders<K> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Holder<K>> {
        let (one, several) = match self {
            Self::None => (None, None),
            Self::One(holder) => (Some(holder), None),
            Self::Several(several) => (None, Some(several.by_at.values())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// The one at a number of its batch.
    #[inline]
    pub fn get(&self, at: i64) -> Option<&Holder<K>> {
        match self {
            Self::One(holder) if holder.at == at => Some(holder),
            Self::None | Self::One(_) => None,
            Self::Several(several) => several.by_at.get(&at),
        }
    }

    /// Changes the one at a number of its batch.
    pub(super) fn change<T>(
        &mut self,
        at: i64,
        change: impl FnOnce(&mut Holder<K>) -> T,
    ) -> Option<T> {
        match self {
            Self::One(holder) if holder.at == at => Some(change(holder)),
            Self::None | Self::One(_) => None,
            Self::Several(several) => {
                let mut holder = several.by_at.remove(&at)?;
                let out = change(&mut holder);
                several.add(holder);
                Some(out)
            }
        }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, holder: Holder<K>) {
        match self {
            Self::None => *self = Self::One(holder),
            Self::One(_) | Self::Several(_) => self.add_one_more(holder),
        }
    }

    fn add_one_more(&mut self, holder: Holder<K>) {
        match self {
            Self::None => *self = Self::One(holder),
            Self::Several(several) => several.add(holder),
            Self::One(_) => {
                if let Self::One(first) = std::mem::replace(self, Self::None) {
                    *self = Self::Several(Box::new(Several::of([first, holder])));
                }
            }
        }
    }

    /// Takes the one at a number of its batch out, once `last` has had a look at it.
    #[inline]
    pub(super) fn end<T>(&mut self, at: i64, last: impl FnOnce(&Holder<K>) -> T) -> Option<T> {
        match self {
            // Nearly always. It is not moved.
            Self::One(holder) if holder.at == at => {
                let out = last(holder);
                *self = Self::None;
                Some(out)
            }
            _ => self.remove(at).map(|holder| last(&holder)),
        }
    }

    pub(super) fn remove(&mut self, at: i64) -> Option<Holder<K>> {
        match self {
            Self::None => None,
            Self::One(holder) if holder.at != at => None,
            Self::One(_) => match std::mem::replace(self, Self::None) {
                Self::One(holder) => Some(holder),
                Self::None | Self::Several(_) => None,
            },
            Self::Several(several) => {
                let holder = several.by_at.remove(&at)?;
                if several.by_at.is_empty() {
                    *self = Self::None;
                }
                Some(holder)
            }
        }
    }

    /// Nothing of theirs is due before this but the end of the claim.
    #[inline]
    pub(super) fn until(&self) -> Moment {
        match self {
            Self::None => Moment::NEVER,
            Self::One(holder) => holder.until(),
            Self::Several(several) => several.until,
        }
    }

    /// A renewal past this moves no deadline of theirs.
    #[inline]
    pub(super) fn renewed_until(&self) -> Moment {
        match self {
            Self::None => Moment::from_nanos(0),
            Self::One(holder) => holder.renewed_until(),
            Self::Several(several) => several.renewed_until,
        }
    }

    /// How much they want; of several, the most.
    #[inline]
    pub(super) fn ttl(&self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::One(holder) => holder.request.term.ttl,
            Self::Several(several) => several.ttl,
        }
    }

    /// A holder of which something is due, under a claim that ends at `claim`.
    pub(super) fn due(&mut self, claim: Moment, now: Moment) -> Option<&Holder<K>> {
        if now < claim && now < self.until() {
            return None;
        }
        self.look();
        self.iter().find(|holder| now >= claim || now >= holder.until())
    }

    /// Finds out what they come to now.
    pub(super) fn look(&mut self) {
        if let Self::Several(several) = self {
            several.look();
        }
    }

    #[cfg(feature = "model")]
    pub(super) fn all_mut(&mut self, change: impl FnMut(&mut Holder<K>)) {
        match self {
            Self::None => {}
            Self::One(holder) => std::iter::once(holder).for_each(change),
            Self::Several(several) => {
                let mut holders: Vec<_> =
                    std::mem::take(&mut several.by_at).into_values().collect();
                holders.iter_mut().for_each(change);
                **several = Several::of(holders);
            }
        }
    }
}
