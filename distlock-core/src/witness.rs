//! What becomes of leases, for the test kit, which keeps a record of them. Without it nothing is left of
//! this in the program.

use crate::capacity::Limit;
use crate::name::LockName;

/// What is to be seen of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Its caller has it.
    Held,
    /// Its body is about to be polled.
    Polled,
    /// Its holder has given it back in time.
    Released,
    /// It ended before that.
    Lost,
}

/// A lease of which something is seen.
pub struct Sighting<'a> {
    pub lock: &'a LockName,
    /// Tells it apart from every other that there is at the same time. Fencing tokens do not: readers that
    /// share a lease have the same.
    pub lease: usize,
    pub limit: Limit,
    pub fencing_token: u64,
    pub seen: Seen,
}

/// Keeps a record of the leases of one manager.
pub trait Witness: Send + Sync {
    /// Something is seen of a lease.
    fn see(&self, sighting: &Sighting<'_>);
}
