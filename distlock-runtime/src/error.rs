//! What can go wrong with a lock, said so that the reader knows which lock and what to do.
//!
//! No text made here contains a key's values or a password: a key often carries an e-mail address
//! or an account number, and errors end up in logs. [`LockError::key`] hands the key to code that
//! asks for it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::jitter::seconds_around;
pub(crate) use crate::name::LockName;
use crate::name::RETRY_AFTER;

/// Why a lock was not taken, not kept, or not given back.
///
/// At most 32 bytes, `Send + Sync + 'static`. `Display` and `Debug` show the lock's name and its
/// key template, never the key itself.
#[non_exhaustive]
#[derive(Debug, Clone, thiserror::Error)]
pub enum LockError {
    /// Others hold the lock, and `wait` (if any) is over. The body did not run.
    #[error("{lock} is held elsewhere{}", Retry(*retry_after))]
    #[non_exhaustive]
    Busy {
        /// Which lock.
        lock: Box<LockName>,
        /// How long the present holder's lease still runs, if the store could tell.
        retry_after: Option<Duration>,
        /// What this is as an HTTP status: the manager's `busy_status`.
        status: u16,
    },

    /// The lease ended before the holder was done: it could not be renewed in time, an operator
    /// took it away, or `max_hold` was reached. A body, or whoever had the guard, has begun
    /// something under it; the body was not polled past the deadline.
    #[error("{lock} was lost: {reason}; {}", Aftermath(*stopped))]
    #[non_exhaustive]
    Lost {
        /// Which lock.
        lock: Box<LockName>,
        /// How it was lost.
        reason: &'static str,
        /// A body under it was stopped. Otherwise there was none (a guard was held), or it has
        /// returned.
        stopped: bool,
    },

    /// The store could not be asked, or refused. It is not known to be a "no": a lock that the
    /// store may have granted meanwhile is given back in the background.
    #[error("{}{kind}", Of(lock.as_deref()))]
    #[non_exhaustive]
    Backend {
        /// Which lock; `None` where the manager itself could not be connected.
        lock: Option<Box<LockName>>,
        /// What kind of failure.
        kind: BackendKind,
        /// The store's own words, without keys and passwords.
        source: Option<Arc<dyn Error + Send + Sync>>,
    },

    /// The key cannot be stored.
    #[error("{lock} has a key that cannot be used: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// Which lock.
        lock: Box<LockName>,
        /// What is wrong with it and how to mend it.
        reason: &'static str,
    },

    /// An option of the lock, the manager or its URL has a value that cannot work.
    #[error("{details}")]
    #[non_exhaustive]
    InvalidOption {
        /// Which option, what is wrong with it and how to mend it.
        details: Box<str>,
    },

    /// A call would wait for a lock that its own caller holds.
    #[error(
        "{lock} is already held by the caller of this call; it would wait for itself for ever (add `reentrant = true` to join the lock)"
    )]
    #[non_exhaustive]
    WouldDeadlock {
        /// Which lock.
        lock: Box<LockName>,
    },

    /// No process-wide manager: neither `distlock::init` was called nor `DISTLOCK_URL` set.
    #[error(
        "no lock manager: call distlock::init(LockManager::connect(url).await?) at start-up, set DISTLOCK_URL, or name one with `manager = …`"
    )]
    NotConfigured,

    /// The manager was closed.
    #[error("the lock manager was closed; no new lock is given")]
    Closed,
}

impl LockError {
    /// Others hold the lock.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// The lease was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// How long the present holder's lease still runs; only of `Busy`, and only if the store could
    /// tell. A holder that renews keeps it longer, one that is done frees it earlier; what to tell
    /// clients is [`http_retry_after`](Self::http_retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The key of the lock, with its values. Not part of any text this type prints.
    pub fn key(&self) -> Option<&str> {
        self.lock().map(LockName::key)
    }

    /// Which lock.
    pub(crate) fn lock(&self) -> Option<&LockName> {
        match self {
            Self::Busy { lock, .. }
            | Self::Lost { lock, .. }
            | Self::InvalidKey { lock, .. }
            | Self::WouldDeadlock { lock } => Some(lock),
            Self::Backend { lock, .. } => lock.as_deref(),
            Self::InvalidOption { .. } | Self::NotConfigured | Self::Closed => None,
        }
    }

