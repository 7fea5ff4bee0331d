//! Leases that are seen by a [witness](crate::witness).

use super::lease::Lease;
use crate::witness::Seen;
#[cfg(feature = "test-util")]
use crate::witness::Sighting;

impl Lease {
    #[cfg(feature = "test-util")]
    pub(super) fn is_seen(&self, seen: Seen) {
        if let Some(witness) = self.store.witness() {
            witness.see(&Sighting {
                lock: self.name(),
                lease: std::ptr::from_ref(self).addr(),
                limit: self.limit(),
                fencing_token: self.fencing_token(),
                seen,
            });
        }
    }

    #[cfg(not(feature = "test-util"))]
    #[inline(always)]
    pub(super) fn is_seen(&self, _seen: Seen) {}
}
