//! The scripts as servers get them, for tests that run them one at a time. Nothing here is stable.

use crate::script::{Script, Scripts, Wakes};
use distlock_core::capacity::Limit;

/// What a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Take the lock, confirm it, wait for it.
    Acquire,
    /// Free it, or leave its queue.
    Release,
    /// Extend a lease.
    Renew,
    /// Give the lock from a token that has it alone to one that does not keep others out.
    Downgrade,
    /// Free the lock while its slot of a cluster is being migrated, and touch no other key.
    Free,
    /// Raise the fence counter.
    Raise,
}

/// The text of a script, for tokens that have the lock alone or for others.
pub fn text(step: Step, alone: bool) -> String {
    let limit = if alone { Limit::ALONE } else { Limit::READ };
    let wakes = Wakes::Channels;
    match step {
        Step::Acquire => Scripts::acquire(wakes).of(limit).text().to_owned(),
        Step::Release => Scripts::release(wakes).of(limit).text().to_owned(),
        Step::Renew => Scripts::renew().of(limit).text().to_owned(),
        Step::Downgrade => Script::downgrade(wakes).text().to_owned(),
        Step::Free => Scripts::free().of(limit).text().to_owned(),
        Step::Raise => Script::raise().text().to_owned(),
    }
}
