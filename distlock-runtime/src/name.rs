//! What a lock is called: in errors and events ([`LockName`], [`Label`]), and in a store
//! ([`StoredName`]).

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::panic::Location;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::key::LockKey;

/// Which lock an error or a guard speaks of: its name and template for people, its key for code.
#[derive(Clone)]
pub struct LockName {
    label: Label,
    key: LockKey,
    stored: StoredName,
    /// How much of `stored` is the prefix, with its separator.
    prefix: usize,
    fence: Option<Arc<str>>,
    /// How long a client is advised to wait before it tries again.
    pub(crate) retry_after: Duration,
}

/// The default of the manager's `retry_after`.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a lock is called.
#[derive(Debug, Clone)]
pub(crate) enum Label {
    Given(Cow<'static, str>),
    /// The same for many locks.
    #[cfg_attr(not(any(feature = "axum", feature = "actix")), allow(dead_code))]
    Shared(Arc<str>),
    /// It was given no name: where it was asked for.
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
    pub(crate) fn new(
        label: Label,
        key: LockKey,
        stored: StoredName,
        prefix: usize,
        fence: Option<Arc<str>>,
    ) -> Self {
        Self { label, key, stored, prefix, fence, retry_after: RETRY_AFTER }
    }

    /// A lock of which only the name in the store is known; `None` if it is not one of ours.
    pub(crate) fn of_stored(prefix: &str, stored: &str) -> Option<Self> {
        let tagged = stored.strip_prefix(prefix)?.strip_prefix("lock:")?;
        let key = match tagged.strip_prefix(':') {
            Some(key) => key,
            None => tagged.strip_prefix('{')?.strip_suffix('}')?,
        };
        let label = Label::Given("wake-up".into());
        let stored = StoredName::new(stored.to_owned());
        Some(Self::new(label, LockKey::from(key), stored, prefix.len(), None))
    }

    /// The prefix in the store, with its separator.
    pub(crate) fn prefix(&self) -> &str {
        &self.stored[..self.prefix]
    }

    /// Where processes that wait for it stand in the store: the parts of that name.
    pub(crate) fn queue(&self) -> [&str; 3] {
        [self.prefix(), "queue", &self.stored[self.prefix + "lock".len()..]]
    }

    /// The counter of its fencing tokens, where it is not the manager's.
    pub(crate) fn fence(&self) -> Option<&Arc<str>> {
        self.fence.as_ref()
    }

    /// The name under which the store keeps it.
    pub(crate) fn stored(&self) -> &StoredName {
        &self.stored
    }

    /// The label in errors and events: `module::function` of an annotated function, what `name`
    /// says, or else the file in which the lock was asked for (for a layer or a middleware: file and
    /// line in which that was made).
    pub fn name(&self) -> &str {
        match &self.label {
            Label::Given(name) => name,
            Label::Shared(name) => name,
            Label::Caller(at) => at.file(),
        }
    }

    /// The key as it was written, placeholders and all, if it came from a template.
    pub fn template(&self) -> Option<&'static str> {
        self.key.template()
    }

    /// The key with its values: not for logs.
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

/// The name under which a store keeps a lock. It is looked up several times in every call, so it
/// is hashed once.
#[derive(Clone)]
pub(crate) struct StoredName {
    text: String,
    hash: u64,
}

/// For maps of stored names.
pub(crate) type BuildStoredHasher = BuildHasherDefault<StoredHasher>;

/// Passes on the hash that a stored name brings.
#[derive(Default)]
pub(crate) struct StoredHasher(u64);

impl StoredName {
    pub(crate) fn new(text: String) -> Self {
        // Keys come from outside: it must not be possible to guess which of them collide.
        static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { hash: STATE.hash_one(&*text), text }
    }

    /// Which of `parts` it belongs to, always the same one in this process.
    pub(crate) fn part(&self, parts: usize) -> usize {
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
