//! Times in tests.

use std::time::Duration;

/// A second.
pub const SECOND: Duration = Duration::from_secs(1);
/// Longer than any test takes, but for one that hangs: a lock with this ttl does not end by itself,
/// and a call that waits this long is served or refused for another reason.
pub const LONG: Duration = Duration::from_secs(120);

/// So many milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
