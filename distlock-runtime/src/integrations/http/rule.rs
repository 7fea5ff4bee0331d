//! The configuration of a layer or a middleware: what to lock, how, and what to answer.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::problem::{Answering, Problem};
use super::route_key::RouteKey;
use super::template::Template;
use crate::error::LockError;
use crate::key::LockKey;
use crate::limits::check_busy_status;
use crate::manager::LockManager;
use crate::name::{Advice, Label};
use crate::one_or_many::OneOrMany;
use crate::options::Options;
use crate::request::LockRequest;

/// How long a request's body may take by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The lock of the requests `R`, which are answered with an `A`.
pub(crate) struct Rule<R, A> {
    key: Key<R, A>,
    manager: LockManager,
    label: Label,
    pub(crate) options: Options,
    pub(crate) busy_status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body_timeout: Duration,
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
pub(crate) enum Source<'a, R, A> {
    Templates(&'a [Template]),
    Function(&'a KeyFn<R, A>),
}

/// What to answer a failed lock with.
pub(crate) enum Answer<A> {
    Problem(Problem),
    /// What `on_fail` made.
    Own(A),
}

impl<R, A> Rule<R, A> {
    pub(crate) fn new(manager: LockManager, caller: &'static Location<'static>) -> Self {
        let made = format!("{}:{}", caller.file(), caller.line());
        Self {
            key: Key::Missing,
            manager,
            label: Label::Shared(made.into()),
            options: Options::default(),
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
        self.key = Key::Templates(keys.map(|key| Template::new(key, caller)).collect());
    }

    pub(crate) fn function(
        &mut self,
        key: impl Fn(&R) -> Result<Option<LockKey>, Box<A>> + Send + Sync + 'static,
    ) {
        self.key = Key::Function(Arc::new(key));
    }

    pub(crate) fn on_fail(&mut self, answer: impl Fn(&LockError) -> A + Send + Sync + 'static) {
        self.on_fail = Some(Arc::new(answer));
    }

    pub(crate) fn set_name(&mut self, name: Cow<'static, str>) {
        self.label = Label::Given(name);
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn check(&self) -> Result<(), LockError> {
        let keys = match self.source()? {
            Source::Templates(templates) => templates.iter().map(|_| "check".into()).collect(),
            Source::Function(_) => OneOrMany::One("check".into()),
        };
        self.lock(keys).check()
    }

    pub(crate) fn source(&self) -> Result<Source<'_, R, A>, LockError> {
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
    pub(crate) fn lock(&self, keys: OneOrMany<LockKey>) -> LockRequest {
        LockRequest::of(self.manager.clone(), keys, self.label.clone(), self.options.clone())
    }

    pub(crate) fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// What it is called in the log.
    pub(crate) fn name(&self) -> String {
        self.label.to_string()
    }

    /// What a failed lock is answered with, and the error as it goes along with the answer.
    pub(crate) fn answer(&self, error: LockError) -> (Answer<A>, LockError) {
        let of_manager = self.manager.locks().settings.advice;
        let retry_after = self.retry_after.unwrap_or(of_manager.retry_after);
        let busy_status = self.busy_status.unwrap_or(of_manager.busy_status);
        let error = error.advising(Advice { retry_after, busy_status });
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
        Self {
            key,
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
        let key: &dyn fmt::Debug = match &self.key {
            Key::Missing => &"missing",
            Key::Templates(templates) => templates,
            Key::Function(_) => &"a function",
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
