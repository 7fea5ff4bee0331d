//! What is reported while nobody is there to be told. Names and fields are a contract: dashboards
//! and alerts hang on them. Keys never appear.

use crate::error::{LockError, LockName};
use crate::store::Fault;

/// A lease was lost while it was held.
pub(crate) fn lost(lock: &LockName, fencing_token: u64, reason: &str) {
    let (name, template) = (lock.name(), lock.template());
    tracing::warn!(target: "distlock", name, template, fencing_token, reason, "lost");
}

/// A renewal failed; it is tried again while the lease lasts.
pub(crate) fn renew_failed(lock: &LockName, fault: &Fault) {
    let (name, template) = (lock.name(), lock.template());
    tracing::debug!(target: "distlock", name, template, error = %fault, "renew_failed");
}

/// The server does not let us subscribe or publish; said once.
pub(crate) fn wake_ups_denied(error: &redis::RedisError) {
    tracing::warn!(
        target: "distlock",
        error = %error,
        "wake_ups_denied: waiters look up to once a second instead of being told; allow HELLO, SUBSCRIBE, PUBLISH and PUBSUB|NUMSUB, and the channels `<prefix>:wake:*`"
    );
}

/// The server throws keys away when its memory is full, locks among them; said once.
pub(crate) fn may_evict(policy: &str) {
    tracing::warn!(
        target: "distlock",
        policy,
        "may_evict: the server may throw away locks that are held; set `maxmemory-policy noeviction`"
    );
}

/// The body has returned, but its lock could not be freed as it should.
pub(crate) fn released_late(lock: &LockName, error: &LockError) {
    let (name, template) = (lock.name(), lock.template());
    tracing::warn!(target: "distlock", name, template, error = %error, "released_late");
}

/// A release was tried in the background until the lock had expired by itself.
pub(crate) fn given_up(fault: &Fault) {
    tracing::warn!(target: "distlock", error = %fault, "released_late");
}

/// A locked function skipped its body for another reason than that the lock is held elsewhere, and
/// its return type has no place for an error.
pub(crate) fn not_returned(error: &LockError) {
    let (name, template) = match error.lock() {
        Some(lock) => (lock.name(), lock.template()),
        None => ("", None),
    };
    tracing::error!(target: "distlock", name, template, error = %error, "not_returned");
}

/// A request was answered with an error of its lock. What a client can do something about is not
/// worth an operator's time.
#[cfg(any(feature = "axum", feature = "actix"))]
pub(crate) fn answered(error: &LockError, status: u16) {
    let (name, template) = match error.lock() {
        Some(lock) => (lock.name(), lock.template()),
        None => ("", None),
    };
    match error {
        LockError::Busy { .. } | LockError::InvalidKey { .. } => {
            tracing::debug!(target: "distlock", name, template, status, error = %error, "answered");
        }
        _ => {
            tracing::error!(target: "distlock", name, template, status, error = %error, "answered");
        }
    }
}
