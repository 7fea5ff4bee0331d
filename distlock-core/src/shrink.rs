//! Collections that return memory after a burst.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

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
