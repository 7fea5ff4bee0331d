//! The pauses between attempts: back-off, and random durations, so that processes do not act in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Exponential back-off with jitter.
#[derive(Debug, Clone)]
pub struct BackOff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl BackOff {
    /// Returns a back-off that begins with about `first` and doubles up to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Begins again with the first pause. Call this after a successful attempt.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns the pause before the next attempt, and doubles the one after it. The pause is drawn between half of its
    /// length and the whole, so that processes do not reconnect in step.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        jittered(pause)
    }
}

/// Returns a random duration between half of `pause` and the whole.
pub fn jittered(pause: Duration) -> Duration {
    // Each process draws its keys at random, and each call uses another key.
    let random = RandomState::new().hash_one(0) as u32;
    pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Returns a random number of whole seconds between half of `pause` and one and a half times `pause`, but at least one.
/// It is for clients that count in seconds. For a pause of 1 s the result is one or two.
pub fn seconds_around(pause: Duration) -> u64 {
    // A setting of more than a day is a mistake, but no reason to overflow.
    let millis = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).min(86_400_000);
    let first = millis.div_ceil(2000).max(1);
    let last = (millis * 3).div_ceil(2000).max(first);
    first + RandomState::new().hash_one(0) % (last - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: WL1.
    #[test]
    fn seconds_are_spread_around_what_was_asked_for() {
        for (millis, first, last) in [(0, 1, 1), (200, 1, 1), (1000, 1, 2), (10_000, 5, 15)] {
            let pause = Duration::from_millis(millis);
            let drawn: Vec<u64> = (0..2_000).map(|_| seconds_around(pause)).collect();
            assert_eq!(drawn.iter().min(), Some(&first), "{millis} ms");
            assert_eq!(drawn.iter().max(), Some(&last), "{millis} ms");
        }
        assert!(seconds_around(Duration::MAX) <= 129_600);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again() {
        let ms = Duration::from_millis;
        let mut back_off = BackOff::new(ms(50), ms(150));
        for whole in [50, 100, 150, 150] {
            let pause = back_off.pause();
            assert!((ms(whole) / 2..=ms(whole)).contains(&pause), "{pause:?} of {whole} ms");
        }
        back_off.reset();
        assert!(back_off.pause() <= ms(50));
    }
}
