//! The callers of this process that hold a lock by one claim, from the grant until they give it back.

use std::collections::BTreeMap;
use std::time::Duration;

use super::request::{Grant, Kinds, Loss, Position, Request};
use super::shell::Shell;
use crate::clock::Moment;
use crate::store::Term;
use crate::store::term::padded;

/// R5: how long a caller has to take its grant in a poll of its own.
const TAKE: Duration = Duration::from_secs(1);

/// A caller that is about to hold the lock.
pub(super) struct Recipient<K: Kinds> {
    /// The caller's number in its batch.
    pub(super) at: i64,
    /// The caller's request.
    pub(super) request: Request,
    /// The caller.
    pub(super) caller: K::Caller,
}

/// A caller of this process that holds the lock.
///
/// Its lease ends at the claim's deadline or at `last`, whichever comes first, so holders of one claim may end
/// at different times. `last` never lies after `max`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalHolder<K: Kinds> {
    /// The caller's number in its batch.
    pub at: i64,
    /// The caller.
    pub caller: K::Caller,
    /// The caller's request.
    pub request: Request,
    /// The fencing token of this hold.
    pub fencing_token: u64,
    /// The end of the `max_hold`.
    pub max: Moment,
    /// The latest possible deadline: `max`, or the end of a lease that is not renewed.
    pub last: Moment,
    /// The end of the `min_hold`. The lock is not to be free before this.
    pub free_from: Option<Moment>,
    /// The progress of this hold.
    pub phase: Phase,
}

/// The progress of a hold, from the offer to its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The lock was offered to a waiter, which may not have taken it yet (R5).
    Offered {
        /// When the next waiter gets the lock instead.
        until: Moment,
    },
    /// The caller has this lock, and still waits for others that it asked for.
    Part {
        /// When the caller loses this lock if it does not have the others.
        until: Moment,
    },
    /// The caller has all the locks that it asked for.
    InUse,
}

impl<K: Kinds> LocalHolder<K> {
    /// Creates a hold (R5) that begins at `since`, by a claim that ends at `claim`.
    #[inline]
    pub(super) fn new(
        recipient: Recipient<K>,
        fencing_token: u64,
        claim: Moment,
        since: Moment,
    ) -> Self {
        let Recipient { at, request, caller } = recipient;
        let phase = Phase::taken(&request);
        let free_from = request.term.min_hold.map(|min_hold| since.after(min_hold));
        let (max, last) = (Moment::NEVER, Moment::NEVER);
        let mut holder = Self { at, caller, request, fencing_token, max, last, free_from, phase };
        // A lease on one of several locks has no limit of its own until the caller has all of them.
        if request.part_until.is_none() {
            holder.limit(claim, since);
        }
        holder
    }

    /// Limits this hold to what the caller asked for, counted from `start`. A claim that was handed over may
    /// have more time left than that.
    #[inline]
    pub(super) fn limit(&mut self, claim: Moment, start: Moment) {
        let term = self.request.term;
        self.max = term.max_hold.map_or(Moment::NEVER, |max_hold| start.after(max_hold));
        let fixed = claim.min(start.after(term.ttl));
        self.last = if term.renewed { self.max } else { self.max.min(fixed) };
    }

    /// Marks the lock as offered: the caller has to take it first (R5).
    pub(super) fn offer(&mut self, now: Moment) {
        let take_by = now.after(TAKE);
        let until = self.request.part_until.map_or(take_by, |part| part.min(take_by));
        self.phase = Phase::Offered { until };
    }

    /// Marks the lock as taken.
    pub(super) fn taken(&mut self) {
        self.phase = Phase::taken(&self.request);
    }

    /// Returns the deadline of this hold under a claim that ends at `claim`.
    #[inline]
    pub fn deadline(&self, claim: Moment) -> Moment {
        claim.min(self.last)
    }

    /// Returns whether a renewal would move this hold's deadline.
    pub(super) fn is_renewable(&self, claim: Moment) -> bool {
        claim < self.renewed_until()
    }

