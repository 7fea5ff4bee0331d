//! What a layer or a middleware is told once: what to lock, how, and what to answer.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::problem::{Answering, Problem};
use super::template::{RouteKey, Template};
use crate::error::LockError;
use crate::few::Few;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::name::Label;
use crate::options::check_busy_status;
use crate::request::LockRequest;

/// How long a request's body may take, where nobody said.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The lock of the requests `R`, which are answered with an `A`.
pub(super) struct Rule<R, A> {
    key: Key<R, A>,
    /// Everything but the key.
    request: LockRequest,
    busy_status: Option<u16>,
    retry_after: Option<Duration>,
    pub(super) body_timeout: Duration,
    on_fail: Option<Arc<OnFail<A>>>,
}

type KeyFn<R, A> = dyn Fn(&R) -> Result<Option<LockKey>, Box<A>> + Send + Sync;
type OnFail<A> = dyn Fn(&LockError) -> A + Send + Sync;

enum Key<R, A> {
    Missing,
    Templates(Arc<[Template]>),
    Function(Arc<KeyFn<R, A>>),
}

/// Where a request's key comes from.
pub(super) enum Source<'a, R, A> {
    Templates(&'a [Template]),
    Function(&'a KeyFn<R, A>),
}

/// What to answer a failed lock with.
pub(super) enum Answer<A> {
    Problem(Problem),
    /// What `on_fail` made.
    Own(A),
}

impl<R, A> Rule<R, A> {
    pub(super) fn new(manager: LockManager, caller: &'static Location<'static>) -> Self {
        let made = format!("{}:{}", caller.file(), caller.line());
        let request = LockRequest::new(manager, Few::none(), caller);
        Self {
            key: Key::Missing,
            request: request.labelled(Label::Shared(made.into())),
            busy_status: None,
            retry_after: None,
            body_timeout: BODY_TIMEOUT,
            on_fail: None,
        }
    }

    pub(super) fn templates(
        &mut self,
        keys: impl Iterator<Item = RouteKey>,
        caller: &'static Location<'static>,
    ) {
        self.key = Key::Templates(keys.map(|key| Template::new(key, caller)).collect());
    }

    pub(super) fn function(
        &mut self,
        key: impl Fn(&R) -> Result<Option<LockKey>, Box<A>> + Send + Sync + 'static,
    ) {
        self.key = Key::Function(Arc::new(key));
    }

    pub(super) fn on_fail(&mut self, answer: impl Fn(&LockError) -> A + Send + Sync + 'static) {
        self.on_fail = Some(Arc::new(answer));
    }

    pub(super) fn set(self, set: impl FnOnce(LockRequest) -> LockRequest) -> Self {
        Self { request: set(self.request), ..self }
    }

    pub(super) fn set_busy_status(self, status: u16) -> Self {
        Self { busy_status: Some(status), ..self }
    }

    pub(super) fn set_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    pub(super) fn set_body_timeout(self, body_timeout: Duration) -> Self {
        Self { body_timeout, ..self }
    }

    /// What is wrong with it, if anything is.
    pub(super) fn check(&self) -> Result<(), LockError> {
        self.source()?;
        self.request.with_keys(Few::One("check".into())).check().map(drop)
    }

    pub(super) fn source(&self) -> Result<Source<'_, R, A>, LockError> {
        if let Some(status) = self.busy_status {
            check_busy_status(status)?;
        }
        match &self.key {
            Key::Templates(templates) if templates.is_empty() => {
                Err(LockError::invalid_option("keys: none; name at least one"))
            }
            Key::Templates(templates) => Ok(Source::Templates(templates)),
            Key::Function(function) => Ok(Source::Function(&**function)),
            Key::Missing => Err(LockError::invalid_option(
                "key: missing; say what to lock with `.key(\"order:{order_id:u64}\")` or `.key_fn(…)`",
            )),
        }
    }

    /// The request for these locks.
    pub(super) fn lock(&self, keys: Few<LockKey>) -> LockRequest {
        self.request.with_keys(keys)
    }

    pub(super) fn manager(&self) -> &LockManager {
        self.request.manager()
    }

    /// What it is called in the log.
    pub(super) fn name(&self) -> String {
        self.request.label().to_string()
    }

    /// What a failed lock is answered with, and the error as it goes along with the answer.
    pub(super) fn answer(&self, mut error: LockError) -> (Answer<A>, LockError) {
        let of_manager = self.request.manager().locks().settings.retry_after;
        let retry_after = self.retry_after.unwrap_or(of_manager);
        if let (LockError::Busy { status, .. }, Some(own)) = (&mut error, self.busy_status) {
            *status = own;
        }
        let error = error.advising(retry_after);
        let problem = Problem::answer(&error, Some(&Answering { name: &self.name(), retry_after }));
        let answer = match &self.on_fail {
            Some(on_fail) => Answer::Own(on_fail(&error)),
            None => Answer::Problem(problem),
        };
        (answer, error)
    }
}

