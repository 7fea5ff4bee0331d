//! What a layer or a middleware is told once: what to lock, and how.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::template::Template;
use crate::error::LockError;
use crate::few::Few;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::request::LockRequest;

/// The lock of the requests `R`.
pub(super) struct Rule<R> {
    key: Key<R>,
    /// Everything but the key.
    request: LockRequest,
}

type KeyFn<R> = dyn Fn(&R) -> Option<LockKey> + Send + Sync;

enum Key<R> {
    Missing,
    Template(Arc<Template>),
    /// A template that cannot be used. Nobody was there to be told when it was given.
    Broken(Arc<str>),
    Function(Arc<KeyFn<R>>),
}

/// Where a request's key comes from.
pub(super) enum Source<'a, R> {
    Template(&'a Template),
    Function(&'a KeyFn<R>),
}

impl<R> Rule<R> {
    pub(super) fn new(manager: LockManager, caller: &'static Location<'static>) -> Self {
        Self { key: Key::Missing, request: LockRequest::new(manager, Few::none(), caller) }
    }

    pub(super) fn template(&mut self, template: &'static str) {
        self.key = match Template::parse(template) {
            Ok(parsed) => Key::Template(Arc::new(parsed)),
            Err(mend) => {
                let details = format!("key: \"{template}\" cannot be used: {mend}");
                // Also where somebody looks when a service starts.
                tracing::error!(target: "distlock", error = %details, "invalid_option");
                Key::Broken(details.into())
            }
        };
    }

    pub(super) fn function(&mut self, key: impl Fn(&R) -> Option<LockKey> + Send + Sync + 'static) {
        self.key = Key::Function(Arc::new(key));
    }

    pub(super) fn set(self, set: impl FnOnce(LockRequest) -> LockRequest) -> Self {
        Self { request: set(self.request), ..self }
    }

    /// What is wrong with it, if anything is.
    pub(super) fn check(&self) -> Result<(), LockError> {
        self.source()?;
        self.request.with_key("check".into()).check().map(drop)
    }

    pub(super) fn source(&self) -> Result<Source<'_, R>, LockError> {
        match &self.key {
            Key::Template(template) => Ok(Source::Template(template)),
            Key::Function(function) => Ok(Source::Function(&**function)),
            Key::Broken(details) => Err(LockError::invalid_option(&**details)),
            Key::Missing => Err(LockError::invalid_option(
                "key: missing; say what to lock with `.key(\"order:{order_id}\")` or `.key_fn(…)`",
            )),
        }
    }

    /// The request for one lock.
    pub(super) fn lock(&self, key: LockKey) -> LockRequest {
        self.request.with_key(key)
    }
}

impl<R> Clone for Rule<R> {
    fn clone(&self) -> Self {
        let key = match &self.key {
            Key::Missing => Key::Missing,
            Key::Template(template) => Key::Template(template.clone()),
            Key::Broken(details) => Key::Broken(details.clone()),
            Key::Function(function) => Key::Function(function.clone()),
        };
        Self { key, request: self.request.with_keys(Few::none()) }
    }
}

impl<R> fmt::Debug for Rule<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: &dyn fmt::Debug = match &self.key {
            Key::Missing => &"missing",
            Key::Template(template) => template,
            Key::Broken(details) => details,
            Key::Function(_) => &"a function",
        };
        f.debug_struct("Rule").field("key", key).field("request", &self.request).finish()
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

        /// A label for errors, spans and metrics. Default: where this was made.
        pub fn name(self, name: impl Into<::std::borrow::Cow<'static, str>>) -> Self {
            Self { rule: self.rule.set(|request| request.name(name)) }
        }

        /// Passes itself on if it can be used. Without this call a mistake shows as 500 answers
        /// and in the log.
        ///
        /// # Errors
        ///
        /// [`InvalidOption`](crate::LockError::InvalidOption) says what is wrong with the key's
        /// template or with an option, and how to mend it.
        pub fn checked(self) -> Result<Self, $crate::LockError> {
            self.rule.check()?;
            Ok(self)
        }
    };
}

pub(super) use options;
