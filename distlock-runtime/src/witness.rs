//! What becomes of leases, for the test kit, which keeps a record of them. Without it nothing is left of
//! this in the program.

#[cfg(feature = "test-util")]
use crate::name::LockName;

/// What is to be seen of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its caller has it.
    Held,
    /// Its body is about to be polled.
    Polled,
    /// Its holder has given it back in time.
    Released,
    /// It ended before that.
    Lost,
}

/// Keeps a record of the leases of one manager.
#[cfg(feature = "test-util")]
pub(crate) trait Witness: Send + Sync {
    /// Fencing tokens tell the leases of a lock apart.
    fn see(&self, lock: &LockName, fencing_token: u64, seen: Seen);
}
