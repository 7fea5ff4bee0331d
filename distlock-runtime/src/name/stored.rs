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
pub(crate) type BuildStoredHasher = BuildHasherDefault<StoredHasher>;

/// Passes on the hash that a stored name brings.
#[derive(Default)]
pub(crate) struct StoredHasher(u64);

impl StoredName {
    /// Of this text.
    pub fn new(text: String) -> Self {
        // Keys come from outside: it must not be possible to guess which of them collide.
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = STATE.build_hasher();
        hasher.write(text.as_bytes());
        Self { hash: hasher.finish(), text }
    }

    /// Which of `parts` it belongs to, always the same one in this process.
    pub fn part(&self, parts: usize) -> usize {
        // Maps sort by the other bits.
        (self.hash >> 32) as usize % parts
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