    /// Returns the latest end of a claim that is of use to this hold. A lease on one of several locks is renewed
    /// until the caller has all of them, whether or not its terms say so.
    pub(super) fn renewed_until(&self) -> Moment {
        let renewed = self.request.term.renewed || self.is_part();
        if renewed { self.last } else { Moment::from_nanos(0) }
    }

    /// Returns when something of this hold is due, apart from the end of its claim.
    #[inline]
    pub(super) fn until(&self) -> Moment {
        self.last.min(self.phase.until())
    }

    /// Returns whether the caller still waits for other locks that it asked for.
    fn is_part(&self) -> bool {
        self.request.part_until.is_some() && self.phase != Phase::InUse
    }

    /// Returns `ttl`, or the time until the end of the `max_hold` if that is shorter.
    pub fn capped(&self, ttl: Duration, now: Moment) -> Duration {
        padded(self.max.since(now)).min(ttl)
    }

    /// Returns the reason for the loss of this hold once its time is over.
    pub(super) fn expiry(&self, claim: Moment) -> Loss {
        if self.deadline(claim) == self.max { Loss::MaxHold } else { Loss::Expired }
    }

    /// Returns the end of the `min_hold`, or `None` if there is none or the caller never used the lock.
    pub(super) fn kept_until<X: Shell<K>>(&self, shell: &X) -> Option<Moment> {
        self.free_from.filter(|_| shell.in_hand(&self.caller))
    }

    /// Returns this hold as its caller learns it.
    #[inline]
    pub(super) fn grant(&self, claim: Moment) -> Grant {
        Grant { fencing_token: self.fencing_token, deadline: self.deadline(claim) }
    }

    /// Returns the caller's position.
    pub(super) fn position(&self, batch: u64) -> Position {
        Position { batch, at: self.at }
    }

    /// Returns the terms of the time that is left, for a new token of the same holder.
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
    /// Returns the phase of a lock that its caller has just taken.
    #[inline]
    fn taken(request: &Request) -> Self {
        match request.part_until {
            Some(until) => Self::Part { until },
            None => Self::InUse,
        }
    }

    /// Returns when this phase has to be over.
    #[inline]
    pub(super) fn until(self) -> Moment {
        match self {
            Self::Offered { until } | Self::Part { until } => until,
            Self::InUse => Moment::NEVER,
        }
    }
}

/// The holders of the lock by one claim. Only readers share a claim; it then has several holders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holders<K: Kinds> {
    /// The claim awaits its next holder.
    None,
    /// One holder. Nearly every claim has one, which needs no allocation.
    One(LocalHolder<K>),
    /// Readers, at least one of them.
    Several(Box<Several<K>>),
}

/// Readers that share one claim, by their numbers.
///
/// Bounds over all readers are kept beside them, because computing these at every arrival and end would take
/// time in proportion to the number of readers. A reader that ends does not change the bounds, so `until` may be
/// too early, and `renewed_until` and `ttl` too large, until `refresh` computes them again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Several<K: Kinds> {
    by_at: BTreeMap<i64, LocalHolder<K>>,
    /// Nothing of any reader is due before this.
    until: Moment,
    /// A renewal beyond this moves no reader's deadline.
    renewed_until: Moment,
    /// No reader asked for a longer lease.
    ttl: Duration,
}

impl<K: Kinds> Several<K> {
    /// Collects readers and computes their bounds.
    fn of(holders: impl IntoIterator<Item = LocalHolder<K>>) -> Self {
        let (until, renewed_until) = (Moment::NEVER, Moment::from_nanos(0));
        let (by_at, ttl) = (BTreeMap::new(), Duration::ZERO);
        let mut several = Self { by_at, until, renewed_until, ttl };
        for holder in holders {
            several.add(holder);
        }
        several
    }

    /// Adds a reader and widens the bounds.
    #[inline]
    fn add(&mut self, holder: LocalHolder<K>) {
        self.note(&holder);
        self.by_at.insert(holder.at, holder);
    }

