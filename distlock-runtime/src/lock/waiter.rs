//! A waiter, and the seat in which its lease is delivered.
//!
//! A grant travels as a lease that its waiter takes in a poll of its own. One that is not taken,
//! because its future was dropped or is not polled any more, goes on to the next.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::lease::Lease;
use super::table::LockTable;
use crate::clock::Moment;
use crate::engine::alarm::Alarm;
use crate::name::LockName;
use crate::race::until;
use crate::shield::shield;
use crate::store::{Fault, Term};

/// What a caller wants of a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) term: Term,
    /// When the call began.
    pub(crate) asked: Moment,
    /// Others may hold the lock until then.
    pub(crate) wait: Moment,
    /// No answer counts after this.
    pub(crate) overall: Moment,
    /// It is one of several locks, of no use without the others.
    pub(crate) several: bool,
    /// When it is of no use any more, if the others are not there by then.
    pub(crate) wanted_until: Moment,
    /// So much was spent in the lines of other locks that an answer about this one may not be there
    /// in time: that it is not is no fault of the store's.
    pub(crate) hurried: bool,
}

impl Wish {
    /// What is asked of the store. A store in this process, whose leases nobody renews, has one of
    /// several without an end until its holder has them all.
    pub(crate) fn term_at(&self, remote: bool) -> Term {
        if remote || !self.several {
            return self.term;
        }
        Term { renewed: true, max_hold: None, ..self.term }
    }

    /// The outcome if it is not known whether the lock is taken when its time is over.
    pub(super) fn unanswered(&self) -> Denied {
        if self.hurried { Denied::TooLate } else { Denied::Fault(Fault::timed_out()) }
    }
}

/// Why a lock was not taken.
#[derive(Debug, Clone)]
pub(crate) enum Denied {
    /// Others hold it, for this long if that is known.
    Taken(Option<std::time::Duration>),
    /// Its time was over before an answer could be there.
    TooLate,
    Fault(Fault),
}

/// A call that waits for a lock.
pub(crate) struct Waiter {
    pub(super) wish: Wish,
    /// The number of the batch it waits in.
    pub(super) batch: AtomicU64,
    /// It has left; seen without taking the mutex.
    left: AtomicBool,
    seat: Mutex<Seat>,
}

/// How far it has come.
enum Seat {
    Waiting {
        waker: Option<Waker>,
        prompted: bool,
    },
    /// A lease, as soon as it takes it.
    Granted(Arc<Lease>),
    /// It did not take what it was granted in time; it joins the line again when it is polled.
    PassedOver,
    Denied(Denied),
    /// It has taken its lease, or given up.
    Left,
}

impl Seat {
    const WAITING: Self = Self::Waiting { waker: None, prompted: false };
}

impl Waiter {
    pub(super) fn new(wish: Wish, batch: u64) -> Arc<Self> {
        let seat = Mutex::new(Seat::WAITING);
        Arc::new(Self { wish, batch: AtomicU64::new(batch), left: AtomicBool::new(false), seat })
    }

