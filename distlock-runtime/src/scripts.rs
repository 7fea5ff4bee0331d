//! The scripts as servers get them, for tests that run them one at a time. Nothing here is stable.

use crate::store::Limit;
use crate::store::redis::script::{Script, Scripts};

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
    /// Raise the fence counter.
    Raise,
}

/// The text of a script, for tokens that have the lock alone or for others.
pub fn text(step: Step, alone: bool) -> &'static str {
    let limit = if alone { Limit::ALONE } else { Limit::READ };
    match step {
        Step::Acquire => Scripts::acquire().of(limit).text(),
        Step::Release => Scripts::release().of(limit).text(),
        Step::Renew => Scripts::renew().of(limit).text(),
        Step::Downgrade => Script::downgrade().text(),
        Step::Raise => Script::raise().text(),
    }
}
