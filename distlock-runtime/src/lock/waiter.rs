//! The wait of a caller in its lock's line.
//!
//! The line leaves its answer in the caller's seat ([`Lease`]). A grant has to be taken in a poll of the caller's
//! own. One that is not, because its future was dropped or is not polled any more, goes to the next waiter (R5).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use distlock_core::clock::Moment;
use distlock_core::line::{Denied, Freeing, Line, Request};
use distlock_core::store::Fault;

use super::commands::look;
use super::lease::{Lease, SeatChange};
use super::table::LockTable;
use crate::engine::alarm::Alarm;

/// A place in a lock's line; dropping it gives it up.
pub(super) struct Waiting<'a> {
    table: &'a Arc<LockTable>,
    /// `None` once it was granted, or denied, and knows.
    lease: Option<Arc<Lease>>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(table: &'a Arc<LockTable>, lease: Arc<Lease>) -> Self {
        Self { table, lease: Some(lease) }
    }

    /// Returns how many calls of this process stand before it.
    pub(super) fn behind(&self) -> usize {
        let lease = self.lease.as_ref();
        let waiting = lease.and_then(|lease| self.table.read(lease.lock.stored(), Line::waiting));
        waiting.unwrap_or_default().saturating_sub(1)
    }

    /// Waits for the lock until the request's `wait` is over.
    pub(super) fn granted(self) -> Granted<'a> {
        let limit = self.lease.as_ref().map_or(Moment::NEVER, |lease| lease.request.wait_until);
        Granted { place: self, limit, waits: false, alarm: None }
    }
}

/// A wait in line for the lock. Not an `async fn`: nothing of it is worth a place on the heap.
pub(super) struct Granted<'a> {
    place: Waiting<'a>,
    /// The end of `wait`, or later while it is not known yet whether the lock is taken.
    limit: Moment,
    /// Whether its waker was left in the seat.
    waits: bool,
    /// When the caller looks at its line by itself if nothing happens: only where no engine does, see
    /// [`schedule`](super::schedule).
    alarm: Option<Alarm<'a>>,
}

impl Future for Granted<'_> {
    type Output = Result<Arc<Lease>, Denied<Fault>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place: Waiting { table, lease: place }, limit, waits, alarm } = self.get_mut();
        let Some(lease) = place else { unreachable!("it was polled after it was done") };
        loop {
            let mut by_alarm = false;
            match lease.poll_seat(!*waits, cx) {
                Poll::Ready(SeatChange::Granted) => {
                    return Poll::Ready(place.take().ok_or(Denied::TooLate));
                }
                Poll::Ready(SeatChange::Denied(denied)) => {
                    *place = None;
                    return Poll::Ready(Err(denied));
                }
                Poll::Ready(SeatChange::PassedOver) => rejoin(table, lease),
                Poll::Ready(SeatChange::Woken) => {}
                Poll::Pending if table.services.by_engine => {
                    *waits = true;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    *waits = true;
                    let set = || alarm_of_caller(table, lease, *limit);
                    ready!(Pin::new(alarm.get_or_insert_with(set)).poll(cx));
                    by_alarm = true;
                }
            }
            (*alarm, *waits) = (None, false);
            let Request { wait_until, answer_by, .. } = lease.request;
            let now = table.services.clock.now();
            if by_alarm && now < *limit {
                look(table, &lease.lock);
            } else if now >= wait_until {
                if let Some(denied) = verdict(table, lease, now) {
                    return Poll::Ready(Err(denied));
                }
                if now >= answer_by {
                    return Poll::Ready(Err(lease.request.unanswered()));
                }
                *limit = answer_by;
            }
        }
    }
}

/// Asks again for a caller that did not take its grant in time.
fn rejoin(table: &Arc<LockTable>, lease: &Arc<Lease>) {
    table.change(&lease.lock, |line, effects| {
        let now = table.services.clock.now();
        if let Some(place) = line.rejoin(lease.request, lease, now, effects) {
            lease.moved(place);
            effects.waits(&lease.request);
        }
    });
}

/// Returns why a caller whose wait is over did not get the lock; `None` if it is not known yet whether the lock
/// is taken.
fn verdict(table: &LockTable, lease: &Lease, now: Moment) -> Option<Denied<Fault>> {
    let verdict = table.read(lease.lock.stored(), |line| line.verdict(lease.place(), now));
    verdict.unwrap_or(Some(Denied::Taken(None)))
}

/// Makes the alarm at which a caller looks at its line by itself: when the line is due, and at the `end` of its
/// wait at the latest.
fn alarm_of_caller<'a>(table: &'a LockTable, lease: &Lease, end: Moment) -> Alarm<'a> {
    let due = table.read(lease.lock.stored(), Line::due).unwrap_or(Moment::NEVER);
    Alarm::at(&table.services.alarms, table.services.clock, due.min(end))
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let table = self.table;
        let Some(lease) = self.lease.take().filter(|_| table.services.home.is_here()) else {
            return;
        };
        let left = lease.leave_seat();
        // It may have been granted the lock in this moment.
        let finished = table.change_known(&lease.lock, |line, effects| {
            line.leave(lease.place(), table.services.clock.now(), effects)
        });
        if let Some(Freeing { token, keep, .. }) = finished.and_then(|finished| finished.release) {
            table.release_in_background(token, keep);
        }
        drop(left);
    }
}