impl<R, A> Clone for Rule<R, A> {
    fn clone(&self) -> Self {
        let key = match &self.key {
            Key::Missing => Key::Missing,
            Key::Templates(templates) => Key::Templates(templates.clone()),
            Key::Function(function) => Key::Function(function.clone()),
        };
        let request = self.request.with_keys(Few::none());
        Self { key, request, on_fail: self.on_fail.clone(), ..*self }
    }
}

impl<R, A> fmt::Debug for Rule<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: &dyn fmt::Debug = match &self.key {
            Key::Missing => &"missing",
            Key::Templates(templates) => templates,
            Key::Function(_) => &"a function",
        };
        f.debug_struct("Rule")
            .field("key", key)
            .field("request", &self.request)
            .field("busy_status", &self.busy_status)
            .field("retry_after", &self.retry_after)
            .field("body_timeout", &self.body_timeout)
            .finish_non_exhaustive()
    }
}

/// What a `key_fn` may return besides a response: the key of a request, or that there is none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    label = "expected `LockKey` or `Option<LockKey>`",
    note = "make a key with `key!(\"…{{name}}…\")` or `LockKey::from(text)`"
)]
pub trait MaybeKey {
    /// The key; `None`: this request is not locked.
    fn into_key(self) -> Option<LockKey>;
}

impl MaybeKey for LockKey {
    fn into_key(self) -> Option<LockKey> {
        Some(self)
    }
}

impl MaybeKey for Option<LockKey> {
    fn into_key(self) -> Option<LockKey> {
        self
    }
}

/// What a `key_fn` may return: `LockKey`, `Option<LockKey>` (`None`: this request is not locked), or
/// a `Result` of one of them whose error is the response instead (for example 400 where a header is
/// missing). `A` is the framework's response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what to lock",
    label = "expected `LockKey`, `Option<LockKey>`, or a `Result` of one whose error is a response",
    note = "make a key with `key!(\"…{{name}}…\")` or `LockKey::from(text)`"
)]
pub trait KeyOrResponse<A> {
    /// The key, or the response.
    fn key_or_response(self) -> Result<Option<LockKey>, Box<A>>;
}

impl<A> KeyOrResponse<A> for LockKey {
    fn key_or_response(self) -> Result<Option<LockKey>, Box<A>> {
        Ok(Some(self))
    }
}

impl<A> KeyOrResponse<A> for Option<LockKey> {
    fn key_or_response(self) -> Result<Option<LockKey>, Box<A>> {
        Ok(self)
    }
}

