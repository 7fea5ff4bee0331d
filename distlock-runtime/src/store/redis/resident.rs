//! A lodger on a user's runtime: while its tasks use a connection often, the connection's driver is
//! polled there, and its socket watched there.
//!
//! An answer then wakes a task of the thread that read it, and what tasks send next is written by
//! that thread as well. With the driver on the engine's thread every few locks cost two threads
//! that wake each other, which takes longer than the lock where processors are idle.
//!
//! Nothing depends on that runtime. The engine looks in from time to time: a resident that was
//! asked to come and did not, because its runtime is blocked, busy or gone, is dismissed, and so is
//! one that nobody needs. Until the next one comes the engine drives.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use super::driver::Driver;
use super::socket::Mover;
use crate::clock::{Clock, Moment};
use crate::runtime::watches_sockets;

/// How often the engine looks in.
const ROUND: Duration = Duration::from_millis(10);
/// A resident that had nothing to do for so many rounds is dismissed.
const IDLE_ROUNDS: u32 = 2;
/// So many commands of the engine's own in a round are better answered on the engine.
const OF_ENGINE: u64 = 8;
/// After one that did not come, none is taken for so long, and twice as long after the next.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// One that was invited and has not arrived in so long is not waited for: others may be invited.
const INVITED_FOR: Duration = Duration::from_millis(100);

/// Whether a connection's driver is with the engine or with a resident.
pub(super) struct Residence {
    mover: Mover,
    resident: Mutex<Option<Lodger>>,
    /// On their way, some of them perhaps for ever.
    invited: Mutex<Invited>,
    /// One is there.
    taken: AtomicBool,
    /// It was asked to poll and has not come yet.
    asked: AtomicBool,
    polls: AtomicU64,
    /// Commands that the engine has sent.
    of_engine: AtomicU64,
    /// Commands were left to be written together.
    crowded: AtomicBool,
    /// None is taken before that.
    not_before: AtomicU64,
    pause: Mutex<Duration>,
}

#[derive(Default)]
struct Invited {
    issued: u64,
    /// Their numbers, one for each runtime: what is spawned on a runtime that nobody runs stays there.
    runtimes: Vec<(Id, u64)>,
    /// The last one is waited for until then.
    until: Option<Moment>,
}

/// A resident as others know it.
struct Lodger {
    number: u64,
    waker: Waker,
}

