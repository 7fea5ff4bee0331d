//! What becomes of leases, for whoever keeps a record of them: the test kit. Elsewhere nobody does,
//! and nothing is left of it in the program.

use super::lease::Lease;
#[cfg(feature = "test-util")]
use crate::error::LockName;

/// What is to be seen of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Whoever asked for it has it in hand.
    Held,
    /// Its body is about to be polled.
    Polled,
    /// Its holder has let go of it in time.
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

#[cfg(feature = "test-util")]
impl Lease {
    pub(super) fn is_seen(&self, seen: Seen) {
        if let Some(witness) = self.witness() {
            witness.see(self.name(), self.fencing_token, seen);
        }
    }
}

#[cfg(not(feature = "test-util"))]
impl Lease {
    #[inline(always)]
    pub(super) fn is_seen(&self, _seen: Seen) {}
}
