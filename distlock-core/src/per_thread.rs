//! State split by thread, so that threads do not take turns on one cache line.

use std::sync::atomic::{AtomicU8, Ordering};

const SHARDS: usize = 8;

/// One part for each thread, up to their number; more threads share parts.
#[derive(Default)]
pub struct PerThread<T> {
    shards: [Apart<T>; SHARDS],
}

/// On cache lines of its own (two, because they are fetched in pairs).
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> PerThread<T> {
    /// This thread's part, and its number.
    pub fn own(&self) -> (u8, &T) {
        let number = own_number();
        (number, self.part(number))
    }

    /// The part that `own` gave that number, on whatever thread.
    pub fn part(&self, number: u8) -> &T {
        &self.shards[usize::from(number) % SHARDS].0
    }

    pub fn parts(&self) -> impl Iterator<Item = &T> {
        self.shards.iter().map(|shard| &shard.0)
    }
}

fn own_number() -> u8 {
    static THREADS: AtomicU8 = AtomicU8::new(0);
    thread_local! {
        static OWN: u8 = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS as u8;
    }
    // A thread that is being torn down has lost its number.
    OWN.try_with(|own| *own).unwrap_or(0)
}
