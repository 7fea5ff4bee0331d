//! Spans around the wait for a lock, and around an attempt. A body has spans of its own.
//!
//! The spans are not entered, because no code of the user runs inside. A subscriber is called only when they begin
//! and end; its panics are caught here.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use distlock_core::catch_panic::shield;
use distlock_core::name::LockName;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::observer::Refused;
use crate::error::LockError;

/// The span `distlock.wait`, from entering a lock's line to the answer. It is on the heap, because it would
/// otherwise be a part of every locked function's future.
pub(crate) struct WaitSpan(Option<Box<OpenWait>>);

struct OpenWait {
    span: OwnedSpan,
    outcome: &'static str,
}

impl WaitSpan {
    /// Begins the span. `behind` counts the calls of this process that wait before this one.
    #[inline]
    pub(crate) fn begin(lock: &LockName, behind: impl FnOnce() -> usize) -> Self {
        if is_off(Level::INFO) {
            return Self(None);
        }
        let span = OwnedSpan::begin(|| {
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
        Self(is_on.then(|| Box::new(OpenWait { span, outcome: "cancelled" })))
    }

    /// Ends the span of a lock that was granted.
    pub(crate) fn acquired(self, fencing_token: u64) {
        if let Some(mut wait) = self.0 {
            wait.outcome = "acquired";
            shield(|| _ = wait.span.0.record("fencing_token", fencing_token));
        }
    }

    /// Ends the span of a lock that was refused.
    pub(crate) fn refused(self, error: &LockError) {
        if let Some(mut wait) = self.0 {
            wait.outcome = Refused::new(Duration::ZERO, Some(error), true).outcome();
        }
    }
}

impl Drop for OpenWait {
    fn drop(&mut self) {
        shield(|| _ = self.span.0.record("outcome", self.outcome));
    }
}

/// Puts the span `distlock.acquire` around an attempt.
#[inline]
pub(crate) fn in_acquire_span<'a, T: 'a>(
    lock: &LockName,
    asked: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
) -> Pin<Box<dyn Future<Output = T> + Send + 'a>> {
    if is_off(Level::DEBUG) {
        return asked;
    }
    let span = OwnedSpan::begin(|| {
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

/// A span that ends when this value is dropped.
struct OwnedSpan(Span);

impl OwnedSpan {
    fn begin(begin: impl FnOnce() -> Span) -> Self {
        Self(shield(begin).unwrap_or_else(Span::none))
    }
}

/// Returns whether no subscriber wants spans of that level.
#[inline]
fn is_off(level: Level) -> bool {
    level > LevelFilter::current()
}

impl Drop for OwnedSpan {
    fn drop(&mut self) {
        let span = std::mem::replace(&mut self.0, Span::none());
        if !span.is_disabled() {
            shield(|| drop(span));
        }
    }
}
