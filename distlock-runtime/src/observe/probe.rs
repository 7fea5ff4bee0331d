//! The probe of the test kit: it is shown what happens to every lease of one manager.
//!
//! Hooks for users are [`Observer`](super::Observer)s. A probe also sees each poll of a body, and it sees an
//! event before the next holder can cause one. It is compiled into every build, so that tests run the code
//! that ships; without a probe, an event costs one branch.

use distlock_core::limit::Limit;
use distlock_core::name::LockName;

/// An event in the life of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEvent {
    /// Its caller has it.
    Held,
    /// Its body is about to be polled.
    Polled,
    /// Its holder has given it back in time.
    Released,
    /// It ended before its holder gave it back.
    Lost,
}

/// Sees the events of all leases of one manager.
pub(crate) trait Probe: Send + Sync {
    /// Sees one event. `lease` identifies the lease among all that exist at the same time; a fencing token
    /// does not, because readers that share a lease have the same one.
    fn see(
        &self,
        lock: &LockName,
        lease: usize,
        limit: Limit,
        fencing_token: u64,
        event: LeaseEvent,
    );
}
