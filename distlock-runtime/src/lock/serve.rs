//! What the engine does for locks: it looks at lines, and repeats releases, each when it is due.

use std::sync::Arc;
use std::time::Duration;

use super::table::LockTable;
use crate::name::LockName;
use crate::shield::shield;

/// When a line is looked at again that could not be.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// What is to be done when its time has come.
pub(crate) enum Due {
    /// A line is to be looked at.
    Line(Arc<LockName>),
    /// Releases are to be repeated.
    Repeat,
}

/// Does everything that is due, each by itself: what goes wrong with one must not keep the others
/// from being done. To be called on the engine's thread.
pub(super) fn serve(due: Vec<Due>, table: &Arc<LockTable>) {
    let mut renewals = Vec::new();
    for due in due {
        match due {
            Due::Line(lock) => match shield(|| table.run_without_renewals(&lock)) {
                Some(due) => renewals.extend(due),
                None => {
                    let at = table.clock().now().after(AFTER_PANIC);
                    table.timers().insert(at, Due::Line(lock));
                }
            },
            Due::Repeat => drop(shield(|| table.repeat_releases())),
        }
    }
    // All that are due go together.
    if !renewals.is_empty() {
        table.renew_soon(renewals);
    }
}
