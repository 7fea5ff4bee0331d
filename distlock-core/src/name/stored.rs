//! The name of a lock in a store.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::LazyLock;

/// The name under which a store keeps a lock. It is looked up several times in every call, so it
/// is hashed once.
#[derive(Clone)]
pub struct StoredName {
    text: String,
    hash: u64,
}

/// For maps of stored names.
pub type BuildStoredHasher = BuildHasherDefault<StoredHasher>;

/// Passes on the hash that a stored name brings.
#[derive(Default)]
pub struct StoredHasher(u64);

impl StoredName {
    /// Of this text.
    #[inline(always)] // Each call for a lock makes one, and it is all that hashing it takes.
    pub fn new(text: String) -> Self {
        // Keys come from outside: it must not be possible to guess which of them collide.
        static SECRET: LazyLock<Secret> = LazyLock::new(Secret::new);
        Self { hash: SECRET.hash(text.as_bytes()), text }
    }

    /// Which of `parts` it belongs to, always the same one in this process.
    #[inline]
    pub fn part(&self, parts: usize) -> usize {
        // Maps sort by the other bits.
        (self.hash >> 32) as usize % parts
    }
}

/// What names are hashed with: two of them collide for a point in at most (their length in words) of 2⁶¹, whatever
/// they are. A polynomial takes a third of the time of `SipHash`, which every lock would have to wait for.
struct Secret {
    /// Where the polynomial is evaluated whose coefficients the name's words are, modulo [`PRIME`].
    point: u64,
    factor: u64,
}

/// A remainder is found without a division.
const PRIME: u64 = (1 << 61) - 1;
/// Bytes of a word: it is below the prime.
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
        // No two names have the same words and the same length.
        let mut hash = text.len() as u64;
        for word in words {
            let &[a, b, c, d, e, f, g] = word else { continue };
            hash = self.next(hash, u64::from_le_bytes([a, b, c, d, e, f, g, 0]));
        }
        hash = self.next(hash, u64::from_le_bytes(last));
        // The maps look at the upper bits and at the lower ones.
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
