//! The process that a manager was made in.
//!
//! A child that was forked without `exec` has a copy of the manager, but not its thread, and shares
//! its parent's sockets: a command of the child would be answered to the parent, which would take
//! another's lock for its own. So a child may do nothing with it. That is checked before any mutex is
//! locked, as a thread of the parent may have held it in the moment of the fork.

use std::cell::Cell;
use std::process;

use crate::clock::{Clock, Moment};

/// For so long a thread knows in which process it is. A fork takes longer, so that a child never
/// believes what its parent's thread has noted: of 10,000 forks of a static program without a heap
/// the quickest took 42 µs, and it takes longer the more memory a process has. In nanoseconds.
const KNOWN_FOR: u64 = 20_000;

thread_local! {
    /// When this thread has asked last, and the answer.
    static ASKED: Cell<(Moment, u32)> = const { Cell::new((Moment::from_nanos(0), 0)) };
}

/// The number of this process. The system call for it takes 110 ns, which is 2 % of what a lock
/// costs a busy process, and reading the clock a third of that.
#[inline]
fn current(now: Moment) -> u32 {
    let (asked, process) = ASKED.get();
    if process != 0 && now.as_nanos().saturating_sub(asked.as_nanos()) < KNOWN_FOR {
        return process;
    }
    let process = process::id();
    ASKED.set((now, process));
    process
}

/// Where a manager is at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    process: u32,
}

impl Home {
    pub fn here() -> Self {
        Self { process: current(Clock::Boottime.now()) }
    }

    /// To be asked once where a call begins, not all along it.
    pub fn is_here(self) -> bool {
        self.is_here_at(Clock::Boottime.now())
    }

    fn is_here_at(self, now: Moment) -> bool {
        current(now) == self.process
    }

    /// Refuses a child that was forked.
    ///
    /// # Errors
    ///
    /// [`Forked`] in every process but the one in which this was made.
    pub fn check(self) -> Result<(), Forked> {
        if self.is_here() { Ok(()) } else { Err(Forked) }
    }

    /// The same for a caller that has just read `now` from `clock`: every lock asks twice, and reading
    /// the clock again for it costs 1 % of a lock.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    #[inline]
    pub fn check_at(self, clock: Clock, now: Moment) -> Result<(), Forked> {
        let is_here = match clock {
            Clock::Boottime => self.is_here_at(now),
            Clock::Callers(_) => self.is_here(),
        };
        if is_here { Ok(()) } else { Err(Forked) }
    }
}

/// The manager belongs to the parent of this process, which was forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked;
