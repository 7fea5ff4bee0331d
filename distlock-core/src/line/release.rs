//! R7: what follows from the answer to a release.

use std::time::Duration;

/// How much longer than its reservation a lock is given until it is looked at.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

/// A process for which the store has reserved the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextOwner {
    /// It is this one.
    pub ours: bool,
    /// For so long.
    pub reserved_for: Duration,
}

/// What is to be done when a release was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FollowUp {
    /// Nothing.
    Nothing,
    /// The lock is reserved for none but tokens of ours: [`Line::called`](super::Line::called).
    Called,
    /// Waiters of this process would not be notified: [`Line::look`](super::Line::look).
    Look,
    /// Release the same token once more after this time. Only the last release of a lock is repeated.
    RepeatAfter(Duration),
}

/// What follows from the answer to a release. With `keep` the lock is kept for that time (`min_hold`),
/// and `awaited` says that others stand in the queue. It may be reserved for the `next`: for one, or for
/// several that have it together. This process is `notified` of a reservation, or looks by itself. What is
/// reserved for a token of ours is looked at in any case.
pub fn follow_up(
    keep: Option<Duration>,
    awaited: bool,
    next: impl IntoIterator<Item = NextOwner>,
    notified: bool,
) -> FollowUp {
    // One of another process may have died: that is seen to once all of them had their time.
    let by_time = |next: &NextOwner| (!next.ours, next.reserved_for);
    match (keep, next.into_iter().max_by_key(by_time)) {
        // The lock's expiry alone would not reserve it for the next one.
        (Some(keep), _) if awaited => FollowUp::RepeatAfter(keep),
        // Waiters of this process do not know yet how long it is kept.
        (Some(_), _) if !notified => FollowUp::Look,
        (Some(_), _) => FollowUp::Nothing,
        (None, Some(NextOwner { ours: true, .. })) => FollowUp::Called,
        // It may have died.
        (None, Some(NextOwner { reserved_for, .. })) => {
            FollowUp::RepeatAfter(reserved_for + REPEAT_AFTER)
        }
        (None, None) if !notified => FollowUp::Look,
        (None, None) => FollowUp::Nothing,
    }
}