    /// Neither gone nor past its time: a lock can be granted to it.
    pub(super) fn is_live(&self, now: Moment) -> bool {
        !self.has_left() && now < self.wish.overall
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Gives it what `lease` makes; `None` if it does not wait any more. The waker is to be woken
    /// once no mutex is held.
    pub(super) fn grant(self: &Arc<Self>, lease: impl FnOnce() -> Arc<Lease>) -> Option<Woken> {
        let mut seat = self.seat();
        let Seat::Waiting { waker, .. } = &mut *seat else { return None };
        let waker = waker.take();
        *seat = Seat::Granted(lease());
        Some(Woken(waker))
    }

    /// Ends its wait without the lock.
    pub(super) fn deny(&self, denied: Denied) -> Option<Woken> {
        let mut seat = self.seat();
        let Seat::Waiting { waker, .. } = &mut *seat else { return None };
        let waker = waker.take();
        *seat = Seat::Denied(denied);
        self.left.store(true, Ordering::Release);
        Some(Woken(waker))
    }

    /// Takes a lease back that it has not taken; false if it has.
    pub(super) fn pass_over(&self, lease: &Arc<Lease>) -> bool {
        let mut seat = self.seat();
        let lies_there = matches!(&*seat, Seat::Granted(granted) if Arc::ptr_eq(granted, lease));
        if lies_there {
            *seat = Seat::PassedOver;
        }
        lies_there
    }

    /// Has it look at its line again: it may have to poll by itself, where the engine does not.
    pub(super) fn prompt(&self) -> Option<Woken> {
        match &mut *self.seat() {
            Seat::Waiting { waker, prompted } => {
                *prompted = true;
                Some(Woken(waker.take()))
            }
            _ => None,
        }
    }

    fn leave(&self) -> Seat {
        self.left.store(true, Ordering::Release);
        std::mem::replace(&mut *self.seat(), Seat::Left)
    }

    /// Resolves when it is granted the lock, denied, passed over or prompted.
    async fn outcome(&self) -> Came {
        poll_fn(|cx| {
            // Cloned, and the one before it dropped, while the seat is free: a waker may own its task,
            // and the task a lock.
            let mut spare = None;
            loop {
                let mut seat = self.seat();
                let came = match &mut *seat {
                    Seat::Waiting { waker, prompted } => {
                        if std::mem::take(prompted) {
                            return Poll::Ready(Came::Prompted);
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
                    Seat::Granted(lease) => {
                        lease.take();
                        Came::Granted(lease.clone())
                    }
                    Seat::Denied(denied) => Came::Denied(denied.clone()),
                    Seat::PassedOver => {
                        *seat = Seat::WAITING;
                        return Poll::Ready(Came::PassedOver);
                    }
                    Seat::Left => return Poll::Pending,
                };
                *seat = Seat::Left;
                self.left.store(true, Ordering::Release);
                return Poll::Ready(came);
            }
        })
        .await
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Came {
    Granted(Arc<Lease>),
    Denied(Denied),
    PassedOver,
    Prompted,
}

/// A task to wake once no mutex is held.
#[must_use]
pub(super) struct Woken(Option<Waker>);

impl Woken {
    pub(super) fn wake(self) {
        if let Some(waker) = self.0 {
            shield(|| waker.wake());
        }
    }
}

/// A place in a lock's line; dropping it gives it up.
pub(crate) struct Place {
    table: Arc<LockTable>,
    lock: Arc<LockName>,
    waiter: Arc<Waiter>,
}

impl Place {
    pub(super) fn new(table: Arc<LockTable>, lock: Arc<LockName>, waiter: Arc<Waiter>) -> Self {
        Self { table, lock, waiter }
    }

    /// Waits for the lock until the wish's `wait` is over.
    pub(crate) async fn granted(self) -> Result<Arc<Lease>, Denied> {
        let wish = self.waiter.wish;
        let Wish { wait, overall, .. } = wish;
        let clock = self.table.clock();
        // Beyond `wait` only for as long as it is not known that the lock is taken.
        let mut limit = wait;
        loop {
            let at = limit.min(self.table.poll_at(&self.lock, &self.waiter));
            let alarm = Alarm::at(self.table.alarms(), clock, at);
            match until(self.waiter.outcome(), alarm).await {
                Some(Came::Granted(lease)) => return Ok(lease),
                Some(Came::Denied(denied)) => return Err(denied),
                Some(Came::Prompted) if clock.now() >= wait => {
                    if let Some(denied) = self.table.verdict(&self.lock, &self.waiter) {
                        return Err(denied);
                    }
                }
                Some(Came::Prompted) => {}
                Some(Came::PassedOver) => self.table.rejoin(&self.lock, &self.waiter),
                None if clock.now() < limit => self.table.poll_queue(&self.lock),
                None => match self.table.verdict(&self.lock, &self.waiter) {
                    Some(denied) => return Err(denied),
                    None if clock.now() < overall => limit = overall,
                    None => return Err(wish.unanswered()),
                },
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It has the lock, or was told why not.
        if self.waiter.has_left() || !self.table.home().is_here() {
            return;
        }
        match self.waiter.leave() {
            Seat::Waiting { .. } => self.table.left(&self.lock, &self.waiter),
            // Granted in this very moment, or never looked at: it goes on to the next.
            Seat::Granted(lease) => self.table.end_in_background(&lease),
            Seat::PassedOver | Seat::Denied(_) | Seat::Left => {}
        }
    }
}
