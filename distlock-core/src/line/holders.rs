//! Those of this process that hold the lock by one claim.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Holder, Kinds};
use crate::clock::Moment;

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
