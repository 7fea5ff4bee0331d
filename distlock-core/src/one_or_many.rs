//! A list that needs no allocation for one value. Nearly every request is for one lock, and must not pay for a list.

use std::ops::{Deref, DerefMut};

/// One value without an allocation, or a list of any length.
#[derive(Debug, Clone)]
pub enum OneOrMany<T> {
    /// Exactly one value.
    One(T),
    /// Any number of values.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Returns an empty list.
    pub fn none() -> Self {
        Self::Many(Vec::new())
    }

    /// Inserts `value` at `index`, and moves the values after it.
    ///
    /// # Panics
    ///
    /// If `index` is larger than the number of values.
    pub fn insert(&mut self, index: usize, value: T) {
        match std::mem::replace(self, Self::none()) {
            Self::Many(values) if values.is_empty() => *self = Self::One(value),
            held => {
                let mut values: Vec<T> = held.into_iter().collect();
                values.insert(index, value);
                *self = Self::Many(values);
            }
        }
    }

    /// Appends `value`.
    pub fn push(&mut self, value: T) {
        self.insert(self.len(), value);
    }

    /// Drops all values but the first `len`.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        match self {
            Self::One(_) if len == 0 => *self = Self::none(),
            Self::One(_) => {}
            Self::Many(values) => values.truncate(len),
        }
    }

    /// Maps every value, or returns the first error.
    #[inline]
    pub fn try_map<U, E>(self, map: impl FnMut(T) -> Result<U, E>) -> Result<OneOrMany<U>, E> {
        let mut map = map;
        match self {
            Self::One(value) => map(value).map(OneOrMany::One),
            Self::Many(values) => {
                values.into_iter().map(map).collect::<Result<_, _>>().map(OneOrMany::Many)
            }
        }
    }
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

impl<T> DerefMut for OneOrMany<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(value) => std::slice::from_mut(value),
            Self::Many(values) => values,
        }
    }
}

impl<T> IntoIterator for OneOrMany<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::One(value) => (Some(value), Vec::new()),
            Self::Many(values) => (None, values),
        };
        one.into_iter().chain(many)
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut few = Self::none();
        for value in values {
            few.push(value);
        }
        few
    }
}
