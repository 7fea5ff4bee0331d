//! The names of a lock: in errors and events ([`LockName`], [`Label`]), and in a store ([`StoredName`]).
//!
//! `distlock` re-exports [`LockName`]. Its hidden methods are for the other crates of distlock.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::panic::Location;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::key::LockKey;

/// The lock that a `LockError` is about.
///
/// `Display` and `Debug` show the name and the template. These are the same for all values, and may be logged. They never
/// show the key.
#[derive(Clone)]
pub struct LockName {
    label: Label,
    key: LockKey,
    stored: StoredName,
    /// The length of the prefix in `stored`, with its separator.
    prefix: usize,
    fence: Option<Arc<str>>,
    /// How to answer a client that is refused this lock. It is kept here, behind the pointer of the error, because a
    /// `LockError` may take no more than 32 bytes.
    #[doc(hidden)]
    pub advice: Advice,
}

/// How to answer a client that is refused a lock. These are settings of the manager or of the layer. An error carries
/// them to the code that turns it into a response.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// How long the client should wait before it tries again.
    pub retry_after: Duration,
    /// The status of the response if others hold the lock.
    pub busy_status: u16,
}

impl Advice {
    /// The advice without any settings: wait one second; status 423 (Locked).
    pub const DEFAULT: Self = Self { retry_after: Duration::from_secs(1), busy_status: 423 };
}

/// The label of a lock in errors and events.
#[derive(Debug, Clone)]
pub enum Label {
    /// A name that was given to this lock.
    Given(Cow<'static, str>),
    /// A name that many locks share.
    Shared(Arc<str>),
    /// The place in the code that asked for a lock without a name.
    Caller(&'static Location<'static>),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(name) => f.write_str(name),
            Self::Shared(name) => f.write_str(name),
            Self::Caller(at) => write!(f, "at {}:{}", at.file(), at.line()),
        }
    }
}

impl LockName {
    /// Makes the name of a lock. `prefix` is the length of the prefix in `stored`, with its separator. `fence` is the
    /// counter of its fencing tokens if it is not the manager's.
    #[doc(hidden)]
    #[inline]
    pub fn new(
        label: Label,
        key: LockKey,
        stored: StoredName,
        prefix: usize,
        fence: Option<Arc<str>>,
    ) -> Self {
        Self { label, key, stored, prefix, fence, advice: Advice::DEFAULT }
    }

    /// Makes the name of a lock from its name in the store, under a known prefix. Returns `None` if no lock of distlock
    /// has such a name.
    #[doc(hidden)]
    pub fn of_stored(prefix: &str, stored: &str) -> Option<Self> {
        let tagged = stored.strip_prefix(prefix)?.strip_prefix("lock:")?;
        let key = match tagged.strip_prefix(':') {
            Some(key) => key,
            None => tagged.strip_prefix('{')?.strip_suffix('}')?,
        };
        let label = Label::Given("wake-up".into());
        let stored = StoredName::new(stored.to_owned());
        Some(Self::new(label, LockKey::from(key), stored, prefix.len(), None))
    }

    /// Makes the name of a lock from its name in the store, under an unknown prefix. A prefix contains neither a brace
    /// nor `lock::`, so the key begins at the first place where one can begin.
    #[doc(hidden)]
    pub fn of_message(stored: &str) -> Option<Self> {
        let mut places = stored.match_indices("lock:").map(|(at, _)| &stored[..at]);
        places.find_map(|prefix| Self::of_stored(prefix, stored))
    }

    /// Makes the name of a lock whose key cannot be stored.
    #[doc(hidden)]
    pub fn unstored(label: Label) -> Self {
        Self::new(label, LockKey::from(""), StoredName::new(String::new()), 0, None)
    }

    /// Returns the prefix in the store, with its separator.
    #[doc(hidden)]
    pub fn prefix(&self) -> &str {
        &self.stored[..self.prefix]
    }

    /// Returns the three parts of the name of its queue in the store.
    #[doc(hidden)]
    pub fn queue(&self) -> [&str; 3] {
        [self.prefix(), "queue", &self.stored[self.prefix + "lock".len()..]]
    }

    /// Returns the counter of its fencing tokens, or `None` if it is the manager's.
    #[doc(hidden)]
    pub fn fence(&self) -> Option<&Arc<str>> {
        self.fence.as_ref()
    }

    /// Returns its name in the store.
    #[doc(hidden)]
    pub fn stored(&self) -> &StoredName {
        &self.stored
    }

    /// Returns the label of the lock in errors and events.
    ///
    /// This is the value of the option `name`. The default depends on who asked for the lock:
    ///
    /// - a function with the attribute: `module::function`
    /// - a layer or a middleware: the file and line where it was made
    /// - other code: the file of the call
    pub fn name(&self) -> &str {
        match &self.label {
            Label::Given(name) => name,
            Label::Shared(name) => name,
            Label::Caller(at) => at.file(),
        }
    }

    /// Returns the template of the key, with its placeholders (`order:{order_id}`), or `None` if the key was made from a
    /// string.
    ///
    /// It is the same for all values, and may be a label of a metric. See [`key`](Self::key) for the values.
    pub fn template(&self) -> Option<&'static str> {
        self.key.template()
    }

    /// Returns the key with its values, without the manager's prefix.
    ///
    /// Keys carry account numbers and e-mail addresses, so keep them out of logs and metrics. A response to the client
    /// that sent such a value may contain it.
    pub fn key(&self) -> &str {
        self.key.as_str()
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lock ")?;
        if let Some(template) = self.template() {
            let of = if matches!(self.label, Label::Caller(_)) { "" } else { "of " };
            write!(f, "\"{template}\" {of}")?;
        }
        self.label.fmt(f)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockName")
            .field("name", &format_args!("{}", self.label))
            .field("template", &self.template())
            .finish_non_exhaustive()
    }
}

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
