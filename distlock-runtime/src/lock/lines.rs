//! The lines of all locks that this process holds or waits for, by the name of their lock.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::batch::{Batch, Line, TakenOut};
use super::claim::Claim;
use crate::name::{BuildStoredHasher, LockName, StoredName};
use crate::shrink::shrink;

pub(super) type Lines = HashMap<Name, Line, BuildStoredHasher>;

/// A lock by the name under which it is stored.
pub(super) struct Name(pub(super) Arc<LockName>);

impl Borrow<StoredName> for Name {
    fn borrow(&self) -> &StoredName {
        self.0.stored()
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.stored().hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.stored() == other.0.stored()
    }
}

impl Eq for Name {}

/// The batch that waits or holds under a claim.
pub(super) fn of_claim<'a>(lines: &'a mut Lines, claim: &Arc<Claim>) -> Option<&'a mut Batch> {
    lines.get_mut(claim.owner.lock.stored())?.of_claim(claim)
}

/// The batch that waits or holds under a token.
pub(super) fn of_token<'a>(
    lines: &'a mut Lines,
    stored: &StoredName,
    token: &str,
) -> Option<&'a mut Batch> {
    lines.get_mut(stored)?.of_token(token)
}

/// The batch of a number.
pub(super) fn numbered<'a>(
    lines: &'a mut Lines,
    stored: &StoredName,
    number: u64,
) -> Option<&'a mut Batch> {
    lines.get_mut(stored)?.numbered(number)
}

/// Takes a batch out of its line, and the line out if it was the last.
pub(super) fn take_out(lines: &mut Lines, stored: &StoredName, number: u64) -> Option<Batch> {
    match lines.get_mut(stored)?.take_out(number) {
        TakenOut::None => None,
        TakenOut::One(batch) => Some(batch),
        TakenOut::Last => {
            let line = lines.remove(stored).map(Line::into_first);
            shrink(lines);
            line
        }
    }
}
