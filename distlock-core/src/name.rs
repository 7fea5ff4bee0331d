//! What a lock is called: in errors and events ([`LockName`], [`Label`]), and in a store
//! ([`StoredName`]).

mod stored;

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub use stored::{BuildStoredHasher, StoredName};

use crate::key::LockKey;

/// Which lock a [`LockError`](crate::LockError) is about.
///
/// `Display` and `Debug` show the name and the template, which are the same for all values and may be
/// logged, and never the key.
#[derive(Clone)]
pub struct LockName {
    label: Label,
    key: LockKey,
    stored: StoredName,
    /// How much of `stored` is the prefix, with its separator.
    prefix: usize,
    fence: Option<Arc<str>>,
    /// It is kept here, in the box, because a `LockError` may take no more than 32 bytes.
    pub advice: Advice,
}

/// How to answer a client that is refused a lock: settings of the manager or of the layer. An error carries
/// them to the code that turns it into a response.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// How long the client should wait before it tries again.
    pub retry_after: Duration,
    /// The status of the response if others hold the lock.
    pub busy_status: u16,
}

impl Advice {
    pub const DEFAULT: Self = Self { retry_after: Duration::from_secs(1), busy_status: 423 };
}

/// What a lock is called.
#[derive(Debug, Clone)]
pub enum Label {
    Given(Cow<'static, str>),
    /// The same for many locks.
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

    /// A lock of which only the name in the store is known; `None` if it is not one of ours.
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

    /// The same for a name whose prefix is not known. A prefix contains neither a brace nor `lock::`, so the
    /// key begins at the first place where one can begin.
    pub fn of_message(stored: &str) -> Option<Self> {
        let mut places = stored.match_indices("lock:").map(|(at, _)| &stored[..at]);
        places.find_map(|prefix| Self::of_stored(prefix, stored))
    }

    /// A lock that was asked for without a key that could be stored.
    pub fn unstored(label: Label) -> Self {
        Self::new(label, LockKey::from(""), StoredName::new(String::new()), 0, None)
    }

    /// The prefix in the store, with its separator.
    #[doc(hidden)]
    pub fn prefix(&self) -> &str {
        &self.stored[..self.prefix]
    }

    /// Where processes that wait for it stand in the store: the parts of that name.
    #[doc(hidden)]
    pub fn queue(&self) -> [&str; 3] {
        [self.prefix(), "queue", &self.stored[self.prefix + "lock".len()..]]
    }

    /// The counter of its fencing tokens, where it is not the manager's.
    pub fn fence(&self) -> Option<&Arc<str>> {
        self.fence.as_ref()
    }

    /// The name under which the store keeps it.
    #[doc(hidden)]
    pub fn stored(&self) -> &StoredName {
        &self.stored
    }

    /// The label in errors and events.
    ///
    /// It is what the option `name` says. Without it: `module::function` of a function with the attribute;
    /// of a layer or a middleware the file and line where it was made; else the file where the lock was
    /// asked for.
    pub fn name(&self) -> &str {
        match &self.label {
            Label::Given(name) => name,
            Label::Shared(name) => name,
            Label::Caller(at) => at.file(),
        }
    }

    /// The template of the key, with its placeholders: `order:{order_id}`. `None` if the key was made from
    /// a string.
    ///
    /// It is the same for all values, and may be a label of a metric; see [`key`](Self::key) for the values.
    pub fn template(&self) -> Option<&'static str> {
        self.key.template()
    }

    /// The key, with its values, as it was asked for: without the manager's prefix.
    ///
    /// Keys carry account numbers and e-mail addresses: keep them out of logs and metrics. The answer to the
    /// client that sent such a value may contain it.
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
