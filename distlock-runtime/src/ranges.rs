//! The ranges of durations and other options of a lock.

use std::time::Duration;

use distlock_core::store::term::SHORTEST_TTL;

use crate::error::LockError;

/// The longest `ttl`. A longer one is a mistake of units, and may overflow the numbers of Redis.
const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Checks a `ttl`.
#[inline]
pub(crate) fn check_ttl(ttl: Duration) -> Result<(), LockError> {
    if ttl < SHORTEST_TTL {
        return Err(LockError::invalid_option(format!(
            "ttl: {} is too short; give at least 10 ms (a lease is renewed while the body runs, so it can be much shorter than the body)",
            humantime::format_duration(ttl)
        )));
    }
    if ttl > LONGEST_TTL {
        return Err(LockError::invalid_option(
            "ttl: more than 365 days; it says how long the lock may outlive a holder that died",
        ));
    }
    Ok(())
}

/// Checks `max_hold` and `min_hold`.
#[inline]
pub(crate) fn check_hold(max: Option<Duration>, min: Option<Duration>) -> Result<(), LockError> {
    if max.is_some_and(|max| max < SHORTEST_TTL) {
        return Err(LockError::invalid_option("max_hold: give at least 10 ms"));
    }
    if min.is_some_and(|min| min > LONGEST_TTL) {
        return Err(LockError::invalid_option("min_hold: more than 365 days"));
    }
    if let (Some(max), Some(min)) = (max, min)
        && min > max
    {
        return Err(LockError::invalid_option("min_hold: must not be longer than max_hold"));
    }
    Ok(())
}

/// Checks the HTTP status of a lock that is held.
pub(crate) fn check_busy_status(status: u16) -> Result<(), LockError> {
    if ![409, 423, 429, 503].contains(&status) {
        return Err(LockError::invalid_option("busy_status: give 409, 423, 429 or 503"));
    }
    Ok(())
}

/// Checks a timeout. One of zero would fail before it has begun.
pub(crate) fn check_timeout(option: &str, timeout: Duration) -> Result<(), LockError> {
    if timeout < Duration::from_millis(1) {
        return Err(LockError::invalid_option(format!("{option}: give at least 1 ms")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault: H1.
    #[test]
    fn ttl_range() {
        assert!(check_ttl(Duration::ZERO).is_err());
        assert!(check_ttl(Duration::from_millis(9)).is_err());
        assert!(check_ttl(Duration::from_millis(10)).is_ok());
        assert!(check_ttl(Duration::MAX).is_err());
    }
}
