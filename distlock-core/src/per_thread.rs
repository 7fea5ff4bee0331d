//! State that is split by thread, so that threads do not compete for one cache line.

use std::sync::atomic::{AtomicU8, Ordering};

const SHARDS: usize = 8;

/// Eight parts of a state. Each thread has its own part; with more than eight threads, some threads share a part.
#[derive(Default)]
pub struct PerThread<T> {
    shards: [Apart<T>; SHARDS],
}

/// A value on cache lines of its own. It takes two lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> PerThread<T> {
    /// Returns the number of this thread's part, and the part.
    pub fn own(&self) -> (u8, &T) {
        let number = own_number();
        (number, self.part(number))
    }

    /// Returns the part of a number that [`own`](Self::own) has returned on any thread.
    pub fn part(&self, number: u8) -> &T {
        &self.shards[usize::from(number) % SHARDS].0
    }

    /// Returns all parts.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    #[test]
    fn each_thread_keeps_its_part_and_all_parts_are_found() {
        let state: PerThread<Mutex<usize>> = PerThread::default();
        let add = || {
            let (first, part) = state.own();
            *part.lock().expect("no panic") += 1;
            let (second, _) = state.own();
            assert_eq!(first, second);
            assert!(std::ptr::eq(part, state.part(first)));
        };
        thread::scope(|scope| (0..3 * SHARDS).for_each(|_| drop(scope.spawn(add))));
        let counts = state.parts().map(|part| *part.lock().expect("no panic"));
        assert_eq!(counts.sum::<usize>(), 3 * SHARDS);
    }
}
