//! A campaign for the lead: the request, a body that runs while this process leads, and the pauses between terms.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::time::Duration;

use distlock_core::back_off::jittered;
use distlock_core::clock::{Clock, Moment};
use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use distlock_core::name::Label;

use super::term::{Term, TermOutcome};
use crate::error::LockError;
use crate::lock::guard::LockGuard;
use crate::manager::LockManager;
use crate::observe::term_failed;
use crate::options::LockOptions;
use crate::request::{LockRequest, hold_and_release};

/// The `wait` of one attempt to lead. A campaign repeats it.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

impl LockManager {
    /// Makes a request to be the leader. Of all processes that campaign for this key one leads, and when it is gone,
    /// the next one. Nothing is sent before [`run`](LeaderRequest::run) or [`start`](LeaderRequest::start).
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
    /// The leader holds the lock of that key: `inspect`, `force_release` and the program `distlock` treat it as any
    /// other lock.
    #[track_caller]
    pub fn leader(&self, key: impl Into<LockKey>) -> LeaderRequest {
        let options = LockOptions { wait: Some(LONG), ..LockOptions::default() };
        let label = Label::Caller(Location::caller());
        LeaderRequest { manager: self.clone(), key: key.into(), label, options }
    }
}

/// A request to campaign for the lead, with its options: see [`LockManager::leader`].
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
    options: LockOptions,
}

impl LeaderRequest {
    /// Sets how long a dead leader still counts as the leader. The next one leads at most this much later. A live
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

    /// Sets a label for errors, events and metrics. Default: file and line of the call of `leader`.
    pub fn name(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.label = Label::Given(name.into());
        self
    }

    /// Sets the namespace in the store; empty for none. Default: the manager's, `distlock`.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.options.prefix = Some(prefix.as_ref().into());
        self
    }

    /// Campaigns, runs `body` while this process leads, and campaigns again when that is over.
    ///
    /// - If the term is lost, because the store was unreachable or the process was paused for longer than the `ttl`, the
    ///   body is dropped at its next await. It is never polled while another process may lead.
    /// - If the body returns, the lead is given up. The next in line has it at once, and this process
    ///   campaigns again after the others. After an error, and after a body that returned within a second,
    ///   it pauses first: 50 ms to 5 s, longer each time.
    /// - If the body panics, so does this future, and the lead is given up.
    ///
    /// It returns `Ok` once the manager was [closed](crate::LockManager::close). To stop sooner, drop the
    /// future: the body is dropped, and the lead is given up.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use std::time::Duration;
    /// use distlock::Term;
    ///
    /// async fn schedule(term: Term) -> Result<(), std::io::Error> {
    ///     loop {
    ///         // … start the jobs that are due, and add `term.fencing_token()` to each write …
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # let locks = distlock::LockManager::in_memory();
    /// # let closing = locks.clone();
    /// # tokio::spawn(async move {
    /// #     tokio::time::sleep(Duration::from_secs(60)).await;
    /// #     closing.close(Duration::from_secs(5)).await
    /// # });
    /// locks.leader("scheduler").ttl(Duration::from_secs(10)).run(schedule).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidKey`](LockError::InvalidKey) and [`InvalidOption`](LockError::InvalidOption) for values that
    /// cannot work, [`WouldDeadlock`](LockError::WouldDeadlock) inside a body that leads under the same key. A
    /// store that cannot be reached is no error: the campaign continues when it is reachable again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the body is dropped where it is, then the lead is given up.
    pub async fn run<B, F>(self, mut body: B) -> Result<(), LockError>
    where
        B: FnMut(Term) -> F,
        F: Future,
        F::Output: TermOutcome,
    {
        let mut campaign = Campaign::of(self);
        loop {
            let (mut guard, term) = match campaign.elected().await {
                Ok(elected) => elected,
                Err(CampaignEnd::Closed) => return Ok(()),
                Err(CampaignEnd::Hopeless(error)) => return Err(error),
            };
            let failure = {
                // Declared after the guard, so dropped before it: no other candidate leads while the body's
                // destructors run.
                let body = pin!(body(term.clone()));
                let outcome = hold_and_release(&mut guard, body).await;
                outcome.ok().and_then(TermOutcome::failure)
            };
            drop(guard);
            if let Some(failure) = &failure {
                term_failed(campaign.request().label(), failure);
            }
            campaign.ended(&term, failure.is_some()).await;
        }
    }

    pub(super) fn label(&self) -> &Label {
        &self.label
    }

    /// Returns the request for the lock that the leader holds.
    fn lock(&self) -> LockRequest {
        let Self { manager, key, label, options } = self.clone();
        LockRequest::of(manager, OneOrMany::One(key), label, options)
    }
}

impl fmt::Debug for LeaderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the key, which may contain values.
        f.debug_struct("LeaderRequest")
            .field("name", &format_args!("{}", self.label))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A shorter term counts as failed.
const SHORT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The campaign of one process, from term to term.
pub(super) struct Campaign {
    request: LeaderRequest,
    pause: Duration,
}

/// The reason why a campaign has ended.
pub(super) enum CampaignEnd {
    /// The manager was closed.
    Closed,
    /// The campaign cannot succeed.
    Hopeless(LockError),
}

impl Campaign {
    pub(super) fn of(request: LeaderRequest) -> Self {
        Self { request, pause: FIRST_PAUSE }
    }

    pub(super) fn request(&self) -> &LeaderRequest {
        &self.request
    }

    pub(super) fn clock(&self) -> Clock {
        self.request.manager.locks().table.clock()
    }

    /// Waits until this process leads: in line while others lead, and until a passing failure is over.
    pub(super) async fn elected(&mut self) -> Result<(LockGuard, Term), CampaignEnd> {
        loop {
            match self.request.lock().acquire().await {
                Ok(guard) => {
                    if let Some(term) = Term::of(&guard, self.clock()) {
                        return Ok((guard, term));
                    }
                }
                Err(LockError::Closed) => return Err(CampaignEnd::Closed),
                Err(
                    LockError::Busy { .. } | LockError::Backend { .. } | LockError::Lost { .. },
                ) => {}
                Err(hopeless) => return Err(CampaignEnd::Hopeless(hopeless)),
            }
            self.pause().await;
        }
    }

    /// Notes the end of a term. After a short or failed one it pauses before it campaigns again, because the failure is
    /// likely to repeat, and others can lead meanwhile.
    pub(super) async fn ended(&mut self, term: &Term, failed: bool) {
        if term.age() < SHORT || failed {
            self.pause().await;
        } else {
            self.pause = FIRST_PAUSE;
        }
    }

    async fn pause(&mut self) {
        let pause = jittered(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let until: Moment = self.clock().now().after(pause);
        self.request.manager.locks().alarm(until).await;
    }
}
