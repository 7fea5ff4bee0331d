//! Collections that give back the memory a burst has needed.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// What is kept in any case: small maps are not worth the work.
const KEPT: usize = 64;

/// Gives memory back that a map needed when it was much larger. To be called after a removal: what it
/// costs is at most what was inserted and removed since the last time.
pub fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if is_wasted(map.capacity(), map.len()) {
        map.shrink_to(2 * map.len());
    }
}

/// The same for a queue.
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if is_wasted(queue.capacity(), queue.len()) {
        queue.shrink_to(2 * queue.len());
    }
}

fn is_wasted(capacity: usize, len: usize) -> bool {
    capacity > KEPT && len < capacity / 4
}
