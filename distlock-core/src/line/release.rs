//! The steps that follow the answer to a release (R7).

use std::time::Duration;

/// How long after the end of a reservation the release is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

/// A process for which the store has reserved a released lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NextOwner {
    /// Whether it is this process.
    pub ours: bool,
    /// How long the reservation lasts.
    pub reserved_for: Duration,
}

/// The step that follows the answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FollowUp {
    /// Do nothing.
    Nothing,
    /// Call [`Line::called`](super::Line::called), because the lock is reserved for tokens of this process.
    Called,
    /// Call [`Line::look`](super::Line::look), because waiters of this process are not notified.
    Look,
    /// Release the same token once more after this time, unless another release of the lock comes first.
    RepeatAfter(Duration),
}

/// Returns the step that follows the answer to a release.
///
/// - `keep` is how long the store keeps the lock after the release, for a `min_hold`.
/// - `awaited` is whether other tokens wait in the queue of a lock that is kept.
/// - `next` are the processes for which the store has reserved the lock: several if they hold it together.
/// - `notified` is whether this process is notified of reservations.
pub fn follow_up(
    keep: Option<Duration>,
    awaited: bool,
    next: impl IntoIterator<Item = NextOwner>,
    notified: bool,
) -> FollowUp {
    // Another process may have died, so the release is repeated once all of them had their time. What is reserved for
    // tokens of this process is looked at in any case.
    let by_time = |next: &NextOwner| (!next.ours, next.reserved_for);
    match (keep, next.into_iter().max_by_key(by_time)) {
        // The release has to be repeated when the lock is due, because an expiry reserves it for no one.
        (Some(keep), _) if awaited => FollowUp::RepeatAfter(keep),
        // The waiters of this process learn from a look how long the lock is kept.
        (Some(_), _) if !notified => FollowUp::Look,
        (Some(_), _) => FollowUp::Nothing,
        (None, Some(NextOwner { ours: true, .. })) => FollowUp::Called,
        // The process may have died.
        (None, Some(NextOwner { reserved_for, .. })) => {
            FollowUp::RepeatAfter(reserved_for + REPEAT_AFTER)
        }
        (None, None) if !notified => FollowUp::Look,
        (None, None) => FollowUp::Nothing,
    }
}
