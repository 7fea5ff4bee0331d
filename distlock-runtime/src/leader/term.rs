//! The time for which one process leads, and how its body may end it.

use std::convert::Infallible;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};

use crate::lock::guard::LockGuard;
use crate::lock::lease::Lease;

/// A period in which this process leads. Clones are the same term, and keep nothing alive.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::Term;
///
/// async fn lead(term: Term) {
///     // A store that compares this token refuses writes that come later than the next leader's.
///     let fence = term.fencing_token();
///     tokio::spawn(async move {
///         // A spawned task does not end with the term by itself.
///         while term.is_current() {
///             // … write, with `fence` …
/// #           let _ = fence;
///             tokio::time::sleep(std::time::Duration::from_secs(1)).await;
///         }
///     });
///     std::future::pending().await
/// }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let campaign = distlock::LockManager::in_memory();
/// # let campaign = campaign.leader("k").run(lead);
/// # let _ = tokio::time::timeout(std::time::Duration::from_secs(3), campaign).await;
/// # }
/// ```
#[derive(Clone)]
pub struct Term {
    lease: Arc<Lease>,
    clock: Clock,
    since: Moment,
}

impl Term {
    /// Returns the term of this guard; `None` if it holds nothing any more.
    pub(super) fn of(guard: &LockGuard, clock: Clock) -> Option<Self> {
        let lease = guard.leases().first()?.clone();
        Some(Self { lease, clock, since: clock.now() })
    }

    /// Returns the fencing token, which is larger than that of every earlier term of any process. Add it to the
    /// leader's writes, so that a late write of a former leader can be refused. See [`LockGuard::fencing_token`](crate::LockGuard::fencing_token).
    pub fn fencing_token(&self) -> u64 {
        self.lease.fencing_token()
    }

    /// Returns whether this process still leads. It is false from the moment on at which another process may lead, even
    /// if the store has not answered by then.
    pub fn is_current(&self) -> bool {
        self.lease.is_held()
    }

    /// Returns how long ago the term began, on this process's own clock.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let campaign = locks.leader("scheduler").run(async |term: distlock::Term| {
    /// tokio::time::sleep(Duration::from_secs(60)).await;
    /// assert!(term.age() >= Duration::from_secs(60));
    /// # std::future::pending::<()>().await
    /// # });
    /// # let _ = tokio::time::timeout(Duration::from_secs(61), campaign).await;
    /// # }
    /// ```
    pub fn age(&self) -> Duration {
        self.clock.now().since(self.since)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("fencing_token", &self.fencing_token())
            .field("current", &self.is_current())
            .finish_non_exhaustive()
    }
}

/// A value that the body of [`LeaderRequest::run`](crate::LeaderRequest::run) may return: nothing, a `Result<(), E>`
/// whose error can be printed, or `!` of an endless loop.
#[diagnostic::on_unimplemented(
    message = "a leader's body returns `()` or `Result<(), E>`, and not `{Self}`",
    note = "the error `E` must be `Display`: it is logged, and the campaign goes on after a pause"
)]
pub trait TermOutcome {
    /// Returns why the body failed; `None` if it gave the lead up.
    #[doc(hidden)]
    fn failure(self) -> Option<String>;
}

impl TermOutcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: Display> TermOutcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

impl TermOutcome for Infallible {
    fn failure(self) -> Option<String> {
        match self {}
    }
}

/// The return type of a function. It names the type of `loop {}`, which has no stable name.
#[doc(hidden)]
pub trait Returned {
    type Type;
}

impl<T> Returned for fn() -> T {
    type Type = T;
}

impl TermOutcome for <fn() -> ! as Returned>::Type {
    fn failure(self) -> Option<String> {
        self
    }
}
