//! The names of a lock: in errors and events ([`LockName`], [`Label`]), and in a store ([`StoredName`]).
//!
//! `distlock` re-exports [`LockName`]. Its hidden methods are for the other crates of distlock.

mod stored;

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub use stored::{BuildStoredHasher, StoredName};

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
