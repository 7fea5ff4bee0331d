//! The claims by which a batch owns the lock: one, or of permits several.

use super::{Claim, Kinds};
use crate::clock::Moment;

/// At least one claim. Nearly every batch has one, which needs no list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claims<K: Kinds> {
    pub(super) first: Claim<K>,
    rest: Vec<Claim<K>>,
}

impl<K: Kinds> Claims<K> {
    pub(super) fn one(claim: Claim<K>) -> Self {
        Self { first: claim, rest: Vec::new() }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Claim<K>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    #[cfg(feature = "model")]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Claim<K>> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, is: impl Fn(&Claim<K>) -> bool) -> Option<&mut Claim<K>> {
        if is(&self.first) {
            return Some(&mut self.first);
        }
        self.rest.iter_mut().find(|claim| is(claim))
    }

    /// When the first of them is to be looked at.
    #[inline]
    pub(super) fn due(&self, crowded: bool) -> Moment {
        let first = self.first.due(crowded);
        self.rest.iter().map(|claim| claim.due(crowded)).fold(first, Moment::min)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// The oldest.
    pub fn first(&self) -> &Claim<K> {
        &self.first
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Claim<K>> {
        match index.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.rest.get_mut(index),
        }
    }

    #[inline]
    pub(super) fn index_of(&self, is: impl Fn(&Claim<K>) -> bool) -> Option<usize> {
        self.iter().position(is)
    }

    pub(super) fn push(&mut self, claim: Claim<K>) {
        self.rest.push(claim);
    }

    /// Takes one of several out; none is taken from a batch that has no other.
    pub(super) fn take(&mut self, index: usize) -> Option<Claim<K>> {
        if self.rest.is_empty() {
            return None;
        }
        match index.checked_sub(1) {
            None => Some(std::mem::replace(&mut self.first, self.rest.remove(0))),
            Some(index) => (index < self.rest.len()).then(|| self.rest.remove(index)),
        }
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Claim<K>> {
        std::iter::once(self.first).chain(self.rest)
    }
}
