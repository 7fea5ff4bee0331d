//! Spans: around the wait for a lock, and around a try. None around a body, which has its own.
//!
//! They are not entered: nothing of a user's runs inside. A subscriber is only called when they begin and
//! end; its panics end here.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::Refused;
use crate::error::LockError;
use crate::name::LockName;
use crate::shield::shield;

/// `distlock.wait`: from entering a lock's line to the answer. On the heap, or it would be part of every
/// locked function's future.
pub(crate) struct WaitSpan(Option<Box<Wait>>);

struct Wait {
    span: Ending,
    outcome: &'static str,
}

impl WaitSpan {
    /// `behind` so many calls of this process.
    #[inline]
    pub(crate) fn begin(lock: &LockName, behind: impl FnOnce() -> usize) -> Self {
        if is_off(Level::INFO) {
            return Self(None);
        }
        let span = Ending::begin(|| {
            tracing::info_span!(
                target: "distlock",
                "distlock.wait",
                lock.name = lock.name(),
                lock.template = lock.template(),
                lock.behind = behind(),
                outcome = Empty,
                fencing_token = Empty,
                otel.kind = "client",
            )
        });
        let is_on = !span.0.is_disabled();
        Self(is_on.then(|| Box::new(Wait { span, outcome: "cancelled" })))
    }

    /// The lock was granted.
    pub(crate) fn acquired(self, fencing_token: u64) {
        if let Some(mut wait) = self.0 {
            wait.outcome = "acquired";
            shield(|| _ = wait.span.0.record("fencing_token", fencing_token));
        }
    }

    /// It was not.
    pub(crate) fn refused(self, error: &LockError) {
        if let Some(mut wait) = self.0 {
            wait.outcome = Refused::new(Duration::ZERO, Some(error), true).outcome();
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        shield(|| _ = self.span.0.record("outcome", self.outcome));
    }
}

/// Puts `distlock.acquire` around a try.
#[inline]
pub(crate) fn in_acquire_span<'a, T: 'a>(
    lock: &LockName,
    asked: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    if is_off(Level::DEBUG) {
        return asked;
    }
    let span = Ending::begin(|| {
        tracing::debug_span!(
            target: "distlock",
            "distlock.acquire",
            lock.name = lock.name(),
            lock.template = lock.template(),
            otel.kind = "client",
        )
    });
    if span.0.is_disabled() {
        return asked;
    }
    Box::pin(async move {
        let answer = asked.await;
        drop(span);
        answer
    })
}

/// A span that ends when this is dropped.
struct Ending(Span);

impl Ending {
    fn begin(begin: impl FnOnce() -> Span) -> Self {
        Self(shield(begin).unwrap_or_else(Span::none))
    }
}

/// No subscriber wants spans of that level.
#[inline]
fn is_off(level: Level) -> bool {
    level > LevelFilter::current()
}

impl Drop for Ending {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        if !span.is_disabled() {
            shield(|| drop(span));
        }
    }
}
