//! The name of a lock in a store.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::LazyLock;

/// The name of a lock in a store. Every call looks it up several times, so it is hashed once.
#[derive(Clone)]
pub struct StoredName {
    text: String,
    hash: u64,
}

/// The hasher of maps whose keys are stored names.
pub type BuildStoredHasher = BuildHasherDefault<StoredHasher>;

/// A hasher that returns the hash that a stored name contains.
#[derive(Default)]
pub struct StoredHasher(u64);

impl StoredName {
    /// Hashes a name.
    #[inline(always)] // Each call for a lock makes a name, and all of the hashing happens here.
    pub fn new(text: String) -> Self {
        // Keys come from outside, so it must not be possible to guess which of them collide.
        static SECRET: LazyLock<Secret> = LazyLock::new(Secret::new);
        Self { hash: SECRET.hash(text.as_bytes()), text }
    }

    /// Returns which of `parts` the name belongs to. It is always the same one in this process.
    #[inline]
    pub fn part(&self, parts: usize) -> usize {
        // Maps choose their buckets by the other bits.
        (self.hash >> 32) as usize % parts
    }
}

/// The secret numbers of the hash function. The words of a name are the coefficients of a polynomial, whose value at a
/// secret point is the hash. Any two names of n words collide for at most n of the 2⁶¹ points. A polynomial takes a
/// third of the time of `SipHash`, and every lock has to wait for it.
struct Secret {
    /// Where the polynomial is evaluated, modulo [`PRIME`].
    point: u64,
    /// Spreads the result over all 64 bits.
    factor: u64,
}

/// A prime for which a remainder is found without a division.
const PRIME: u64 = (1 << 61) - 1;
/// The bytes of a word. Every word is below the prime.
const WORD: usize = 7;

impl Secret {
    #[inline]
    fn new() -> Self {
        let drawn = RandomState::new();
        Self { point: drawn.hash_one(0) % PRIME, factor: drawn.hash_one(1) | 1 }
    }

    #[inline]
    fn hash(&self, text: &[u8]) -> u64 {
        let words = text.chunks_exact(WORD);
        let mut last = [0; 8];
        let rest = words.remainder();
        last[..rest.len()].copy_from_slice(rest);
        // Different names differ in a word or in their length.
        let mut hash = text.len() as u64;
        for word in words {
            let &[a, b, c, d, e, f, g] = word else { continue };
            hash = self.next(hash, u64::from_le_bytes([a, b, c, d, e, f, g, 0]));
        }
        hash = self.next(hash, u64::from_le_bytes(last));
        // Maps use the upper bits and the lower ones.
        let spread = hash.wrapping_mul(self.factor);
        spread ^ spread >> 32
    }

    #[inline]
    fn next(&self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash) * u128::from(self.point) + u128::from(word);
        let sum = (product as u64 & PRIME) + (product >> 61) as u64;
        if sum >= PRIME { sum - PRIME } else { sum }
    }
}

impl Deref for StoredName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for StoredName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for StoredName {}

impl Hash for StoredName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for StoredName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredName")
    }
}

impl Hasher for StoredHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only stored names are hashed with this");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