impl Residence {
    pub(super) fn new(mover: Mover) -> Self {
        Self {
            mover,
            resident: Mutex::default(),
            invited: Mutex::default(),
            taken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            of_engine: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            not_before: AtomicU64::new(0),
            pause: Mutex::default(),
        }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    pub(super) fn note_command_of_engine(&self) {
        self.of_engine.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn commands_of_engine(&self) -> u64 {
        self.of_engine.load(Ordering::Relaxed)
    }

    /// Has a resident come to the runtime of the caller, unless there is one or one is on its way.
    pub(super) fn invite(&self, driver: &Arc<Driver>) {
        if self.is_taken() {
            return;
        }
        let now = Clock::Boottime.now();
        if now.as_nanos() < self.not_before.load(Ordering::Acquire) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let number = {
            let mut invited = self.invited();
            let here = invited.runtimes.iter().any(|(there, _)| *there == runtime.id());
            if here || invited.until.is_some_and(|until| now < until) {
                return;
            }
            invited.issued += 1;
            let number = invited.issued;
            invited.runtimes.push((runtime.id(), number));
            invited.until = Some(now.after(INVITED_FOR));
            number
        };
        // Under no mutex: a runtime that has ended drops it at once, which is an `uninvite`.
        let (driver, here) = (Arc::downgrade(driver), false);
        runtime.spawn(Resident { driver, number, here, waited: false });
    }

    /// An invited one is on its way no more.
    fn uninvite(&self, number: u64) {
        let mut invited = self.invited();
        invited.runtimes.retain(|(_, own)| *own != number);
        if number == invited.issued {
            invited.until = None;
        }
    }

    /// Asks the resident to poll the driver; false if there is none.
    pub(super) fn ask(&self) -> bool {
        // Found under the mutex: whoever dismisses a resident polls the driver afterwards, so he
        // sees what this is about, or this sees the resident gone.
        let waker = self.resident().as_ref().map(|resident| resident.waker.clone());
        let Some(waker) = waker else { return false };
        self.asked.store(true, Ordering::Release);
        waker.wake();
        true
    }

    /// A command was put where the next poll of the driver finds it, with others that will come.
    pub(super) fn leave_for_others(&self) {
        self.crowded.store(true, Ordering::Relaxed);
    }

    /// Ends the residence, if there is one. To be followed by a poll of the driver.
    pub(super) fn dismiss(&self) {
        let number = self.resident().as_ref().map(|resident| resident.number);
        number.map(|number| self.leave(number));
    }

    /// The engine's part while there is a resident: resolves when there is none, or at the end of
    /// the connection.
    pub(super) async fn look_after(&self, has_ended: impl Fn() -> bool) {
        let over = || has_ended() || !self.is_taken();
        let begun = Clock::Boottime.now();
        let (mut seen, mut asked, mut idle) = (0, false, 0);
        let mut of_engine = self.commands_of_engine();
        while !over() {
            let mut round = pin!(tokio::time::sleep(ROUND));
            poll_fn(|cx| if over() { Poll::Ready(()) } else { round.as_mut().poll(cx) }).await;
            let (polls, asks) =
                (self.polls.load(Ordering::Acquire), self.asked.load(Ordering::Acquire));
            let came = polls != seen;
            idle = if came { 0 } else { idle + 1 };
            if asked && asks && !came {
                self.pause_after(begun);
                self.dismiss();
            } else if idle > IDLE_ROUNDS || self.commands_of_engine() - of_engine >= OF_ENGINE {
                self.dismiss();
            }
            of_engine = self.commands_of_engine();
            (seen, asked) = (polls, asks);
        }
    }

    /// A resident did not come that was here since `begun`.
    fn pause_after(&self, begun: Moment) {
        let now = Clock::Boottime.now();
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        let longer = if now.since(begun) < LONGEST_PAUSE { *pause * 2 } else { FIRST_PAUSE };
        *pause = longer.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.not_before.store(now.after(*pause).as_nanos(), Ordering::Release);
    }

    fn resident(&self) -> MutexGuard<'_, Option<Lodger>> {
        self.resident.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn invited(&self) -> MutexGuard<'_, Invited> {
        self.invited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new resident is here, on its own runtime; false if it cannot stay. One that comes late may
    /// find another one here, which is `None`.
    fn arrive(&self, number: u64, waker: &Waker) -> Option<bool> {
        let new = waker.clone();
        let mut resident = self.resident();
        if resident.is_some() {
            return None;
        }
        // The engine polls no more from here on; it is rung for that.
        self.taken.store(true, Ordering::Release);
        *resident = Some(Lodger { number, waker: new });
        Some(self.mover.to_this_runtime())
    }

    /// The resident is here for a poll; false if it was dismissed.
    fn is_here(&self, number: u64, waker: &Waker) -> bool {
        // Its own task's, which must not end under the mutex: that would come back here.
        let mut new = waker.clone();
        match self.resident().as_mut().filter(|resident| resident.number == number) {
            Some(resident) => std::mem::swap(&mut resident.waker, &mut new),
            None => return false,
        }
        self.asked.store(false, Ordering::Release);
        self.polls.fetch_add(1, Ordering::Release);
        true
    }

    /// Whoever has this number is not the resident any more; false if he was not.
    fn leave(&self, number: u64) -> bool {
        let gone = {
            let mut resident = self.resident();
            if resident.as_ref().is_none_or(|resident| resident.number != number) {
                return false;
            }
            self.mover.to_engine();
            self.taken.store(false, Ordering::Release);
            resident.take()
        };
        // So that its task ends.
        gone.into_iter().for_each(|gone| gone.waker.wake());
        true
    }
}

/// The task of a resident.
struct Resident {
    driver: Weak<Driver>,
    number: u64,
    /// It has arrived.
    here: bool,
    /// It has let others go first.
    waited: bool,
}

impl Future for Resident {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = self.driver.upgrade() else { return Poll::Ready(()) };
        let residence = driver.residence();
        if !self.here {
            if !watches_sockets() {
                residence.pause_after(Clock::Boottime.now());
                return Poll::Ready(());
            }
            self.here = true;
            let arrived = residence.arrive(self.number, cx.waker());
            // Once it is here, or its runtime would be asked for another one.
            residence.uninvite(self.number);
            let Some(stays) = arrived else { return Poll::Ready(()) };
            driver.ring_engine();
            if !stays {
                residence.pause_after(Clock::Boottime.now());
                return Poll::Ready(());
            }
        }
        if !residence.is_here(self.number, cx.waker()) {
            return Poll::Ready(());
        }
        // The tasks that are ready now have commands to write, too.
        if !self.waited && residence.crowded.swap(false, Ordering::Relaxed) {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        driver.poll_as_resident()
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let Some(driver) = self.driver.upgrade() else { return };
        if !driver.home().is_here() {
            return;
        }
        let residence = driver.residence();
        if !self.here {
            residence.uninvite(self.number);
        } else if residence.leave(self.number) {
            driver.ring_engine();
        }
    }
}
