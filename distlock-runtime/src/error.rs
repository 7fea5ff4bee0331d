//! The errors of locks. Each text names the lock and the fix.
//!
//! No text contains a key's values or a password, because a key often carries an e-mail address or an account number,
//! and errors end up in logs. [`LockError::key`] returns the key to code that asks for it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::back_off::seconds_around;
use distlock_core::fork_guard::Forked;
use distlock_core::limit::Limit;
use distlock_core::name::{Advice, LockName};
pub use distlock_core::store::BackendKind;
use distlock_core::store::Fault;

/// The reason why a lock was not taken, not kept, or not released.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::in_memory();
/// let first = locks.lock("order:42").acquire().await?;
///
/// let answer = match locks.lock("order:42").acquire().await {
///     Ok(_guard) => "paid",
///     Err(LockError::Busy { .. }) => "another request is paying this order",
///     Err(LockError::Backend { .. }) => "the lock store is down, try again later",
///     Err(error) => return Err(error),
/// };
/// assert_eq!(answer, "another request is paying this order");
/// # drop(first);
/// # Ok(())
/// # }
/// ```
///
/// At most 32 bytes, `Clone` and `Send + Sync + 'static`: it fits into `anyhow`, `thiserror` and error
/// types of your own. The enum and most of its variants are `#[non_exhaustive]`: match with `..` and a
/// last arm for the rest.
///
/// # Privacy
///
/// `Display` and `Debug` show the lock's name and the template of its key, never the values in the key
/// and never a password, so an error may be logged. Code that needs the key asks for
/// [`key`](Self::key).
///
/// An error of the store names its host and port and the cause. `Debug` is the same text as `Display`,
/// since it is what `unwrap` and a `main` that returns the error print:
///
/// ```
/// # use distlock_runtime::LockManager;
/// let mistake = LockManager::connect_lazy("http://localhost").unwrap_err();
/// assert_eq!(format!("{mistake:?}"), mistake.to_string());
/// ```
#[non_exhaustive]
#[derive(Clone, thiserror::Error)]
pub enum LockError {
    /// Others hold the lock, and the time to wait for it, if any, is over. The body did not run. Trying
    /// again later makes sense.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::LockError;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _first = locks.lock("order:42").acquire().await?;
    /// let refused = locks.lock("order:42").name("checkout").acquire().await;
    /// if let Err(LockError::Busy { lock, .. }) = refused {
    ///     assert_eq!(lock.name(), "checkout");
    ///     assert_eq!(lock.to_string(), "lock checkout");
    ///     assert_eq!(lock.key(), "order:42");
    /// #   return Ok(());
    /// }
    /// # panic!("it is held");
    /// # }
    /// ```
    #[error("{lock} is held elsewhere{}", LeaseRemaining(*lease_remaining))]
    #[non_exhaustive]
    Busy {
        /// The lock.
        lock: Box<LockName>,
        /// The rest of the present holder's lease, if the store could tell; see
        /// [`lease_remaining`](LockError::lease_remaining).
        lease_remaining: Option<Duration>,
    },

    /// The lease ended before its holder was done: it could not be renewed in time, an operator took it
    /// away, or `max_hold` was reached. Work under it had begun, and others may have the lock by now, so check
    /// the work. A body is never polled past the deadline of its lease.
    #[error("{lock} was lost: {reason}; {}", Aftermath(*stopped))]
    #[non_exhaustive]
    Lost {
        /// The lock.
        lock: Box<LockName>,
        /// The reason of the loss.
        reason: LostReason,
        /// Whether a body under it was stopped. Otherwise there was none (a guard was held), or it had
        /// returned.
        stopped: bool,
    },

