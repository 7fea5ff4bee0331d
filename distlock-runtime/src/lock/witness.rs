//! Leases that are seen by a [witness](crate::witness).

use super::lease::Lease;
use crate::witness::Seen;

impl Lease {
    #[cfg(feature = "test-util")]
    pub(super) fn is_seen(&self, seen: Seen) {
        if let Some(witness) = self.store.witness() {
            witness.see(self.name(), self.fencing_token(), seen);
        }
    }

    #[cfg(not(feature = "test-util"))]
    #[inline(always)]
    pub(super) fn is_seen(&self, _seen: Seen) {}
}
