//! A list worked off by every core.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) fn in_parallel<T: Sync>(list: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(item) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    act(item);
                }
            });
        }
    });
}
