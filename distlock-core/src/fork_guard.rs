//! A guard against the use of a manager in a forked child.
//!
//! A child that was forked without `exec` has a copy of the manager, but not the manager's thread, and it shares the
//! sockets of its parent. The parent would read the answers to the child's commands, and take the child's locks for its
//! own. So a child may not use the manager. This is checked before any mutex is locked, because a thread of the parent may
//! have held that mutex at the moment of the fork.

use std::cell::Cell;
use std::process;

use crate::clock::{Clock, Moment};

/// How long a thread remembers the number of its process, in nanoseconds. A fork takes longer, so a child never uses the
/// number that its parent's thread has noted. The quickest of 10,000 forks of a static program without a heap took
/// 42 µs, and a fork takes longer the more memory the process has.
const KNOWN_FOR: u64 = 20_000;

thread_local! {
    /// When this thread last asked for the number of its process, and the number.
    static ASKED: Cell<(Moment, u32)> = const { Cell::new((Moment::from_nanos(0), 0)) };
}

/// Returns the number of this process. The system call takes 110 ns, which is 2 % of the cost of a lock in a busy
/// process. Reading the clock takes a third of that.
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

/// A guard against the use of a manager in a forked child. It knows the process that the manager was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkGuard {
    process: u32,
}

impl ForkGuard {
    /// Returns the current process.
    pub fn here() -> Self {
        Self { process: current(Clock::Boottime.now()) }
    }

    /// Returns whether this is still the current process. Ask once where a call begins, not in each of its steps.
    pub fn is_here(self) -> bool {
        self.is_here_at(Clock::Boottime.now())
    }

    fn is_here_at(self, now: Moment) -> bool {
        current(now) == self.process
    }

    /// Returns an error in a forked child.
    ///
    /// # Errors
    ///
    /// [`Forked`] in every process but the one in which this was made.
    pub fn check(self) -> Result<(), Forked> {
        if self.is_here() { Ok(()) } else { Err(Forked) }
    }

    /// Returns an error in a forked child, for a caller that has just read `now` from `clock`. Every lock asks twice, and
    /// reading the clock again costs 1 % of a lock.
    ///
    /// # Errors
    ///
    /// [`Forked`] in every process but the one in which this was made.
    #[inline]
    pub fn check_at(self, clock: Clock, now: Moment) -> Result<(), Forked> {
        let is_here = match clock {
            Clock::Boottime => self.is_here_at(now),
            Clock::Callers(_) => self.is_here(),
        };
        if is_here { Ok(()) } else { Err(Forked) }
    }
}

/// The error of a forked child: the manager belongs to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked;