    /// The store could not be asked, or refused. The body did not run. Whether the lock is free is not
    /// known; if the store granted it and only the answer was lost, it is released in the background.
    ///
    /// An outage passes, and a mistake in the settings does not. This function tells them apart:
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::{BackendKind, LockError};
    ///
    /// fn is_passing(error: &LockError) -> bool {
    ///     match error {
    ///         LockError::Backend { kind, .. } => {
    ///             matches!(kind, BackendKind::Unreachable | BackendKind::TimedOut | BackendKind::ReadOnly)
    ///         }
    ///         _ => false,
    ///     }
    /// }
    /// # assert!(!is_passing(&LockError::NotConfigured));
    /// ```
    #[error("{}{kind}{}", Of(lock.as_deref()), Because(cause.as_deref()))]
    #[non_exhaustive]
    Backend {
        /// The lock; `None` if the manager itself could not be connected.
        lock: Option<Box<LockName>>,
        /// The kind of failure, for code that treats them differently.
        kind: BackendKind,
        /// The node and the text of its error, or of the network's, without keys and passwords. It is a part of
        /// `Display`, so `Error::source` does not return it again.
        cause: Option<Arc<dyn Error + Send + Sync>>,
    },

    /// The key cannot be stored: it is empty, longer than 4,096 bytes, or could not be printed. Nothing
    /// was sent.
    #[error("{lock} has a key that cannot be used: {reason}")]
    #[non_exhaustive]
    InvalidKey {
        /// The lock.
        lock: Box<LockName>,
        /// The mistake and its fix.
        reason: &'static str,
    },

    /// An option of the lock, the manager or its URL has a value that cannot work. Nothing was sent.
    #[error("{details}")]
    #[non_exhaustive]
    InvalidOption {
        /// The option, the mistake and its fix.
        details: Box<str>,
    },

    /// A call would wait forever for a lock that its own caller holds. With `reentrant` it joins the lock instead,
    /// unless it asks for more than its caller has: a write inside a read, or a permit of fewer than the
    /// caller's. Make such a call after its caller's lock is free.
    #[error(
        "{lock} is already held by the caller of this call; it would wait for itself forever ({hint})"
    )]
    #[non_exhaustive]
    WouldDeadlock {
        /// The lock.
        lock: Box<LockName>,
        /// The fix.
        hint: &'static str,
    },

    /// There is no process-wide manager: [`init`](crate::init) was not called, and `DISTLOCK_URL` is not
    /// set.
    #[error(
        "no lock manager: call distlock::init(LockManager::connect(url).await?) at start-up, set DISTLOCK_URL, or name one with `manager = …`"
    )]
    NotConfigured,

    /// The manager was [closed](crate::LockManager::close) and gives no more locks.
    #[error("the lock manager was closed; no new lock is given")]
    Closed,
}

