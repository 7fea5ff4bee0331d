//! What a network does to commands and answers, drawn from a seed.

use std::time::Duration;

/// Delivers commands more than once, loses answers and delays them. The same seed does the same to
/// the same sequence of commands.
#[derive(Debug, Clone)]
pub struct Script {
    state: u64,
    most_deliveries: u32,
    lost_percent: u32,
    longest_delay: Duration,
}

/// What becomes of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// How often the store carries it out, at least once. The last answer counts.
    pub(crate) deliveries: u32,
    /// The answer does not come through.
    pub(crate) lost: bool,
    /// The answer comes this much later.
    pub(crate) delay: Duration,
}

impl Fate {
    pub(crate) const FAITHFUL: Self = Self { deliveries: 1, lost: false, delay: Duration::ZERO };
}

impl Script {
    /// Does nothing yet but draw from this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed, most_deliveries: 1, lost_percent: 0, longest_delay: Duration::ZERO }
    }

    /// Every command is carried out once to `most` times.
    pub fn deliveries(mut self, most: u32) -> Self {
        self.most_deliveries = most.max(1);
        self
    }

    /// So many of a hundred answers are lost; their command was carried out.
    pub fn lost(mut self, percent: u32) -> Self {
        self.lost_percent = percent;
        self
    }

    /// Answers are late by up to this time.
    pub fn delays(mut self, longest: Duration) -> Self {
        self.longest_delay = longest;
        self
    }

    pub(crate) fn next(&mut self) -> Fate {
        let deliveries = 1 + self.draw(u64::from(self.most_deliveries));
        let lost = self.draw(100) < u64::from(self.lost_percent);
        let longest = u64::try_from(self.longest_delay.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(self.draw(longest.max(1)));
        Fate { deliveries: u32::try_from(deliveries).unwrap_or(1), lost, delay }
    }

    /// A number below `bound`: splitmix64, whose bias does not matter here.
    fn draw(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_does_the_same_and_another_does_not() {
        let fates = |seed| {
            let script = Script::seeded(seed).deliveries(3).lost(30);
            let mut script = script.delays(Duration::from_millis(5));
            (0..100).map(|_| script.next()).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
        for deliveries in 1..=3 {
            assert!(fates(1).iter().any(|fate| fate.deliveries == deliveries));
        }
        let lost = fates(1).iter().filter(|fate| fate.lost).count();
        assert!((10..60).contains(&lost), "{lost}");
        assert!(fates(1).iter().all(|fate| fate.delay < Duration::from_millis(5)));
    }

    #[test]
    fn without_settings_nothing_happens() {
        let mut script = Script::seeded(7);
        assert!((0..100).all(|_| script.next() == Fate::FAITHFUL));
    }
}
