//! A failed lock as an answer, in the form of RFC 9457.

use std::time::Duration;

use super::answered::report;
use crate::error::LockError;
use crate::jitter::seconds_around;
use crate::observe;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// The body that is sent to the client. It names neither the key nor the lock, because both are internal to the
/// server. The server's log has them.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    /// Whole seconds, for `Retry-After`.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

/// The layer or middleware that answers, if it is one.
pub(crate) struct Answering<'a> {
    pub(crate) name: &'a str,
    pub(crate) retry_after: Duration,
}

impl Problem {
    /// The answer to a request that failed for this, which is also logged: the response says little.
    pub(crate) fn answer(error: &LockError, by: Option<&Answering<'_>>) -> Self {
        let status = error.http_status();
        report(error, by.map(|by| by.name), status);
        let retry_after = match (error.http_retry_after(), by) {
            // The manager that was closed is known to the layer, and not to the error.
            (Some(_), Some(by)) => Some(seconds_around(by.retry_after)),
            (seconds, _) => seconds,
        };
        Self { status, retry_after, body: body(status, error.for_clients(), error.code()) }
    }

    /// The answer to a request whose body does not come.
    pub(crate) fn body_too_late(name: &str) -> Self {
        observe::body_too_late(name);
        let detail = "The request's body did not arrive in time.";
        Self { status: 408, retry_after: None, body: body(408, detail, "lock-body-timeout") }
    }
}

fn body(status: u16, detail: &str, code: &str) -> String {
    let title = title(status);
    format!(
        r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}","code":"{code}"}}"#
    )
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        408 => "Request Timeout",
        409 => "Conflict",
        423 => "Locked",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
