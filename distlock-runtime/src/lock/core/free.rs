//! R7: what follows from the answer to a release.

use std::time::Duration;

/// How much longer than its reservation a lock is given until it is looked at.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

/// The process for which the store has reserved the lock.
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
    /// The token that the lock is reserved for is one of ours: [`Line::called`](super::Line::called).
    Called,
    /// Those who wait here would not be notified: [`Line::look`](super::Line::look).
    Look,
    /// Release the same token once more after this time. Only the last release of a lock is repeated.
    RepeatAfter(Duration),
}

/// What follows from the answer to a release. With `keep` the lock is kept for that time (`min_hold`),
/// and `awaited` says that others stand in the queue; otherwise it may be reserved for the `next`. This
/// process is `notified` of a reservation, or looks by itself.
pub fn follow_up(
    keep: Option<Duration>,
    awaited: bool,
    next: Option<NextOwner>,
    notified: bool,
) -> FollowUp {
    match (keep, next) {
        // The lock's expiry alone would not reserve it for the next one.
        (Some(keep), _) if awaited => FollowUp::RepeatAfter(keep),
        // Those who wait here do not know yet how long it is kept.
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
