//! Fingerprints of states: 64 bits of each, and the set of those that were reached.
//!
//! Two states out of `n` that have the same bits would be taken for one with a probability of about
//! `n² / 2⁶⁵`, for 10⁸ of them less than one in 3,000.

use std::hash::{Hash, Hasher};

/// The bits of a value.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = Mixer::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// One word after the other. Each step is a bijection of what came before it, so that a difference is
/// never lost again for want of another one.
#[derive(Debug, Default)]
pub(crate) struct Mixer(u64);

impl Mixer {
    fn mix(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(ODD);
        self.0 = mixed ^ (mixed >> 32);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.mix(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        let mut bits = self.0;
        for odd in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb_u64] {
            bits = (bits ^ (bits >> 30)).wrapping_mul(odd);
        }
        bits ^ (bits >> 31)
    }
}

/// Fingerprints, eight bytes each in a table that is at most three quarters full.
#[derive(Debug)]
pub(crate) struct Reached {
    /// A power of two of them; 0 is none.
    slots: Vec<u64>,
    count: usize,
}

impl Reached {
    pub(crate) fn new() -> Self {
        Self { slots: vec![0; 1 << 10], count: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// False if it was there.
    pub(crate) fn insert(&mut self, fingerprint: u64) -> bool {
        if self.count >= self.slots.len() / 4 * 3 {
            let larger = vec![0; self.slots.len() * 2];
            let before = std::mem::replace(&mut self.slots, larger);
            before.into_iter().filter(|slot| *slot != 0).for_each(|slot| {
                self.put(slot);
            });
        }
        let new = self.put(fingerprint.max(1));
        self.count += usize::from(new);
        new
    }

    fn put(&mut self, fingerprint: u64) -> bool {
        let last = self.slots.len() - 1;
        let mut at = fingerprint as usize & last;
        while self.slots[at] != 0 {
            if self.slots[at] == fingerprint {
                return false;
            }
            at = (at + 1) & last;
        }
        self.slots[at] = fingerprint;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_there() {
        let mut reached = Reached::new();
        for number in 0..10_000_u64 {
            assert!(reached.insert(fingerprint(&number)), "{number} is new");
        }
        for number in 0..10_000_u64 {
            assert!(!reached.insert(fingerprint(&number)), "{number} is there");
        }
        assert_eq!(reached.count(), 10_000);
    }

    #[test]
    fn the_order_and_the_bounds_of_lists_count() {
        let all = [vec![vec![1_u32], vec![2]], vec![vec![2], vec![1]], vec![vec![1, 2], vec![]]];
        let [one, two, three] = all.map(|lists| fingerprint(&lists));
        assert!(one != two && two != three && one != three);
    }
}
