//! The configuration of a layer or a middleware: its keys, the options of their lock, and the answer to a failed
//! lock. The layer of axum and the middleware of actix-web have the same setters, from one macro.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use distlock_core::collections::OneOrMany;
use distlock_core::key::LockKey;
use distlock_core::name::{Advice, Label};

use super::problem::{Answering, Problem};
use super::template::PathTemplate;
use crate::error::LockError;
use crate::manager::LockManager;
use crate::options::LockOptions;
use crate::ranges::check_busy_status;
use crate::request::LockRequest;

/// How long the handler may wait for a request's body by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The lock around requests of type `R`, which are answered with an `A`.
pub(crate) struct Rule<R, A> {
    keys: ConfiguredKeys<R, A>,
    manager: LockManager,
    label: Label,
    pub(crate) options: LockOptions,
    pub(crate) busy_status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body_timeout: Duration,
    on_fail: Option<Arc<FailureAnswer<A>>>,
}

type RequestKey<R, A> = dyn Fn(&R) -> Result<Option<LockKey>, Box<A>> + Send + Sync;
type FailureAnswer<A> = dyn Fn(&LockError) -> A + Send + Sync;

/// The source of a request's keys, as it was configured.
enum ConfiguredKeys<R, A> {
    Missing,
    Templates(Arc<[PathTemplate]>),
    Function(Arc<RequestKey<R, A>>),
}

/// The source of a request's keys, which can be used.
pub(crate) enum Source<'a, R, A> {
    Templates(&'a [PathTemplate]),
    Function(&'a RequestKey<R, A>),
}

/// The answer to a failed lock.
pub(crate) enum Refusal<A> {
    Problem(Problem),
    /// The answer of `on_fail`.
    Own(A),
}

impl<R, A> Rule<R, A> {
    pub(crate) fn new(manager: LockManager, caller: &'static Location<'static>) -> Self {
        let made = format!("{}:{}", caller.file(), caller.line());
        Self {
            keys: ConfiguredKeys::Missing,
            manager,
            label: Label::Shared(made.into()),
            options: LockOptions::default(),
            busy_status: None,
            retry_after: None,
            body_timeout: BODY_TIMEOUT,
            on_fail: None,
        }
    }

    pub(crate) fn templates(
        &mut self,
        keys: impl Iterator<Item = RouteKey>,
        caller: &'static Location<'static>,
    ) {
        self.keys = ConfiguredKeys::Templates(
            keys.map(|key| PathTemplate::new(key.source, caller)).collect(),
        );
    }

    pub(crate) fn function(
        &mut self,
        key: impl Fn(&R) -> Result<Option<LockKey>, Box<A>> + Send + Sync + 'static,
    ) {
        self.keys = ConfiguredKeys::Function(Arc::new(key));
    }

    pub(crate) fn on_fail(&mut self, answer: impl Fn(&LockError) -> A + Send + Sync + 'static) {
        self.on_fail = Some(Arc::new(answer));
    }

    pub(crate) fn set_name(&mut self, name: Cow<'static, str>) {
        self.label = Label::Given(name);
    }

    /// Checks the options.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let keys = match self.source()? {
            Source::Templates(templates) => templates.iter().map(|_| "check".into()).collect(),
            Source::Function(_) => OneOrMany::One("check".into()),
        };
        self.lock(keys).resolve().map(drop).map_err(|unusable| unusable.error)
    }

    /// Returns the source of keys, or the mistake in the configuration.
    pub(crate) fn source(&self) -> Result<Source<'_, R, A>, LockError> {
        if let Some(status) = self.busy_status {
            check_busy_status(status)?;
        }
        match &self.keys {
            ConfiguredKeys::Templates(templates) if templates.is_empty() => {
                Err(LockError::invalid_option("keys: none; name at least one"))
            }
            ConfiguredKeys::Templates(templates) => Ok(Source::Templates(templates)),
            ConfiguredKeys::Function(function) => Ok(Source::Function(&**function)),
            ConfiguredKeys::Missing => Err(LockError::invalid_option(
                "key: missing; say what to lock with `.key(\"order:{order_id:u64}\")` or `.key_fn(…)`",
            )),
        }
    }

    /// Returns the request for these locks.
    pub(crate) fn lock(&self, keys: OneOrMany<LockKey>) -> LockRequest {
        LockRequest::of(self.manager.clone(), keys, self.label.clone(), self.options.clone())
    }

    pub(crate) fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// Returns the name in the log.
    pub(crate) fn name(&self) -> String {
        self.label.to_string()
    }

    /// Returns the answer to a failed lock, and the error to put into the extensions of the answer.
    pub(crate) fn answer(&self, error: LockError) -> (Refusal<A>, LockError) {
        let of_manager = self.manager.locks().settings.advice;
        let retry_after = self.retry_after.unwrap_or(of_manager.retry_after);
        let busy_status = self.busy_status.unwrap_or(of_manager.busy_status);
        let error = error.advising(Advice { retry_after, busy_status });
        let problem = Problem::answer(&error, Some(&Answering { name: &self.name(), retry_after }));
        let answer = match &self.on_fail {
            Some(on_fail) => Refusal::Own(on_fail(&error)),
            None => Refusal::Problem(problem),
        };
        (answer, error)
    }
}

