//! The parts of `run` that differ between Linux and other Unix systems.

pub(super) use system::{CLOCK, LISTS_PROCESSES, RECEIVE_FLAGS, adopt_orphans, has_children};

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::{Errno, Result};
    use rustix::net::RecvFlags;
    use rustix::process::{WaitId, WaitIdOptions, getpid, set_child_subreaper, waitid};
    use rustix::time::ClockId;

    /// A clock that runs while the machine is suspended.
    pub(in super::super) const CLOCK: ClockId = ClockId::Boottime;
    /// Keeps received files from programs that this process starts.
    pub(in super::super) const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
    /// Whether `/proc` lists processes.
    pub(in super::super) const LISTS_PROCESSES: bool = true;

    /// Makes orphans below this process its children.
    pub(in super::super) fn adopt_orphans() -> Result<()> {
        set_child_subreaper(Some(getpid()))
    }

    /// Whether this process has children, with those that have ended and were not reaped.
    pub(in super::super) fn has_children() -> Option<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Some(!waitid(WaitId::All, look).is_err_and(|error| error == Errno::CHILD))
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::io::Result;
    use rustix::net::RecvFlags;
    use rustix::time::ClockId;

    pub(in super::super) const CLOCK: ClockId = ClockId::Monotonic;
    pub(in super::super) const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();
    pub(in super::super) const LISTS_PROCESSES: bool = false;

    /// Does nothing: these systems have no subreapers.
    pub(in super::super) fn adopt_orphans() -> Result<()> {
        Ok(())
    }

    /// Returns `None`: orphans of the command are not children of this process.
    pub(in super::super) fn has_children() -> Option<bool> {
        None
    }
}
