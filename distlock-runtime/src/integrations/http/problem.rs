//! A failed lock as an answer in the form of RFC 9457, and the log of such answers.
//!
//! In an outage every request fails, and a line for each of them would bury the rest of the log. So each lock and
//! kind of error is logged once a second at most, with the number of answers that the line stands for.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use distlock_core::back_off::seconds_around;
use distlock_core::catch_panic::shield;
use distlock_core::name::LockName;

use crate::error::LockError;

pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

/// The shortest time between two lines about the same lock and kind of error.
const PAUSE: Duration = Duration::from_secs(1);
/// The most names that are told apart. A program that makes names at run time may have more; these count as one.
const MOST_NAMES: usize = 500;

/// The body that is sent to the client. It names neither the key nor the lock, because both are internal to the
/// server. The server's log has them.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    /// The `Retry-After`, in whole seconds.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

/// The layer or middleware that answers.
pub(crate) struct Answering<'a> {
    pub(crate) name: &'a str,
    pub(crate) retry_after: Duration,
}

impl Problem {
    /// Makes the answer to a request that failed for this error, and logs it, because the response says little.
    pub(crate) fn answer(error: &LockError, by: Option<&Answering<'_>>) -> Self {
        let status = error.http_status();
        log_answer(error, by.map(|by| by.name), status);
        let retry_after = match (error.http_retry_after(), by) {
            // An error of a closed manager does not know the manager's settings; the layer does.
            (Some(_), Some(by)) => Some(seconds_around(by.retry_after)),
            (seconds, _) => seconds,
        };
        Self { status, retry_after, body: body(status, error.for_clients(), error.code()) }
    }

    /// Makes the answer to a request whose body does not come, and logs it. The lock of that name is free for others.
    pub(crate) fn body_too_late(name: &str) -> Self {
        shield(
            || tracing::debug!(target: "distlock", { lock.name = name, status = 408 }, "answered"),
        );
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

/// Logs an answer, unless the line would be one too many. `layer` is the name to log if the error knows no lock.
fn log_answer(error: &LockError, layer: Option<&str>, status: u16) {
    static PACE: Mutex<LogPace> = Mutex::new(LogPace { kinds: Vec::new() });
    let name = error.lock().map(LockName::name).or(layer).unwrap_or_default();
    let template = error.lock().and_then(LockName::template);
    // The client can do something about these, so they are not worth an operator's time.
    if matches!(error, LockError::Busy { .. } | LockError::InvalidKey { .. }) {
        shield(|| {
            tracing::debug!(
                target: "distlock",
                { lock.name = name, lock.template = template, status, error = %error },
                "answered"
            );
        });
        return;
    }
    // Each text about the set-up is another mistake.
    let kind = match error {
        LockError::InvalidOption { details, .. } => details,
        _ => name,
    };
    // The subscriber is called after the mutex is free.
    let admitted = match PACE.lock() {
        Ok(mut pace) => pace.admit(Instant::now(), error.code(), kind),
        Err(_) => Some(1),
    };
    if let Some(count) = admitted {
        shield(|| {
            tracing::error!(
                target: "distlock",
                { lock.name = name, lock.template = template, status, count, error = %error },
                "answered"
            );
        });
    }
}

/// The last lines about failed locks.
#[derive(Default)]
struct LogPace {
    /// For each kind of error, by the lock's name.
    kinds: Vec<(&'static str, HashMap<Box<str>, LastLine>)>,
}

struct LastLine {
    at: Instant,
    /// The number of answers since then that were not logged.
    unlogged: u64,
}

impl LogPace {
    /// Returns the number of answers that a line stands for, if it is to be logged now.
    fn admit(&mut self, now: Instant, kind: &'static str, name: &str) -> Option<u64> {
        let at = match self.kinds.iter().position(|(has, _)| *has == kind) {
            Some(at) => at,
            None => {
                self.kinds.push((kind, HashMap::new()));
                self.kinds.len() - 1
            }
        };
        let names = &mut self.kinds[at].1;
        let known = names.contains_key(name) || names.len() < MOST_NAMES;
        let name = if known { name } else { "" };
        match names.get_mut(name) {
            Some(last) if now.saturating_duration_since(last.at) < PAUSE => {
                last.unlogged += 1;
                None
            }
            Some(last) => {
                let count = last.unlogged + 1;
                *last = LastLine { at: now, unlogged: 0 };
                Some(count)
            }
            None => {
                names.insert(name.into(), LastLine { at: now, unlogged: 0 });
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use distlock_core::name::Label;
    use distlock_core::store::Fault;

    use super::*;
    use crate::error::IntoLockError;
    use crate::key_encoding::KeyText;
    use crate::namespace::Namespace;
    use crate::observe::documented::{EventLog, documented_events};

    #[test]
    fn wl2_one_event_a_second_says_how_many_it_stands_for() {
        let mut pace = LogPace::default();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(pace.admit(at(0), "a", "pay"), Some(1));
        for millis in 1..1000 {
            assert_eq!(pace.admit(at(millis), "a", "pay"), None);
        }
        assert_eq!(pace.admit(at(999), "a", "ship"), Some(1));
        assert_eq!(pace.admit(at(999), "b", "pay"), Some(1));
        assert_eq!(pace.admit(at(1000), "a", "pay"), Some(1000));
        assert_eq!(pace.admit(at(5000), "a", "pay"), Some(1));
    }

    #[test]
    fn wl2_names_without_end_take_no_memory_without_end() {
        let mut pace = LogPace::default();
        let now = Instant::now();
        for n in 0..10_000 {
            pace.admit(now, "a", &n.to_string());
        }
        assert!(pace.kinds[0].1.len() <= MOST_NAMES + 1);
    }

    #[test]
    fn r1_the_event_of_an_answer_is_in_the_guide() {
        let lock = Namespace::new("distlock").expect("a prefix");
        let key = KeyText::new(&[]).key("k", format_args!("k"));
        let lock = lock.name(Label::Given("name".into()), key).expect("a key");
        let log = EventLog::default();
        // A second subscriber: with one alone, an event that another test writes for the first time on a thread
        // without any would count as one that no subscriber wants.
        let _second = tracing::Dispatch::new(log.clone());
        tracing::subscriber::with_default(log.clone(), || {
            Problem::answer(&Fault::timed_out().into_error(Some(&lock)), None);
            let (lock, lease_remaining) = (Box::new((*lock).clone()), None);
            Problem::answer(&LockError::Busy { lock, lease_remaining }, None);
            Problem::body_too_late("name");
        });
        assert_eq!(log.seen().get("answered"), documented_events().get("answered"));
    }
}
