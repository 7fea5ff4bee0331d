//! Collections that take no more memory than they need: [`OneOrMany`] does not allocate for one value, and [`shrink`] and
//! [`shrink_queue`] return memory after a burst.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};

/// One value without an allocation, or a list of any length. Nearly every request is for one lock, and must not pay for a
/// list.
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

/// Collections with this capacity or less are never shrunk: they are not worth the work.
const KEPT: usize = 64;

/// Returns memory that a map needed when it was much larger. Call this after a removal. The entries that were inserted
/// and removed since the last time pay for the work.
pub fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_wasted(map.capacity(), map.len()) {
        map.shrink_to(2 * map.len());
    }
}

/// Returns memory that a queue needed when it was much longer. See [`shrink`].
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if is_wasted(queue.capacity(), queue.len()) {
        queue.shrink_to(2 * queue.len());
    }
}

fn is_wasted(capacity: usize, len: usize) -> bool {
    capacity > KEPT && len < capacity / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_no_list_until_another_comes() {
        let mut values = OneOrMany::none();
        values.push('b');
        assert!(matches!(values, OneOrMany::One('b')));
        values.insert(0, 'a');
        values.push('c');
        assert_eq!(*values, ['a', 'b', 'c']);
        values.truncate(1);
        assert_eq!(values.into_iter().collect::<String>(), "a");
        let mut one = OneOrMany::One('a');
        one.truncate(1);
        assert_eq!(one.len(), 1);
        one.truncate(0);
        assert!(one.is_empty());
    }

    #[test]
    fn memory_is_returned_once_three_quarters_are_unused() {
        let mut map: HashMap<u32, u32> = (0..1000).map(|n| (n, n)).collect();
        let mut queue: VecDeque<u32> = (0..1000).collect();
        map.retain(|n, _| *n < 500);
        queue.truncate(500);
        let full = (map.capacity(), queue.capacity());
        shrink(&mut map);
        shrink_queue(&mut queue);
        assert_eq!((map.capacity(), queue.capacity()), full, "half of it is used");
        map.retain(|n, _| *n < 10);
        queue.truncate(10);
        shrink(&mut map);
        shrink_queue(&mut queue);
        assert!(map.capacity() <= KEPT && queue.capacity() <= KEPT);
        assert_eq!((map.len(), queue.len()), (10, 10));
    }
}