impl LockError {
    /// Returns whether others hold the lock: [`Busy`](Self::Busy).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _first = locks.lock("report").acquire().await?;
    /// let refused = locks.lock("report").acquire().await.unwrap_err();
    /// assert!(refused.is_busy() && !refused.is_lost());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// Returns whether the lease ended before its holder was done: [`Lost`](Self::Lost).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let guard = locks.lock("report").acquire().await?;
    /// locks.force_release("report").await?;
    /// assert!(guard.release().await.is_err_and(|error| error.is_lost()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns how long the present holder's lease still runs: of [`Busy`](Self::Busy) if the store could tell,
    /// else `None`.
    ///
    /// It is no estimate of when the lock will be free: a holder that renews its lease keeps the lock
    /// longer, and a holder that is done releases it earlier. The advice for clients is
    /// [`http_retry_after`](Self::http_retry_after).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _first = locks.lock("report").ttl(Duration::from_secs(5)).acquire().await?;
    /// let refused = locks.lock("report").acquire().await.unwrap_err();
    /// assert!(refused.lease_remaining().is_none_or(|rest| rest <= Duration::from_secs(5)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease_remaining(&self) -> Option<Duration> {
        match self {
            Self::Busy { lease_remaining, .. } => *lease_remaining,
            _ => None,
        }
    }

    /// Returns the key of the lock, with its values; `None` for an error that is not about one lock. It is not
    /// part of any text that this type prints.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let _first = locks.lock("user:ada@example.org").acquire().await?;
    /// let refused = locks.lock("user:ada@example.org").acquire().await.unwrap_err();
    /// assert_eq!(refused.key(), Some("user:ada@example.org"));
    /// assert!(!refused.to_string().contains("ada"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> Option<&str> {
        self.lock().map(LockName::key)
    }

    /// Returns the name of the lock.
    pub(crate) fn lock(&self) -> Option<&LockName> {
        match self {
            Self::Busy { lock, .. }
            | Self::Lost { lock, .. }
            | Self::InvalidKey { lock, .. }
            | Self::WouldDeadlock { lock, .. } => Some(lock),
            Self::Backend { lock, .. } => lock.as_deref(),
            Self::InvalidOption { .. } | Self::NotConfigured | Self::Closed => None,
        }
    }

    /// Returns the matching HTTP status, for frameworks without a feature of distlock.
    ///
    /// | error | status |
    /// |---|---|
    /// | `Busy` | 423 (Locked), or the manager's [`busy_status`](crate::LockManagerBuilder::busy_status) |
    /// | `Backend`, `Closed` | 503 (Service Unavailable) |
    /// | `InvalidKey` | 400 (Bad Request) |
    /// | the others | 500 (Internal Server Error) |
    ///
    /// ```
    /// # use distlock_runtime::LockError;
    /// assert_eq!(LockError::Closed.http_status(), 503);
    /// assert_eq!(LockError::NotConfigured.http_status(), 500);
    /// ```
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Busy { lock, .. } => lock.advice.busy_status,
            Self::Backend { .. } | Self::Closed => 503,
            Self::InvalidKey { .. } => 400,
            Self::Lost { .. }
            | Self::InvalidOption { .. }
            | Self::WouldDeadlock { .. }
            | Self::NotConfigured => 500,
        }
    }

    /// Describes the error to clients of a service. The text names neither the key nor the lock, the lease or
    /// the store, because these are internal to the service. Its log has them.
    #[cfg(any(feature = "axum", feature = "actix", feature = "tonic"))]
    pub(crate) fn for_clients(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "Another request is at work on this. Try again later.",
            Self::Backend { .. } => "The lock store cannot be used at the moment.",
            Self::Closed => "The service is shutting down.",
            Self::InvalidKey { .. } => "What the request names cannot be locked.",
            Self::Lost { .. } => {
                "The lock was lost while the request was being worked on. Some of it may have been done."
            }
            Self::WouldDeadlock { .. } | Self::InvalidOption { .. } | Self::NotConfigured => {
                "A lock is not set up as it should be."
            }
        }
    }

    /// Makes the error of a lease that was lost. A body under it may have been `stopped`.
    pub(crate) fn lost(lock: &LockName, reason: LostReason, stopped: bool) -> Self {
        Self::Lost { lock: Box::new(lock.clone()), reason, stopped }
    }

    /// Returns the kind of failure as a word for programs, which does not change between versions.
    ///
    /// In an HTTP response it is the member `code` of the problem document. It distinguishes a lock that is
    /// held from other answers of an application with the same status.
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
    ///
    /// ```
    /// # use distlock_runtime::LockError;
    /// assert_eq!(LockError::Closed.code(), "lock-closed");
    /// ```
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

    /// Returns the `Retry-After` of an HTTP response, in whole seconds and at least 1: of `Busy`, `Backend` and
    /// `Closed`. For the other errors it is `None`, because trying again does not help.
    ///
    /// It is the manager's [`retry_after`](crate::LockManagerBuilder::retry_after) (1 s), with jitter.
    /// Each call draws a value between half and one and a half of it, so that clients that were refused
    /// together do not come back together. The rest of the holder's lease
    /// ([`lease_remaining`](Self::lease_remaining)) would be too long: the lock is usually free much earlier.
    ///
    /// ```
    /// # use distlock_runtime::LockError;
    /// assert!(LockError::Closed.http_retry_after().is_some_and(|seconds| seconds >= 1));
    /// assert_eq!(LockError::NotConfigured.http_retry_after(), None);
    /// ```
    pub fn http_retry_after(&self) -> Option<u64> {
        let asked = matches!(self, Self::Busy { .. } | Self::Backend { .. } | Self::Closed);
        let after = self.lock().map_or(Advice::DEFAULT, |lock| lock.advice).retry_after;
        asked.then(|| seconds_around(after))
    }

    /// Returns the same error with this advice for clients that are refused.
    pub(crate) fn advising(mut self, advice: Advice) -> Self {
        match &mut self {
            Self::Busy { lock, .. } | Self::Backend { lock: Some(lock), .. } => {
                lock.advice = advice;
            }
            _ => {}
        }
        self
    }

    /// Makes the error of a call with the limit `inner`, inside a body that holds the lock with `outer`.
    pub(crate) fn would_deadlock(lock: &LockName, outer: Limit, inner: Limit) -> Self {
        let hint = match () {
            () if outer <= inner => "add `reentrant = true` to join the lock",
            () if outer.is_read() && inner.is_alone() => {
                "a reader cannot become the writer: let the read end, take `mode = write`, and look again at \
                 what was read"
            }
            () => "the caller's lock lets in more than this call allows: let it end first",
        };
        Self::WouldDeadlock { lock: Box::new(lock.clone()), hint }
    }

    pub(crate) fn invalid_option(details: impl Into<Box<str>>) -> Self {
        Self::InvalidOption { details: details.into() }
    }
}