impl<R, A> Clone for Rule<R, A> {
    fn clone(&self) -> Self {
        let keys = match &self.keys {
            ConfiguredKeys::Missing => ConfiguredKeys::Missing,
            ConfiguredKeys::Templates(templates) => ConfiguredKeys::Templates(templates.clone()),
            ConfiguredKeys::Function(function) => ConfiguredKeys::Function(function.clone()),
        };
        Self {
            keys,
            manager: self.manager.clone(),
            label: self.label.clone(),
            options: self.options.clone(),
            on_fail: self.on_fail.clone(),
            ..*self
        }
    }
}

impl<R, A> fmt::Debug for Rule<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: &dyn fmt::Debug = match &self.keys {
            ConfiguredKeys::Missing => &"missing",
            ConfiguredKeys::Templates(templates) => templates,
            ConfiguredKeys::Function(_) => &"a function",
        };
        f.debug_struct("Rule")
            .field("key", key)
            .field("name", &format_args!("{}", self.label))
            .field("options", &self.options)
            .field("busy_status", &self.busy_status)
            .field("retry_after", &self.retry_after)
            .field("body_timeout", &self.body_timeout)
            .finish_non_exhaustive()
    }
}

/// A key of a layer or a middleware: a template whose placeholders are path parameters with their type, as in
/// `order:{order_id:u64}`. `route_key!` makes one and checks it while compiling. A string can be converted into one, and
/// is checked when the layer is made.
///
/// ```
/// # extern crate distlock_runtime as distlock;
/// let key = distlock::RouteKey::from("order:{order_id:u64}");
/// assert!(format!("{key:?}").contains("order_id"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RouteKey {
    source: &'static str,
}

impl RouteKey {
    /// Makes a key that `route_key!` has checked.
    #[doc(hidden)]
    pub const fn checked(source: &'static str) -> Self {
        Self { source }
    }
}

impl From<&'static str> for RouteKey {
    fn from(source: &'static str) -> Self {
        Self { source }
    }
}

/// Marks a layer or a middleware that has a key.
///
/// `key`, `keys` and `key_fn` return such a layer. Routes and services accept it.
#[derive(Debug, Clone, Copy)]
pub struct Keyed(());

/// Marks a layer or a middleware that has no key yet.
///
/// It protects nothing, so no route and no service accepts it. Call `key`, `keys` or `key_fn` first.
#[derive(Debug, Clone, Copy)]
pub struct Unkeyed(());

/// Implemented by [`Keyed`] alone, so that only a layer with a key can be used. A layer without a key is a compile
/// error, and not an error of the first request.
///
/// The compiler's message for a layer without a key is the note below.
#[diagnostic::on_unimplemented(
    message = "this layer does not say what to lock",
    label = "it has no key",
    note = "add `.key(\"order:{{order_id:u64}}\")`, whose placeholders are path parameters, or `.key_fn(|request| …)`, before the layer is given to a route or a service"
)]
pub trait HasKey: sealed::Sealed {}

impl HasKey for Keyed {}

impl sealed::Sealed for Keyed {}
impl sealed::Sealed for Unkeyed {}

mod sealed {
    pub trait Sealed {}
}