/// The options that a layer and a middleware share, as methods over `self.rule`.
macro_rules! options {
    () => {
        /// How long the lock may outlive a process that died. At least 10 ms. Default: the
        /// manager's.
        pub fn ttl(self, ttl: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set(|request| request.ttl(ttl)) }
        }

        /// How long a request waits while others hold the lock; zero is not to wait. Keep it below
        /// the time-outs of clients and proxies. Default: the manager's.
        pub fn wait(self, wait: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set(|request| request.wait(wait)) }
        }

        /// Whether the lease is extended while the handler runs. Default: true. With false the
        /// handler has `ttl` and no more.
        pub fn renew(self, renew: bool) -> Self {
            Self { rule: self.rule.set(|request| request.renew(renew)) }
        }

        /// Never extend the lease past this time after the lock was taken; then it counts as lost.
        /// Default: the manager's, no limit.
        pub fn max_hold(self, max_hold: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set(|request| request.max_hold(max_hold)) }
        }

        /// Do not free the lock before this time after it was taken. Default: none.
        pub fn min_hold(self, min_hold: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set(|request| request.min_hold(min_hold)) }
        }

        /// What becomes of the handler when the lease is lost. Default:
        /// [`OnLost::Cancel`](crate::OnLost::Cancel): it is dropped, and the answer is a 500.
        pub fn on_lost(self, on_lost: $crate::OnLost) -> Self {
            Self { rule: self.rule.set(|request| request.on_lost(on_lost)) }
        }

        /// Whether the answer waits for the store to confirm the release. Default:
        /// [`Release::Wait`](crate::Release::Wait).
        pub fn release(self, release: $crate::Release) -> Self {
            Self { rule: self.rule.set(|request| request.release(release)) }
        }

        /// How many requests of this process may wait for one lock at a time: who comes when so many
        /// wait is answered at once. 0 is not to wait. Default: the manager's, no limit.
        pub fn max_waiters(self, waiters: u32) -> Self {
            Self { rule: self.rule.set(|request| request.max_waiters(waiters)) }
        }

        /// The namespace in the store; empty for none. Default: the manager's.
        pub fn prefix(self, prefix: impl AsRef<str>) -> Self {
            Self { rule: self.rule.set(|request| request.prefix(prefix)) }
        }

        /// A label for errors and events. Default: file and line where this was made.
        pub fn name(self, name: impl Into<::std::borrow::Cow<'static, str>>) -> Self {
            Self { rule: self.rule.set(|request| request.name(name)) }
        }

        /// How long a handler may wait for the request's body, all its waits together. Default: 10 s.
        ///
        /// A handler that reads at once waits from the grant on. What else it does, before it reads and
        /// between two pieces, does not count: a client cannot send what nobody reads. When it has
        /// waited for so long, the handler is dropped, the answer is 408, and the lock is free: whoever
        /// sends a request could otherwise hold everybody's lock by not sending the rest of it, or by
        /// sending it byte by byte. A body that has come, and one that is not read, are no matter.
        ///
        /// For uploads take more, or read the body before the lock is taken: under the attribute
        /// instead of here.
        pub fn body_timeout(self, timeout: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set_body_timeout(timeout) }
        }

        /// The status of an answer to a lock that is held: 409, 423, 429 or 503. Default: the
        /// manager's, 423.
        pub fn busy_status(self, status: u16) -> Self {
            Self { rule: self.rule.set_busy_status(status) }
        }

        /// About how long a client is told to stay away, in the `Retry-After` of a lock that is held
        /// and of a store that cannot be used: drawn between half and one and a half of it, in whole
        /// seconds and at least one, so that clients do not come back in step. Default: the
        /// manager's, 1 s.
        pub fn retry_after(self, retry_after: ::std::time::Duration) -> Self {
            Self { rule: self.rule.set_retry_after(retry_after) }
        }

        /// Passes itself on if its options can be used. Without this call a mistake shows as 500
        /// answers and in the log.
        ///
        /// # Errors
        ///
        /// [`InvalidOption`](crate::LockError::InvalidOption) says what is wrong, and how to mend it.
        pub fn checked(self) -> Result<Self, $crate::LockError> {
            self.rule.check()?;
            Ok(self)
        }
    };
}

pub(super) use options;
