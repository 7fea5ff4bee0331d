//! What to campaign for, and how.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::key::LockKey;
use crate::manager::LockManager;
use crate::name::Label;
use crate::one_or_many::OneOrMany;
use crate::options::Options;
use crate::request::LockRequest;

/// How long a campaign waits in one go: longer than any term lasts, and within what a `wait` may be.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

impl LockManager {
    /// To be the leader: of all processes that ask for this key, one is, and when it is gone the next one.
    /// Nothing is sent before [`run`](LeaderRequest::run) or [`start`](LeaderRequest::start).
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    ///
    /// # async fn collect_garbage() {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// let collector = locks.leader("collector").ttl(Duration::from_secs(10)).run(|term| async move {
    ///     println!("I collect, with the fencing token {}", term.fencing_token());
    ///     loop {
    ///         collect_garbage().await;
    ///         tokio::time::sleep(Duration::from_secs(60)).await;
    ///     }
    /// });
    /// # let shutdown = std::future::ready(());
    /// tokio::select! {
    ///     ended = collector => ended?,
    ///     () = shutdown => {} // gives the lead up
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It is the lock of that key: `inspect`, `force_release` and the program `distlock` know it as any
    /// other.
    #[track_caller]
    pub fn leader(&self, key: impl Into<LockKey>) -> LeaderRequest {
        let options = Options { wait: Some(LONG), ..Options::default() };
        let label = Label::Caller(Location::caller());
        LeaderRequest { manager: self.clone(), key: key.into(), label, options }
    }
}

/// What to campaign for, and how long a term outlives a leader that died: see [`LockManager::leader`].
///
/// ```
/// # use distlock_runtime as distlock;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let locks = distlock::LockManager::in_memory();
/// let request = locks.leader("scheduler").ttl(Duration::from_secs(5)).name("scheduler");
/// let leader = request.start(); // or `run(body)`
/// # drop(leader);
/// # }
/// ```
#[must_use = "a request campaigns for nothing before `run` or `start`"]
#[derive(Clone)]
pub struct LeaderRequest {
    pub(super) manager: LockManager,
    key: LockKey,
    label: Label,
    options: Options,
}

impl LeaderRequest {
    /// How long a leader that died still counts as one: the next one leads this much later, at most. A live
    /// leader's term is renewed. 10 ms to 365 days. Default: the manager's, 30 s.
    ///
    /// It is the longest outage of the store, or pause of the process, that a term survives.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use std::time::Duration;
    /// # let locks = distlock::LockManager::in_memory();
    /// let request = locks.leader("scheduler").ttl(Duration::from_secs(5));
    /// ```
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// A label for errors, events and metrics. Default: file and line of the call of `leader`.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.label = Label::Given(name.into());
        self
    }

    /// The namespace in the store; empty for none. Default: the manager's, `distlock`.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.options.prefix = Some(prefix.as_ref().into());
        self
    }

    pub(super) fn label(&self) -> &Label {
        &self.label
    }

    /// The lock that the leader has.
    pub(super) fn lock(&self) -> LockRequest {
        let Self { manager, key, label, options } = self.clone();
        LockRequest::of(manager, OneOrMany::One(key), label, options)
    }
}

impl fmt::Debug for LeaderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the key: it may have values in it.
        f.debug_struct("LeaderRequest")
            .field("name", &format_args!("{}", self.label))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