/// The text is that of `Display`, because `unwrap` and a `main` that returns the error print `Debug`.
impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why a lease was lost. `Display` is a sentence, and [`as_str`](Self::as_str) a label.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::observe::LostReason;
///
/// assert_eq!(LostReason::MaxHold.as_str(), "max_hold");
/// assert_eq!(LostReason::MaxHold.to_string(), "it was held for its `max_hold`");
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LostReason {
    /// The lease ran out before it was renewed or released.
    ///
    /// The process or the store was paused or unreachable for longer than the `ttl`.
    Expired,
    /// The store has the lock free or with another owner.
    ///
    /// Another client deleted or changed the key, or the server lost its data.
    Taken,
    /// An operator took it away: [`force_release`](crate::LockManager::force_release).
    Forced,
    /// The lock was held for its `max_hold`, and is not renewed past that.
    MaxHold,
    /// The manager was closed.
    Closed,
}

impl LostReason {
    /// Returns the reason as one word for a label: `expired`, `taken`, `forced`, `max_hold` or
    /// `closed`.
    ///
    /// These words are part of the public surface: metrics and events use them, too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Forced => "forced",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
        }
    }

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Expired => "its lease ran out before it was renewed or released",
            Self::Taken => "the store has it free or with another owner",
            Self::Forced => "it was taken away by force_release",
            Self::MaxHold => "it was held for its `max_hold`",
            Self::Closed => "the lock manager was closed",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// The consequence of a loss for the work under the lock.
struct Aftermath(bool);

impl fmt::Display for Aftermath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            true => "the body was stopped, and what it had begun must be checked",
            false => "what was done under it must be checked",
        })
    }
}

/// The rest of the present holder's lease.
struct LeaseRemaining(Option<Duration>);

impl fmt::Display for LeaseRemaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Tenths of a second: the rest is an estimate, and more digits would pretend otherwise.
            Some(rest) => write!(f, " (its lease runs for another {:.1} s)", rest.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// The cause, as the store or the network words it.
struct Because<'a>(Option<&'a (dyn Error + Send + Sync)>);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

/// The lock, before the failure.
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

#[doc(hidden)]
impl From<Forked> for LockError {
    #[cold]
    fn from(_: Forked) -> Self {
        Self::invalid_option(
            "manager: it was made before this process was forked, and belongs to the parent; make the manager after the fork",
        )
    }
}

/// Turns a store's fault into the error of a call.
pub(crate) trait IntoLockError {
    /// The error about this lock, or about no lock in particular.
    fn into_error(self, lock: Option<&LockName>) -> LockError;
}

impl IntoLockError for Fault {
    fn into_error(self, lock: Option<&LockName>) -> LockError {
        LockError::Backend {
            lock: lock.cloned().map(Box::new),
            kind: self.kind,
            cause: self.into_detail().map(|text| Arc::new(Detail(text)) as _),
        }
    }
}

/// The store's own words, as the cause of an error.
#[derive(Debug)]
struct Detail(Arc<str>);

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Detail {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_and_debug_have_the_stores_own_words() {
        let cause: Arc<dyn Error + Send + Sync> = Arc::from(Box::from("connection refused"));
        let kind = BackendKind::Unreachable;
        let error = LockError::Backend { lock: None, kind, cause: Some(cause) };
        let text = "the lock store cannot be reached: connection refused";
        assert_eq!(format!("{error}"), text);
        assert_eq!(format!("{error:?}"), text);
        assert_eq!(format!("{error:#?}"), text);
        assert_eq!(format!("{:?}", LockError::Closed), LockError::Closed.to_string());
    }
}
