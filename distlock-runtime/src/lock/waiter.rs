//! A caller that waits in its lock's line: the slot in which the line leaves its lease, and the future
//! that takes it.
//!
//! A grant has to be taken in a poll of the waiter's own. One that is not, because its future was
//! dropped or is not polled any more, goes on to the next (R5).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use super::core::{Denied, Grant, Line, Request};
use super::lease::Lease;
use super::table::LockTable;
use crate::clock::Moment;
use crate::engine::alarm::Alarm;
use crate::shield::shield;
use crate::store::Fault;

/// How far a waiter has come.
pub(super) enum Seat {
    /// Its own try is under way.
    Trying,
    /// It is in line.
    Waiting {
        waker: Option<Waker>,
        /// It is to look at the line again.
        woken: bool,
    },
    /// The lock is the caller's, as soon as it takes it.
    Granted,
    /// It did not take what it was granted in time, and is in line again when it is polled.
    PassedOver,
    Denied(Denied<Fault>),
    /// It has taken its lease, or given up.
    Left,
}

impl Seat {
    pub(super) const WAITING: Self = Self::Waiting { waker: None, woken: false };

    /// Puts another state in its place; what is woken for it once no mutex is held.
    fn change(&mut self, to: Self) -> Option<Waker> {
        match std::mem::replace(self, to) {
            Self::Waiting { waker, .. } => waker,
            _ => None,
        }
    }
}

/// How a line notifies one caller. Each of these returns the waker that is to be woken.
impl Lease {
    /// A try of its own is under way.
    pub(super) fn trying(&self) {
        *self.seat() = Seat::Trying;
    }

    pub(super) fn in_line(&self) {
        *self.seat() = Seat::WAITING;
    }

    #[inline]
    pub(super) fn grant(&self, grant: Grant) -> Option<Waker> {
        self.granted(grant);
        self.seat().change(Seat::Granted)
    }

    pub(super) fn deny(&self, why: Denied<Fault>) -> Option<Waker> {
        self.seat().change(Seat::Denied(why))
    }

    pub(super) fn wake(&self) -> Option<Waker> {
        match &mut *self.seat() {
            Seat::Waiting { waker, woken } => {
                *woken = true;
                waker.take()
            }
            _ => None,
        }
    }

    /// R5: takes back what was not taken; false if it was.
    pub(super) fn take_back(&self) -> bool {
        let mut seat = self.seat();
        let lies_there = matches!(*seat, Seat::Granted);
        if lies_there {
            *seat = Seat::PassedOver;
            self.passed_over();
        }
        lies_there
    }

    /// The engine has taken its try over.
    pub(super) fn is_in_line(&self) -> bool {
        !matches!(*self.seat(), Seat::Trying)
    }

    /// Ready when something became of its wait. The `first` time it has no waker yet.
    #[inline]
    fn poll_change(&self, first: bool, cx: &Context<'_>) -> Poll<Change> {
        // Cloned, and the one before it dropped, while the seat is free: a waker may own its task,
        // and the task a lock.
        let mut spare = first.then(|| cx.waker().clone());
        loop {
            let mut seat = self.seat();
            let change = match &mut *seat {
                Seat::Waiting { waker, woken } => {
                    if std::mem::take(woken) {
                        return Poll::Ready(Change::Woken);
                    }
                    if waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        return Poll::Pending;
                    }
                    if let Some(new) = spare.take() {
                        let old = waker.replace(new);
                        drop(seat);
                        drop(old);
                        return Poll::Pending;
                    }
                    drop(seat);
                    spare = Some(cx.waker().clone());
                    continue;
                }
                Seat::Granted => Change::Granted,
                Seat::Denied(why) => Change::Denied(why.clone()),
                Seat::PassedOver => {
                    *seat = Seat::WAITING;
                    return Poll::Ready(Change::PassedOver);
                }
                Seat::Trying | Seat::Left => return Poll::Pending,
            };
            *seat = Seat::Left;
            return Poll::Ready(change);
        }
    }
}

enum Change {
    Granted,
    Denied(Denied<Fault>),
    PassedOver,
    Woken,
}

/// Wakes a task once no mutex is held.
#[inline]
pub(super) fn wake(waker: Waker) {
    shield(|| waker.wake());
}

/// A place in a lock's line; dropping it gives it up.
pub(crate) struct Waiting<'a> {
    table: &'a Arc<LockTable>,
    /// `None` once it was granted, or denied, and knows.
    lease: Option<Arc<Lease>>,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(table: &'a Arc<LockTable>, lease: Arc<Lease>) -> Self {
        Self { table, lease: Some(lease) }
    }

    /// How many calls of this process stand before it.
    pub(crate) fn behind(&self) -> usize {
        let lock = self.lease.as_ref().map(|lease| lease.name());
        let waiting = lock.and_then(|lock| self.table.read(lock, Line::waiting));
        waiting.unwrap_or_default().saturating_sub(1)
    }

    /// Waits for the lock until the request's `wait` is over.
    pub(crate) fn granted(self) -> Granted<'a> {
        let limit = self.lease.as_ref().map_or(Moment::NEVER, |lease| lease.request.wait_until);
        Granted { place: self, limit, waits: false, alarm: None }
    }
}

/// Waits in line for the lock. Not an `async fn`: nothing of it is worth a place on the heap.
pub(crate) struct Granted<'a> {
    place: Waiting<'a>,
    /// The end of `wait`, or later while it is not known yet whether the lock is taken.
    limit: Moment,
    /// Its waker was left in the seat.
    waits: bool,
    /// When it looks by itself if nothing happens: nowhere but where no engine does (`schedule`).
    alarm: Option<Alarm<'a>>,
}

impl Future for Granted<'_> {
    type Output = Result<Arc<Lease>, Denied<Fault>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place: Waiting { table, lease: place }, limit, waits, alarm } = self.get_mut();
        let Some(lease) = place else { unreachable!("it was polled after it was done") };
        loop {
            let mut by_alarm = false;
            match lease.poll_change(!*waits, cx) {
                Poll::Ready(Change::Granted) => {
                    return Poll::Ready(place.take().ok_or(Denied::TooLate));
                }
                Poll::Ready(Change::Denied(denied)) => {
                    *place = None;
                    return Poll::Ready(Err(denied));
                }
                Poll::Ready(Change::PassedOver) => table.rejoin(lease),
                Poll::Ready(Change::Woken) => {}
                Poll::Pending if table.agenda.is_the_engines() => {
                    *waits = true;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    *waits = true;
                    let at = || table.run_by_callers(lease.name(), *limit);
                    let set = || Alarm::at(table.alarms(), table.clock(), at());
                    ready!(Pin::new(alarm.get_or_insert_with(set)).poll(cx));
                    by_alarm = true;
                }
            }
            (*alarm, *waits) = (None, false);
            let Request { wait_until, answer_by, .. } = lease.request;
            let now = table.clock().now();
            if by_alarm && now < *limit {
                table.run(lease.name());
            } else if now >= wait_until {
                if let Some(denied) = table.verdict(lease) {
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

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take().filter(|_| self.table.home().is_here()) else { return };
        // Its waker is dropped while no mutex is held: it may own its task, and the task a lock.
        let left = std::mem::replace(&mut *lease.seat(), Seat::Left);
        self.table.leave(&lease);
        drop(left);
    }
}
