//! Leases that ran out in their holder's hand.
//!
//! Their locks are left alone until he lets go: he may be in the middle of something, and the store
//! may keep them for longer than we know, if it extended them and could not say so. Whoever closes
//! the manager has to free them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::lease::Lease;

#[derive(Default)]
pub(crate) struct Lapsed(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    leases: Vec<Weak<Lease>>,
    /// As many as there may be before those are looked for that are gone.
    bound: usize,
}

impl Lapsed {
    pub(super) fn note(&self, lease: &Arc<Lease>) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.leases.len() >= notes.bound {
            notes.leases.retain(|lease| lease.upgrade().is_some_and(|lease| !lease.is_returned()));
            notes.bound = 2 * notes.leases.len() + 16;
        }
        notes.leases.push(Arc::downgrade(lease));
    }

    /// Those that nobody has let go of, once.
    pub(crate) fn take(&self) -> Vec<Arc<Lease>> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = std::mem::take(&mut notes.leases);
        drop(notes);
        leases.iter().filter_map(Weak::upgrade).filter(|lease| !lease.is_returned()).collect()
    }
}