    /// Widens the bounds for one reader.
    fn note(&mut self, holder: &LocalHolder<K>) {
        self.until = self.until.min(holder.until());
        self.renewed_until = self.renewed_until.max(holder.renewed_until());
        self.ttl = self.ttl.max(holder.request.term.ttl);
    }

    /// Computes the bounds again.
    fn refresh(&mut self) {
        *self = Self::of(std::mem::take(&mut self.by_at).into_values());
    }
}

impl<K: Kinds> Holders<K> {
    /// Returns all holders.
    pub fn iter(&self) -> impl Iterator<Item = &LocalHolder<K>> {
        let (one, several) = match self {
            Self::None => (None, None),
            Self::One(holder) => (Some(holder), None),
            Self::Several(several) => (None, Some(several.by_at.values())),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the holder with this number in its batch.
    #[inline]
    pub fn get(&self, at: i64) -> Option<&LocalHolder<K>> {
        match self {
            Self::One(holder) if holder.at == at => Some(holder),
            Self::None | Self::One(_) => None,
            Self::Several(several) => several.by_at.get(&at),
        }
    }

    /// Changes the holder with this number in its batch.
    pub(super) fn change<T>(
        &mut self,
        at: i64,
        change: impl FnOnce(&mut LocalHolder<K>) -> T,
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

    /// Adds a holder.
    #[inline(always)]
    pub(super) fn add(&mut self, holder: LocalHolder<K>) {
        match self {
            Self::None => *self = Self::One(holder),
            Self::One(_) | Self::Several(_) => self.add_one_more(holder),
        }
    }

    /// Adds a holder to others. Apart from `add`, so that only the frequent case is inlined.
    fn add_one_more(&mut self, holder: LocalHolder<K>) {
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

    /// Removes the holder with this number, and returns what `last` made of it.
    #[inline]
    pub(super) fn end<T>(&mut self, at: i64, last: impl FnOnce(&LocalHolder<K>) -> T) -> Option<T> {
        match self {
            // Nearly every hold ends here, and is dropped in place: it is large to move.
            Self::One(holder) if holder.at == at => {
                let out = last(holder);
                *self = Self::None;
                Some(out)
            }
            _ => self.remove(at).map(|holder| last(&holder)),
        }
    }

    /// Removes the holder with this number.
    pub(super) fn remove(&mut self, at: i64) -> Option<LocalHolder<K>> {
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

    /// Returns a moment before which nothing of any holder is due, apart from the end of the claim.
    #[inline]
    pub(super) fn until(&self) -> Moment {
        match self {
            Self::None => Moment::NEVER,
            Self::One(holder) => holder.until(),
            Self::Several(several) => several.until,
        }
    }

    /// Returns the moment beyond which a renewal moves no holder's deadline.
    #[inline]
    pub(super) fn renewed_until(&self) -> Moment {
        match self {
            Self::None => Moment::from_nanos(0),
            Self::One(holder) => holder.renewed_until(),
            Self::Several(several) => several.renewed_until,
        }
    }

    /// Returns the longest lease that a holder asked for.
    #[inline]
    pub(super) fn ttl(&self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::One(holder) => holder.request.term.ttl,
            Self::Several(several) => several.ttl,
        }
    }

    /// Returns a holder of which something is due, under a claim that ends at `claim`.
    pub(super) fn due(&mut self, claim: Moment, now: Moment) -> Option<&LocalHolder<K>> {
        if now < claim && now < self.until() {
            return None;
        }
        self.refresh();
        self.iter().find(|holder| now >= claim || now >= holder.until())
    }

    /// Computes the bounds over several readers again.
    pub(super) fn refresh(&mut self) {
        if let Self::Several(several) = self {
            several.refresh();
        }
    }

    /// Changes all holders.
    pub(super) fn all_mut(&mut self, change: impl FnMut(&mut LocalHolder<K>)) {
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