    /// The HTTP status that says the same: `Busy` is 423 (or what the manager's builder was given as
    /// `busy_status`), `Backend` and `Closed` are 503, `InvalidKey` is 400, the others are 500.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Busy { status, .. } => *status,
            Self::Backend { .. } | Self::Closed => 503,
            Self::InvalidKey { .. } => 400,
            Self::Lost { .. }
            | Self::InvalidOption { .. }
            | Self::WouldDeadlock { .. }
            | Self::NotConfigured => 500,
        }
    }

    /// With it a body may have been `stopped`.
    pub(crate) fn lost(lock: &LockName, reason: &'static str, stopped: bool) -> Self {
        Self::Lost { lock: Box::new(lock.clone()), reason, stopped }
    }

    /// Which kind of failure this is, in a word for programs that does not change between versions.
    /// In an HTTP response it is the member `code` of the problem document, which tells a lock that
    /// is held from what else an application answers with the same status.
    ///
    /// | error | code |
    /// |---|---|
    /// | `Busy` | `lock-busy` |
    /// | `Lost` | `lock-lost` |
    /// | `Backend` | `lock-store-unavailable` |
    /// | `Closed` | `lock-closed` |
    /// | `InvalidKey` | `lock-invalid-key` |
    /// | `WouldDeadlock` | `lock-would-deadlock` |
    /// | `InvalidOption`, `NotConfigured` | `lock-misconfigured` |
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "lock-busy",
            Self::Lost { .. } => "lock-lost",
            Self::Backend { .. } => "lock-store-unavailable",
            Self::Closed => "lock-closed",
            Self::InvalidKey { .. } => "lock-invalid-key",
            Self::WouldDeadlock { .. } => "lock-would-deadlock",
            Self::InvalidOption { .. } | Self::NotConfigured => "lock-misconfigured",
        }
    }

    /// The `Retry-After` of an HTTP response, in whole seconds, at least one: of `Busy`, `Backend` and
    /// `Closed`, for the others there is none.
    ///
    /// It is the manager's `retry_after` (1 s), drawn anew for each call between half and one and a
    /// half of it, so that clients who were refused together do not come back together. The rest of
    /// the holder's lease ([`retry_after`](Self::retry_after)) would say too much: a lease is renewed
    /// while its holder works, and freed when he is done.
    pub fn http_retry_after(&self) -> Option<u64> {
        let asked = matches!(self, Self::Busy { .. } | Self::Backend { .. } | Self::Closed);
        let after = self.lock().map_or(RETRY_AFTER, |lock| lock.retry_after);
        asked.then(|| seconds_around(after))
    }

    /// The same with this `retry_after`.
    pub(crate) fn advising(mut self, retry_after: Duration) -> Self {
        match &mut self {
            Self::Busy { lock, .. } | Self::Backend { lock: Some(lock), .. } => {
                lock.retry_after = retry_after;
            }
            _ => {}
        }
        self
    }

    pub(crate) fn invalid_option(details: impl Into<Box<str>>) -> Self {
        Self::InvalidOption { details: details.into() }
    }
}

/// What kind of failure a store answered with.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    /// No connection: refused, reset, or the name did not resolve.
    Unreachable,
    /// No answer within the manager's `command_timeout` or `connect_timeout`.
    TimedOut,
    /// Authentication failed, or an ACL forbids a command, a key or a channel.
    Refused,
    /// The store is out of memory and takes no new keys.
    OutOfMemory,
    /// The node takes no writes: it is a replica now.
    ReadOnly,
    /// Anything else; the source says what.
    Other,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the lock store cannot be reached",
            Self::TimedOut => "the lock store did not answer in time",
            Self::Refused => "the lock store refused access (check user, password and ACL)",
            Self::OutOfMemory => "the lock store is out of memory and takes no new keys",
            Self::ReadOnly => "the lock store is read-only (a replica?)",
            Self::Other => "the lock store answered with an error",
        })
    }
}

/// What a loss means for what was done under the lock.
struct Aftermath(bool);

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            true => "the body was stopped, and what it had begun must be checked",
            false => "what was done under it must be checked",
        })
    }
}

struct Retry(Option<Duration>);

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Tenths of a second: a lease's rest is an estimate, more digits would pretend otherwise.
            Some(rest) => write!(f, " (its lease runs for another {:.1} s)", rest.as_secs_f64()),
            None => Ok(()),
        }
    }
}

struct Of<'a>(Option<&'a LockName>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(lock) => write!(f, "{lock}: "),
            None => Ok(()),
        }
    }
}

const _: () = assert!(size_of::<LockError>() <= 32);