/// A value that a `key_fn` may return besides a response: the key of a request, or `None`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a lock key",
    label = "expected `LockKey` or `Option<LockKey>`",
    note = "make a key with `key!(\"…{{name}}…\")` or `LockKey::from(text)`"
)]
pub trait MaybeKey {
    /// Returns the key. With `None` the request is not locked.
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

/// A value that a `key_fn` may return: a `LockKey`, an `Option<LockKey>` (with `None` the request is not locked), or a
/// `Result` of one of them. The error of the `Result` is the response (for example 400 if a header is missing). `A` is
/// the framework's response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say what to lock",
    label = "expected `LockKey`, `Option<LockKey>`, or a `Result` of one whose error is a response",
    note = "make a key with `key!(\"…{{name}}…\")` or `LockKey::from(text)`"
)]
pub trait KeyOrResponse<A> {
    /// Returns the key, or the response.
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

/// Defines the setters of a layer or a middleware, which has a [`Rule`] in its field `rule`.
macro_rules! setters {
    () => {
        /// Sets the length of the lease: how long the lock stays taken if this process dies. 10 ms to
        /// 365 days. Default: the manager's, 30 s.
        pub fn ttl(mut self, ttl: ::std::time::Duration) -> Self {
            self.rule.options.ttl = Some(ttl);
            self
        }

        /// Sets how long a request waits while others hold the lock; with zero it does not wait. Keep it below
        /// the timeouts of clients and proxies. Default: the manager's, zero.
        pub fn wait(mut self, wait: ::std::time::Duration) -> Self {
            self.rule.options.wait = Some(wait);
            self
        }

        /// Sets whether the lease is renewed while the handler runs. Default: true. With false the
        /// handler has the `ttl` and no more, and is then dropped.
        pub fn renew(mut self, renew: bool) -> Self {
            self.rule.options.renew = Some(renew);
            self
        }

        /// Sets the longest time for which the lease is renewed, counted from when the lock was taken.
        /// Then it counts as lost, and the handler is dropped. At least 10 ms. Default: the manager's,
        /// no limit.
        pub fn max_hold(mut self, max_hold: ::std::time::Duration) -> Self {
            self.rule.options.max_hold = Some(max_hold);
            self
        }

        /// Sets the shortest time for which the lock stays taken, counted from when it was taken. The
        /// response does not wait for it. At most `max_hold` and 365 days. Default: none.
        pub fn min_hold(mut self, min_hold: ::std::time::Duration) -> Self {
            self.rule.options.min_hold = Some(min_hold);
            self
        }

        /// Sets whether the handler is stopped when the lease is lost. Default:
        /// [`OnLost::Cancel`](crate::OnLost::Cancel): it is dropped, and the response is a 500.
        pub fn on_lost(mut self, on_lost: $crate::OnLost) -> Self {
            self.rule.options.on_lost = Some(on_lost);
            self
        }

        /// Sets which requests may hold the lock at the same time: with
        /// [`LockMode::Read`](crate::LockMode::Read) any number of them, while none writes. Default:
        /// exclusive. Not together with [`permits`](Self::permits).
        pub fn mode(mut self, mode: $crate::LockMode) -> Self {
            self.rule.options.mode = Some(mode);
            self
        }

        /// Sets how many requests may hold the lock at once, over all processes; at least 1. Default: one.
        /// For one key, and not together with [`mode`](Self::mode): see
        /// [`LockRequest::permits`](crate::LockRequest::permits).
        pub fn permits(mut self, permits: u32) -> Self {
            self.rule.options.permits = Some(permits);
            self
        }

        /// Sets whether the response waits until the store has confirmed the release. Default:
        /// [`Release::Wait`](crate::Release::Wait): a client that has its response finds the lock free.
        pub fn release(mut self, release: $crate::Release) -> Self {
            self.rule.options.release = Some(release);
            self
        }

        /// Sets how many requests of this process may wait for one lock at a time. A request that finds
        /// that many waiters is refused at once; with 0 none waits. Default: the manager's, no limit.
        pub fn max_waiters(mut self, waiters: u32) -> Self {
            self.rule.options.max_waiters = Some(waiters);
            self
        }

        /// Sets the namespace in the store; empty for none. Default: the manager's, `distlock`.
        pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
            self.rule.options.prefix = Some(prefix.as_ref().into());
            self
        }

        /// Sets a label for errors and events. Default: the file and line that made this value.
        pub fn name(mut self, name: impl Into<::std::borrow::Cow<'static, str>>) -> Self {
            self.rule.set_name(name.into());
            self
        }

        /// Sets how long a handler may wait for the request's body, all its waits together. Default: 10 s.
        ///
        /// After that the handler is dropped, the response is a 408, and the lock is free. Without such a
        /// limit a client could keep a lock for as long as it liked, by not sending the rest of its
        /// request or by sending it byte by byte.
        ///
        /// Only the time counts during which the handler waits for the next piece of the body. Its own work
        /// before it reads and between two pieces does not count, and a handler that does not read is never
        /// late.
        ///
        /// For uploads allow more, or read the body before the lock is taken: use the attribute, whose
        /// handler has its arguments first.
        pub fn body_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.rule.body_timeout = timeout;
            self
        }

        /// Sets the HTTP status of the response when others hold the lock: 409, 423, 429 or 503. Default:
        /// the manager's, 423.
        pub fn busy_status(mut self, status: u16) -> Self {
            self.rule.busy_status = Some(status);
            self
        }

        /// Sets how long clients are advised to wait before they try again. It is the `Retry-After` of a lock
        /// that is held and of a store that cannot be used, in whole seconds and at least 1. Jitter makes it
        /// between half and one and a half of this, so that clients do not come back in step. Default: the
        /// manager's, 1 s.
        pub fn retry_after(mut self, retry_after: ::std::time::Duration) -> Self {
            self.rule.retry_after = Some(retry_after);
            self
        }

        /// Returns itself if its options can be used. Without this call, a mistake in them shows in the log and
        /// as responses with the status 500.
        ///
        /// # Errors
        ///
        /// [`InvalidOption`](crate::LockError::InvalidOption) names the mistake and its fix.
        pub fn checked(self) -> Result<Self, $crate::LockError>
        where
            Key: $crate::integrations::http::rule::HasKey,
        {
            self.rule.check()?;
            Ok(self)
        }
    };
}

pub(crate) use setters;
