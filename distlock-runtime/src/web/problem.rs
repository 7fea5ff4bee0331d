//! A failed lock as an answer, in the form of RFC 9457.

use std::time::Duration;

use crate::error::LockError;
use crate::observe;

pub(super) const CONTENT_TYPE: &str = "application/problem+json";

/// What a client is told. It names neither the key nor the lock: both are the server's own affair,
/// and its log has them.
pub(super) struct Problem {
    /// Whole seconds, for `Retry-After`.
    pub(super) retry_after: Option<u64>,
    pub(super) body: String,
}

impl Problem {
    /// The answer to a request that failed for this, which is also logged: the client is told little.
    pub(super) fn answer(error: &LockError) -> Self {
        let status = error.http_status();
        observe::answered(error, status);
        let (title, detail) = (title(status), detail(error));
        let body = format!(
            r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}"}}"#
        );
        let retry_after = error.is_busy().then(|| whole_seconds(error.retry_after()));
        Self { retry_after, body }
    }
}

/// Rounded up, and at least one: zero would invite the client to try again at once.
fn whole_seconds(rest: Option<Duration>) -> u64 {
    let rest = rest.unwrap_or_default();
    (rest.as_secs() + u64::from(rest.subsec_nanos() > 0)).max(1)
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        409 => "Conflict",
        423 => "Locked",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

fn detail(error: &LockError) -> &'static str {
    match error {
        LockError::Busy { .. } => "Another request is at work on this. Try again later.",
        LockError::Backend { .. } => "The lock store cannot be used at the moment.",
        LockError::Closed => "The service is shutting down.",
        LockError::InvalidKey { .. } => "What the request names cannot be locked.",
        LockError::Lost { .. } => {
            "The lock was lost while the request was being worked on. Some of it may have been done."
        }
        LockError::WouldDeadlock { .. }
        | LockError::InvalidOption { .. }
        | LockError::NotConfigured => "A lock is not set up as it should be.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_whole_and_never_zero() {
        let seconds = |millis| whole_seconds(Some(Duration::from_millis(millis)));
        assert_eq!([0, 1, 999, 1000, 1001, 29_500].map(seconds), [1, 1, 1, 1, 2, 30]);
        assert_eq!(whole_seconds(None), 1);
    }
}
