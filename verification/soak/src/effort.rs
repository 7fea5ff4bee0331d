//! How long a program goes on, and dice that fall the same way every time.

use std::time::{Duration, Instant};

/// How long a program goes on.
#[derive(Debug, Clone, Copy)]
pub enum Effort {
    /// So many times.
    Times(u64),
    /// For so long.
    Time(Duration),
}

impl Effort {
    pub(crate) fn goes_on(self, done: u64, start: Instant) -> bool {
        match self {
            Self::Times(times) => done < times,
            Self::Time(time) => start.elapsed() < time,
        }
    }
}

/// Random enough for this, and the same in every run: splitmix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
